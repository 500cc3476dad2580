from __future__ import annotations

import pytest

from ottla.records.errors import BatchError
from ottla.records.varint import encode_varint, read_varint


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (-64, "7f"), (64, "8001"), (2**31 - 1, "feffffff0f"), (-(2**31), "ffffffff0f")],
)
def test_known_values(value, encoded):
    assert encode_varint(value).hex() == encoded
    number, end = read_varint(bytes.fromhex(encoded), 0)
    assert ((number >> 1) ^ -(number & 1), end) == (value, len(encoded) // 2)


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63)])
def test_longest_longs(value):
    assert len(encode_varint(value)) == 10


def test_too_long():
    with pytest.raises(BatchError, match="longer than 5 bytes"):
        read_varint(b"\x80" * 5 + b"\x00", 0)


def test_cut_off():
    with pytest.raises(IndexError):
        read_varint(b"\x80", 0)
