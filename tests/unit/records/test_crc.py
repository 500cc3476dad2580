from __future__ import annotations

from ottla.records.crc import crc32c


def test_the_check_value_of_the_catalogue_of_crcs():
    assert crc32c(b"123456789") == 0xE3069283


def test_any_buffer_is_read_in_place():
    buffer = bytearray(b"x123456789y")
    assert crc32c(memoryview(buffer)[1:-1]) == 0xE3069283
    assert crc32c(b"") == 0
