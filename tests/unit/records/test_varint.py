from __future__ import annotations

import pytest

from ottla.records.errors import BatchError
from ottla.records.varint import encode_varint, read_varint, read_varlong


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
    encoded = encode_varint(value)
    assert len(encoded) == 10
    number, end = read_varlong(b"x" + encoded, 1)
    assert ((number >> 1) ^ -(number & 1), end) == (value, 11)


def test_too_long():
    with pytest.raises(BatchError, match="longer than 5 bytes"):
        read_varint(b"\x80" * 5 + b"\x00", 0)
    with pytest.raises(BatchError, match="longer than 10 bytes"):
        read_varlong(b"\x80" * 10 + b"\x00", 0)


def test_cut_off():
    with pytest.raises(IndexError):
        read_varint(b"\x80", 0)
