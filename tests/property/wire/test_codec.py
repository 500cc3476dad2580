"""The compiled codec and the reference codec agree, on messages and on rubbish; hot paths agree with both."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.testing import reference_codec as reference
from ottla.wire import codec, hot
from ottla.wire.errors import WireError
from ottla.wire.messages.fetch import FetchRequest, FetchResponse
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.produce import ProduceRequest, ProduceResponse
from ottla.wire.schema import Message
from property.wire.messages import ALL, IDS, messages
from support.random_cases import cases

FEW = settings(
    max_examples=cases(6),
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
MORE = settings(FEW, max_examples=cases(60))

each_message = pytest.mark.parametrize(("cls", "version"), ALL, ids=IDS)

Decoder = Any


def outcome(decode: Decoder, *args: Any) -> Any:
    """What a decoder makes of its input: the object and its end, or that it refuses."""
    try:
        return decode(*args)
    except WireError:
        return "refused"


@each_message
@FEW
@given(data=st.data())
def test_round_trip_with_equal_bytes(cls: type[Message], version: int, data: st.DataObject) -> None:
    message = data.draw(messages(cls, version))
    encoded = codec.encode(message, version)
    assert encoded == reference.encode(message, version)
    assert codec.decode(cls, encoded, version) == message
    assert reference.decode_prefix(cls, encoded, version) == (message, len(encoded))
    # The same at an offset in a larger, writable buffer.
    buffer = memoryview(bytearray(b"###" + encoded))
    assert codec.decode_prefix(cls, buffer, version, 3) == (message, len(buffer))


@each_message
@FEW
@given(data=st.data())
def test_damaged_bytes_are_refused_or_read_alike(cls: type[Message], version: int, data: st.DataObject) -> None:
    damaged = damage(data, codec.encode(data.draw(messages(cls, version)), version))
    compiled = outcome(codec.decode_prefix, cls, damaged, version)
    assert compiled == outcome(reference.decode_prefix, cls, damaged, version)
    if compiled != "refused":
        message, end = compiled
        assert codec.decode(cls, codec.encode(message, version), version) == message
        assert end <= len(damaged)


@each_message
@FEW
@given(noise=st.binary(max_size=40))
def test_noise_is_refused_or_read_alike(cls: type[Message], version: int, noise: bytes) -> None:
    compiled = outcome(codec.decode_prefix, cls, noise, version)
    assert compiled == outcome(reference.decode_prefix, cls, noise, version)


def damage(data: st.DataObject, encoded: bytes) -> bytes:
    """The bytes cut short, with a few bytes changed, or with some put in between."""
    how = data.draw(st.sampled_from(["cut", "change", "insert"]))
    place = data.draw(st.integers(0, len(encoded)))
    if how == "cut":
        return encoded[:place]
    if how == "insert":
        return encoded[:place] + data.draw(st.binary(min_size=1, max_size=5)) + encoded[place:]
    changed = bytearray(encoded)
    for _ in range(data.draw(st.integers(1, 3))):
        if changed:
            index = data.draw(st.integers(0, len(changed) - 1))
            changed[index] = data.draw(st.sampled_from([0, 1, 2, 3, 127, 128, 255]))
    return bytes(changed)


HOT_DECODERS = [
    (hot.decode_produce, ProduceRequest),
    (hot.decode_fetch, FetchRequest),
    (hot.decode_heartbeat, HeartbeatRequest),
]
HOT = [
    pytest.param(decode, cls, version, id=f"{cls.__name__}-v{version}")
    for decode, cls in HOT_DECODERS
    for version in range(cls.SCHEMA.versions[0], cls.SCHEMA.versions[1] + 1)
]


def usual(message: Any) -> Any:
    """Make of a message the shape that the hot path is made for: one of everything, no tags."""
    message.unknown_tagged_fields = None
    for f in message.SCHEMA.fields:
        value = getattr(message, f.name)
        if f.nullable(99) and f.kind.name == "string":
            setattr(message, f.name, None)
        elif f.tag is not None or f.name in ("forgotten_topics_data", "record_errors", "aborted_transactions"):
            setattr(message, f.name, f.new_default())
        elif isinstance(value, list):
            for item in value[:1]:
                usual(item)
            setattr(message, f.name, value[:1])
    if isinstance(message, FetchRequest):
        message.rack_id = ""
    return message


@pytest.mark.parametrize(("decode", "cls", "version"), HOT)
@MORE
@given(data=st.data())
def test_hot_decoders_agree(decode: Decoder, cls: type[Message], version: int, data: st.DataObject) -> None:
    message = data.draw(messages(cls, version))
    if data.draw(st.booleans()):
        usual(message)
    encoded = codec.encode(message, version)
    if data.draw(st.booleans()):
        encoded = damage(data, encoded)
    frame = memoryview(bytearray(b"head" + encoded))
    assert outcome(decode, frame, version, 4) == outcome(codec.decode, cls, frame, version, 4)


@pytest.mark.parametrize("version", range(12))
@MORE
@given(data=st.data())
def test_hot_produce_response_agrees(version: int, data: st.DataObject) -> None:
    message = data.draw(messages(ProduceResponse, version))
    if data.draw(st.booleans()):
        usual(message)
    assert hot.encode_produce_response(message, version) == codec.encode(message, version)


@pytest.mark.parametrize("version", range(18))
@MORE
@given(data=st.data())
def test_hot_fetch_response_agrees(version: int, data: st.DataObject) -> None:
    message = data.draw(messages(FetchResponse, version))
    if data.draw(st.booleans()):
        usual(message)
    encoded = codec.encode(message, version)
    parts, length = hot.encode_fetch_response(message, version)
    assert b"".join(parts) == encoded
    assert length == len(encoded)
