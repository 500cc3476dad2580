"""Subscriptions and assignments as consumers write them."""

from __future__ import annotations

import pytest

from ottla.assign.consumer_protocol import (
    Assignment,
    Malformed,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_assignments,
    encode_subscription,
)
from ottla.wire.errors import WireError

OWNED = {"t1": (0, 2), "t2": (1,)}


@pytest.mark.parametrize(
    ("version", "owned", "generation", "rack"),
    [(0, {}, -1, None), (1, OWNED, -1, None), (2, OWNED, 7, None), (3, OWNED, 7, "r")],
)
def test_subscriptions_of_each_version(
    version: int, owned: dict[str, tuple[int, ...]], generation: int, rack: str | None
):
    data = encode_subscription(["t1", "t2"], b"data", version, owned_partitions=OWNED, generation_id=7, rack_id="r")
    assert decode_subscription(data) == Subscription(version, ("t1", "t2"), b"data", owned, generation, rack)


def test_known_bytes():
    assert encode_subscription(["t"]).hex() == "0000" + "00000001" + "0001" + b"t".hex() + "ffffffff"
    assert (
        encode_assignment({"t": [3]}).hex()
        == "0000" + "00000001" + "0001" + b"t".hex() + "0000000100000003" + "ffffffff"
    )


def test_the_same_subscription_gives_the_same_bytes():
    one = encode_subscription(["b", "a"], version=1, owned_partitions={"b": [2, 1], "c": [], "a": [0]})
    assert one == encode_subscription(["a", "b"], version=1, owned_partitions={"a": [0], "b": [1, 2]})
    assert encode_assignment({"b": [2, 1], "a": [0]}) != encode_assignment({"a": [0], "b": [1, 2]})


def test_a_whole_group_at_once():
    group = {"a": Assignment(0, OWNED, b"u"), "b": Assignment(3, {"t2": (0,)}, None), "c": Assignment(1, {}, b"")}
    assert encode_assignments(group) == {
        member_id: encode_assignment(one.partitions, one.user_data, one.version) for member_id, one in group.items()
    }
    assert {member_id: decode_assignment(data) for member_id, data in encode_assignments(group).items()} == group


@pytest.mark.parametrize(
    ("partitions", "version", "message"),
    [
        ({"x" * 40_000: [1]}, 0, "cannot be encoded"),
        ({"t": [2**31]}, 0, "cannot be encoded"),
        ({"\ud800": [1]}, 0, "cannot be encoded"),
        ({"t": [1]}, 4, "has the versions 0 to 3, not 4"),
        ({"t": [1]}, -1, "has the versions 0 to 3, not -1"),
    ],
)
def test_what_cannot_be_written_is_an_error(partitions: dict[str, list[int]], version: int, message: str):
    with pytest.raises(WireError, match=message):
        encode_assignment(partitions, None, version)


def test_no_rack_and_no_generation_have_several_forms():
    data = encode_subscription(["t"], None, 3, generation_id=-7, rack_id="")
    assert decode_subscription(data) == Subscription(3, ("t",), None, {}, -1, None)


def test_a_version_from_the_future_is_read_by_its_known_part():
    data = bytearray(encode_subscription(["t"], None, 3, owned_partitions=OWNED, generation_id=5, rack_id="r"))
    data[0:2] = (99).to_bytes(2, "big")
    read = decode_subscription(bytes(data) + b"what is new in it")
    assert read == Subscription(99, ("t",), None, OWNED, 5, "r")
    assignment = bytearray(encode_assignment(OWNED, b"u"))
    assignment[0:2] = (99).to_bytes(2, "big")
    assert decode_assignment(bytes(assignment) + b"more") == Assignment(99, OWNED, b"u")


def test_a_newer_version_without_its_fields_is_taken_as_the_oldest():
    data = bytearray(encode_subscription(["t"]))
    data[0:2] = (1).to_bytes(2, "big")
    assert decode_subscription(bytes(data)) == Subscription(1, ("t",), None, {}, -1, None)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\xff\xff\x00\x00\x00\x00\xff\xff\xff\xff",
        bytes.fromhex("0000ffffffff"),
        bytes.fromhex("00007fffffff"),
        bytes.fromhex("000000000001000174"),
        bytes.fromhex("0000000000010001ffffffffff"),
        encode_subscription(["t"])[:-1],
        encode_subscription(["t"], None, 1, owned_partitions=OWNED)[:-1],
    ],
)
def test_what_cannot_be_read_is_refused(data: bytes):
    read = decode_subscription(data)
    assert isinstance(read, Malformed)
    assert read.message


def test_no_bytes_are_no_partitions():
    assert decode_assignment(b"") == Assignment(0, {}, None)
    assert isinstance(decode_assignment(b"\x00\x00\x00"), Malformed)
    assert isinstance(decode_assignment(b"\x00"), Malformed)


def test_a_topic_named_twice_has_the_partitions_of_both():
    one = bytes.fromhex("000174" + "00000001" + "00000001")
    two = bytes.fromhex("000174" + "00000001" + "00000002")
    read = decode_assignment(bytes.fromhex("0000" + "00000002") + one + two + b"\xff\xff\xff\xff")
    assert read == Assignment(0, {"t": (1, 2)}, None)
