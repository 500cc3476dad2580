"""Headers and frames, byte by byte."""

from __future__ import annotations

import pytest

from ottla.wire.apis import ApiKey
from ottla.wire.errors import WireError
from ottla.wire.framing import (
    RequestHeader,
    api_name,
    encode_request_frame,
    encode_request_header,
    encode_response_frame,
    encode_response_header,
    parse_request_header,
    parse_response_header,
    read_varint,
    response_header_size,
)

METADATA_V1 = bytes.fromhex("0003 0001 00000007 0003") + b"abc"
METADATA_V9 = bytes.fromhex("0003 0009 00000007 0003") + b"abc" + b"\0"


@pytest.mark.parametrize("frame", [METADATA_V1, METADATA_V9])
def test_request_header(frame: bytes) -> None:
    header, offset = parse_request_header(memoryview(frame + b"body"))
    assert header == RequestHeader(ApiKey.METADATA, header.api_version, 7, "abc")
    assert frame[offset:] == b""
    assert encode_request_header(header) == frame
    assert encode_request_frame(header, b"body") == len(frame + b"body").to_bytes(4) + frame + b"body"


def test_client_id_that_is_null_or_empty() -> None:
    for length in ("ffff", "0000"):
        header, offset = parse_request_header(bytes.fromhex(f"0003 0001 00000007 {length}"))
        assert (header.client_id, offset) == ("", 10)


def test_the_first_controlled_shutdown_has_no_client_id() -> None:
    header = RequestHeader(ApiKey.CONTROLLED_SHUTDOWN, 0, 7)
    frame = encode_request_frame(header, b"\x00\x00\x00\x05")
    assert frame.hex() == "0000000c" + "00070000" + "00000007" + "00000005"
    assert parse_request_header(frame[4:]) == (header, 8)
    header.api_version = 1
    assert encode_request_header(header).hex() == "00070001" + "00000007" + "0000"
    assert parse_request_header(encode_request_header(header)) == (header, 10)


def test_a_client_id_that_is_too_long() -> None:
    longest = RequestHeader(ApiKey.METADATA, 1, 7, "c" * 32_767)
    assert parse_request_header(encode_request_header(longest))[0] == longest
    with pytest.raises(WireError, match="the client id has 32768 bytes, and a string of Kafka's protocol has 32767"):
        encode_request_header(RequestHeader(ApiKey.METADATA, 1, 7, "c" * 32_768))


def test_tagged_fields_of_a_header_are_skipped() -> None:
    frame = bytes.fromhex("0003 0009 00000007 ffff 02 00 01 aa 8101 02 bbbb") + b"body"
    _, offset = parse_request_header(frame)
    assert frame[offset:] == b"body"


def test_version_from_the_future_has_the_newest_header() -> None:
    header, offset = parse_request_header(bytes.fromhex("0012 7fff 00000001 0001 78 00"))
    assert (header.api_version, header.client_id, offset) == (32767, "x", 12)


@pytest.mark.parametrize(
    ("frame", "problem"),
    [
        (b"", "too short"),
        (METADATA_V1[:9], "too short"),
        (METADATA_V1[:-1], "client id of 3 bytes goes beyond"),
        (METADATA_V9[:-1], "varint goes beyond"),
        (bytes.fromhex("0003 0001 00000007 fffe"), "negative length -2"),
        (bytes.fromhex("0003 0001 00000007 0001 ff"), "client id is not UTF-8"),
        (bytes.fromhex("7000 0001 00000007 ffff"), "unknown API: API key 28672, version 1"),
        (bytes.fromhex("0034 0001 00000007 ffff"), "unknown API: VOTE"),
        (bytes.fromhex("0003 0009 00000007 ffff 01 00 05 aa"), "tagged field goes beyond"),
        (bytes.fromhex("0003 0009 00000007 ffff ffffffff07"), "tagged fields in 0 bytes"),
    ],
)
def test_malformed_request_headers(frame: bytes, problem: str) -> None:
    with pytest.raises(WireError, match=problem):
        parse_request_header(memoryview(frame))


def test_response_header() -> None:
    assert encode_response_header(ApiKey.METADATA, 8, 7) == bytes.fromhex("00000007")
    assert encode_response_header(ApiKey.METADATA, 9, 7) == bytes.fromhex("00000007 00")
    for version in (8, 9):
        head = encode_response_header(ApiKey.METADATA, version, 7)
        assert response_header_size(ApiKey.METADATA, version) == len(head)
        assert parse_response_header(head + b"body", ApiKey.METADATA, version) == (7, len(head))
        frame = encode_response_frame(ApiKey.METADATA, version, 7, b"body")
        assert frame == len(head + b"body").to_bytes(4) + head + b"body"


def test_api_versions_never_has_tags_in_the_response_header() -> None:
    assert encode_response_header(ApiKey.API_VERSIONS, 4, 7) == bytes.fromhex("00000007")


def test_malformed_response_headers() -> None:
    with pytest.raises(WireError, match="too short"):
        parse_response_header(b"\0\0\0", ApiKey.METADATA, 1)
    with pytest.raises(WireError, match="varint"):
        parse_response_header(bytes(4), ApiKey.METADATA, 9)


@pytest.mark.parametrize(
    ("data", "value"),
    [("00", 0), ("7f", 127), ("8001", 128), ("ffff03", 65535), ("ffffffff0f", 2**32 - 1)],
)
def test_varint(data: str, value: int) -> None:
    assert read_varint(bytes.fromhex(data + "ff"), 0) == (value, len(bytes.fromhex(data)))


def test_varint_without_an_end() -> None:
    with pytest.raises(WireError, match="longer than 5 bytes"):
        read_varint(b"\xff" * 6, 0)
    with pytest.raises(WireError, match="beyond the end"):
        read_varint(b"\xff", 0)


def test_names_for_people() -> None:
    assert api_name(24) == "ADD_PARTITIONS_TO_TXN (24)"
    assert api_name(999) == "API key 999"
