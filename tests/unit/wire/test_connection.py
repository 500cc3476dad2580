"""Both ends of a connection, joined by hand."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ottla.wire.apis import ApiKey
from ottla.wire.codec import encode
from ottla.wire.connection import (
    MAX_IN_FLIGHT,
    SMALL_FRAMES_BYTES,
    ClientProtocol,
    FrameReader,
    FrameReceiver,
    FrameRefusal,
    Response,
    ServerProtocol,
    VersionRefusal,
    decode_api_versions_response,
    frame_refusal,
)
from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.framing import RequestHeader, encode_request_frame
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse
from ottla.wire.messages.produce import ProduceRequest


def test_frames_in_any_pieces() -> None:
    stream = b"\0\0\0\3abc" + b"\0\0\0\0" + b"\0\0\0\1z"
    for cut in range(len(stream)):
        reader = FrameReader(10)
        first, second = reader.feed(stream[:cut]), reader.feed(memoryview(stream)[cut:])
        assert isinstance(first, list)
        assert isinstance(second, list)
        assert first + second == [b"abc", b"", b"z"]
        assert reader.held_bytes == 0
    reader = FrameReader(10)
    assert [frame for byte in stream for frame in reader.feed(bytes((byte,)))] == [b"abc", b"", b"z"]


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (b"\xff\xff\xff\xff", "Invalid receive (size = -1)"),
        (b"\0\0\0\x0b", "Invalid receive (size = 11 larger than 10)"),
        (b"GET ", "Invalid receive (size = 1195725856 larger than 10)"),
    ],
)
def test_sizes_that_are_refused(size: bytes, message: str) -> None:
    reader = FrameReader(10)
    assert reader.feed(b"\0\0\0\1a" + size) == [b"a"]
    assert reader.refusal is not None
    assert reader.refusal.message == message
    assert reader.feed(b"\0\0\0\1a") == reader.refusal
    assert reader.held_bytes == 0
    fresh = FrameReader(10)
    assert isinstance(fresh.feed(size), FrameRefusal)


def put(receiver: FrameReceiver | ClientProtocol, data: bytes) -> Any:
    """What is whole when `data` has been received."""
    whole: list[Any] = []
    while data:
        with receiver.get_buffer() as room:
            count = min(len(room), len(data))
            assert count
            room[:count] = data[:count]
        found = receiver.received(count)
        if isinstance(found, FrameRefusal):
            return whole or found
        whole += found
        data = data[count:]
    return whole


def test_received_frames_in_any_pieces() -> None:
    stream = b"\0\0\0\3abc" + b"\0\0\0\0" + b"\0\0\0\1z"
    for cut in range(len(stream)):
        receiver = FrameReceiver(10)
        assert put(receiver, stream[:cut]) + put(receiver, stream[cut:]) == [b"abc", b"", b"z"]
    receiver = FrameReceiver(10)
    assert [frame for byte in stream for frame in put(receiver, bytes((byte,)))] == [b"abc", b"", b"z"]


@pytest.mark.parametrize("size", [SMALL_FRAMES_BYTES - 4, SMALL_FRAMES_BYTES - 3, 3 * SMALL_FRAMES_BYTES + 1])
@pytest.mark.parametrize("step", [1000, SMALL_FRAMES_BYTES, 10 * SMALL_FRAMES_BYTES])
def test_received_frames_of_any_size(size: int, step: int) -> None:
    chance = random.Random(size * step)
    frames = [b"ab", chance.randbytes(size), b"", chance.randbytes(size), b"c"]
    stream = b"".join(len(frame).to_bytes(4) + frame for frame in frames)
    receiver = FrameReceiver(size)
    kept = [frame for at in range(0, len(stream), step) for frame in put(receiver, stream[at : at + step])]
    assert [bytes(frame) for frame in kept] == frames, "a frame that was handed out is not written to any more"


def test_a_large_frame_gets_the_buffer_of_one_that_nobody_holds() -> None:
    size = 2 * SMALL_FRAMES_BYTES
    receiver = FrameReceiver(100 * size)

    def receive(size: int, fill: bytes) -> memoryview:
        (frame,) = put(receiver, size.to_bytes(4) + size * fill)
        assert bytes(frame) == size * fill
        return memoryview(frame)

    held = receive(size, b"a")
    records = held[100:200]
    buffer = held.obj
    del held
    other = receive(size - 7, b"b")
    assert records == 100 * b"a", "a part of the first is held"
    assert other.obj is not buffer
    buffer = other.obj
    del other
    again = receive(size - 9, b"c")
    assert again.obj is buffer
    del again
    larger = receive(20 * size, b"d")
    assert larger.obj is not buffer
    del larger
    small = receive(size, b"e")
    assert len(small.obj) == size, "what is much too large is not kept"


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff", b"\0\0\0\x0b", b"GET "])
def test_sizes_that_a_receiver_refuses(size: bytes) -> None:
    receiver = FrameReceiver(10)
    assert put(receiver, b"\0\0\0\1a" + size) == [b"a"]
    assert receiver.refusal is not None
    assert put(receiver, b"\0\0\0\1a") == receiver.refusal
    assert isinstance(put(FrameReceiver(10), size), FrameRefusal)


def test_frame_refusal_at_the_limit() -> None:
    assert frame_refusal(0, 10) is None
    assert frame_refusal(10, 10) is None
    assert frame_refusal(11, 10) == FrameRefusal(11, "Invalid receive (size = 11 larger than 10)")


def pair() -> tuple[ClientProtocol, ServerProtocol]:
    return ClientProtocol("me", 1000), ServerProtocol(1000)


def arrived(client: ClientProtocol, data: bytes) -> list[Response] | FrameRefusal:
    found: list[Response] | FrameRefusal = put(client, data)
    return found


def test_requests_and_responses_in_order() -> None:
    client, server = pair()
    sent = client.request(HeartbeatRequest(group_id="g"), 4) + client.request(MetadataRequest(topics=None), 9)
    first, second = server.receive(sent)
    assert first.header == RequestHeader(ApiKey.HEARTBEAT, 4, 0, "me")
    assert first.message == HeartbeatRequest(group_id="g")
    assert second.message.topics is None
    answers = server.respond(HeartbeatResponse(error_code=27)) + server.respond(MetadataResponse(cluster_id="c"))
    one, two = arrived(client, answers)
    assert (one.correlation_id, one.api_key, one.version) == (0, ApiKey.HEARTBEAT, 4)
    assert one.message == HeartbeatResponse(error_code=27)
    assert two.message.cluster_id == "c"


def test_a_request_without_an_answer() -> None:
    client, server = pair()
    sent = client.request(ProduceRequest(acks=0), 9, answered=False) + client.request(HeartbeatRequest(), 0)
    assert len(server.receive(sent)) == 2
    server.skip()
    (answer,) = arrived(client, server.respond(HeartbeatResponse()))
    assert answer.correlation_id == 1


def test_versions_are_agreed_on() -> None:
    client, server = pair()
    server.receive(client.request(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3))
    offered = ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=ApiKey.HEARTBEAT, min_version=0, max_version=3),
            ApiVersion(api_key=ApiKey.METADATA, min_version=20, max_version=30),
            ApiVersion(api_key=ApiKey.FETCH, min_version=0, max_version=99),
        ]
    )
    (answer,) = arrived(client, server.respond(offered))
    client.agree(answer.message)
    assert client.version_for(ApiKey.HEARTBEAT) == 3
    assert client.version_for(ApiKey.FETCH) == 17
    too_new = client.version_for(ApiKey.METADATA)
    assert too_new == VersionRefusal(
        ErrorCode.UNSUPPORTED_VERSION,
        "the server offers Metadata in versions 20 to 30, needed is one of 0 to 12",
    )
    too_old = client.version_for(ApiKey.HEARTBEAT, lowest=4)
    assert isinstance(too_old, VersionRefusal)
    missing = client.version_for(ApiKey.JOIN_GROUP)
    assert isinstance(missing, VersionRefusal)
    assert missing.message == "the server does not offer JoinGroup (key 11)"


def test_a_client_from_the_future_is_reported_in_version_0() -> None:
    server = ServerProtocol(1000)
    (request,) = server.receive(encode_request_frame(RequestHeader(ApiKey.API_VERSIONS, 77, 5, "x"), b"who knows"))
    assert request.message is None
    assert request.header.api_version == 77
    frame = server.respond(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
    assert frame == bytes.fromhex("0000000a 00000005 0023 00000000")


def test_a_server_from_the_past_is_understood() -> None:
    own = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=2)
    refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])
    assert decode_api_versions_response(encode(refusal, 0), 4) == refusal
    with pytest.raises(WireError, match="ApiVersionsResponse version 4"):
        decode_api_versions_response(encode(ApiVersionsResponse(api_keys=[own]), 0), 4)
    client = ClientProtocol("me", 1000)
    client.request(ApiVersionsRequest(), 4)
    (answer,) = arrived(client, bytes.fromhex("0000000a 00000000 0023 00000000"))
    assert answer.message.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_answers_that_do_not_belong() -> None:
    client, _ = pair()
    with pytest.raises(WireError, match="without a request"):
        arrived(client, bytes.fromhex("00000004 00000000"))
    client.request(HeartbeatRequest(), 0)
    with pytest.raises(WireError, match="has correlation id 9, the next in order is 0"):
        arrived(client, bytes.fromhex("00000006 00000009 0000"))


def test_limits_of_a_client() -> None:
    client, _ = pair()
    for _ in range(MAX_IN_FLIGHT):
        client.request(HeartbeatRequest(), 0)
    with pytest.raises(WireError, match=f"{MAX_IN_FLIGHT} requests are in flight"):
        client.request(HeartbeatRequest(), 0)
    with pytest.raises(WireError, match="not a request"):
        client.request(ConsumerProtocolAssignment(), 0)


def test_refused_sizes_at_both_ends() -> None:
    client, server = pair()
    assert isinstance(server.receive(b"\x7f\0\0\0"), FrameRefusal)
    assert isinstance(arrived(client, b"\x80\0\0\0"), FrameRefusal)
