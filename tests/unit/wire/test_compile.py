"""The compiler on declarations that no message of Kafka happens to have."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from ottla.testing import reference_codec as reference
from ottla.wire.codec import WireError, decode, encode
from ottla.wire.compile import read_tagged_fields, smallest_size, varint
from ottla.wire.framing import TAGGED_FIELDS_LIMIT
from ottla.wire.messages.fetch import FetchPartition
from ottla.wire.schema import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT32,
    STRING,
    UINT16,
    UUID,
    Message,
    Struct,
    array,
    field,
    message,
    struct,
)


@struct
class Deep(Struct):
    """Something with a tag inside something with a tag."""

    inside: int = field(INT8)
    tagged: str | None = field(STRING, nullable_since=0, default=None, tag=3)


@struct
class Middle(Struct):
    """In between."""

    deep: Deep | None = field(Deep, nullable_since=0, default=None)
    plain: Deep = field(Deep)


@message(versions=(0, 1), flexible_since=1)
class Odd(Message):
    """Kinds in places where Kafka has none."""

    ratio: float = field(FLOAT64)
    port: int = field(UINT16)
    ids: list[uuid.UUID] = field(array(UUID))
    flags: list[bool] | None = field(array(BOOL), nullable_since=0)
    blobs: list[bytes] = field(array(BYTES))
    middle: Middle = field(Middle)
    maybe: Middle | None = field(Middle, since=1, nullable_since=1, default=None, tag=0)
    numbers: list[int] | None = field(array(INT32), since=1, nullable_since=1, tag=200)


SAMPLES: list[dict[str, Any]] = [
    {},
    {"ratio": 0.25, "port": 65535, "ids": [uuid.UUID(int=1), uuid.UUID(int=2**127)], "flags": [True, False]},
    {"flags": None, "blobs": [b"", b"x" * 200]},
    {"middle": Middle(deep=Deep(inside=-1), plain=Deep(inside=5))},
]

TAGGED: list[dict[str, Any]] = [
    {"middle": Middle(deep=Deep(inside=-1, tagged="t" * 130))},
    {"maybe": Middle(deep=Deep(tagged="inner"), plain=Deep(inside=1))},
    {"numbers": None},
    {"numbers": [1, -1] * 100, "maybe": Middle()},
]


@pytest.mark.parametrize(("given", "version"), [(s, v) for s in SAMPLES for v in (0, 1)] + [(s, 1) for s in TAGGED])
def test_agrees_with_the_reference(given: dict[str, Any], version: int) -> None:
    odd = Odd(**given)
    encoded = encode(odd, version)
    assert encoded == reference.encode(odd, version)
    assert decode(Odd, encoded, version) == odd == reference.decode_prefix(Odd, encoded, version)[0]
    for size in range(len(encoded)):
        with pytest.raises(WireError):
            decode(Odd, encoded[:size], version)


def test_tagged_field_in_a_version_without_tags() -> None:
    for wrong in (Odd(numbers=None), Odd(maybe=Middle()), Odd(middle=Middle(plain=Deep(tagged="x")))):
        if wrong.middle.plain.tagged is None:
            with pytest.raises(WireError, match="cannot be expressed in version 0"):
                encode(wrong, 0)
            with pytest.raises(WireError, match="cannot be expressed in version 0"):
                reference.encode(wrong, 0)


def test_smallest_sizes() -> None:
    assert smallest_size(INT32, 0, False) == 4
    assert smallest_size(STRING, 0, False) == 2
    assert smallest_size(BYTES, 0, False) == 4
    assert smallest_size(STRING, 0, True) == 1
    assert smallest_size(array(INT32), 0, True) == 1
    assert smallest_size(FetchPartition, 0, False) == 4 + 8 + 4
    assert smallest_size(FetchPartition, 12, True) == 4 + 4 + 8 + 4 + 8 + 4 + 1
    assert smallest_size(Middle, 1, True) == 1 + 2 + 1


def test_very_many_tagged_fields_are_refused_before_they_are_kept() -> None:
    def section(count: int) -> bytes:
        return varint(count) + b"".join(varint(tag) + varint(0) for tag in range(count))

    found, end = read_tagged_fields(section(TAGGED_FIELDS_LIMIT), 0)
    assert (len(found), end) == (TAGGED_FIELDS_LIMIT, len(section(TAGGED_FIELDS_LIMIT)))
    with pytest.raises(WireError, match=f"{TAGGED_FIELDS_LIMIT + 1} tagged fields in one place"):
        read_tagged_fields(section(TAGGED_FIELDS_LIMIT + 1), 0)
