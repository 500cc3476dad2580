from __future__ import annotations

import contextlib
import gzip
import os
import struct

import cramjam
import pytest

from ottla.records.compression import XERIAL_HEADER, Compression, compress, decompress
from ottla.records.errors import BatchError

CODECS = list(Compression)[1:]
LIMIT = 1024 * 1024
TEXT = b"the quick brown fox jumps over the lazy dog " * 4000  # more than two xerial blocks


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("data", [b"a", b"ab" * 20, TEXT, os.urandom(200_000)], ids=["one", "few", "text", "noise"])
def test_round_trip(codec, data):
    packed = compress(codec, data)
    assert bytes(decompress(codec, packed, LIMIT)) == data
    assert bytes(decompress(codec, memoryview(bytearray(packed)), len(data))) == data


@pytest.mark.parametrize("codec", CODECS)
def test_text_gets_smaller(codec):
    assert len(compress(codec, memoryview(TEXT))) < len(TEXT) / 5


@pytest.mark.parametrize("codec", list(Compression))
def test_one_byte_over_the_limit_is_refused(codec):
    packed = compress(codec, TEXT)
    with pytest.raises(BatchError, match=f"limit of {len(TEXT) - 1}"):
        decompress(codec, packed, len(TEXT) - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused(codec):
    packed = compress(codec, bytes(64 * 1024 * 1024))
    with pytest.raises(BatchError, match="limit of 1048576"):
        decompress(codec, packed, LIMIT)


@pytest.mark.parametrize("codec", CODECS)
def test_nothing_is_malformed(codec):
    with pytest.raises(BatchError, match="is empty"):
        decompress(codec, b"", LIMIT)


@pytest.mark.parametrize("codec", CODECS)
def test_truncated_data_is_refused_wherever_it_is_cut(codec):
    packed = compress(codec, TEXT)
    for size in [1, 4, 7, 11, 15, 17, 19, 30, len(packed) // 2, len(packed) - 1]:
        with pytest.raises(BatchError):
            decompress(codec, packed[:size], LIMIT)


@pytest.mark.parametrize("codec", CODECS)
def test_garbage_is_refused(codec):
    for garbage in (b"\xff" * 40, b"\x00" * 3, bytes(range(1, 200)), b"\xf0\xff\xff\xff\x0f" + bytes(10)):
        with pytest.raises(BatchError):
            decompress(codec, garbage, LIMIT)


def test_gzip_is_what_others_read_and_write():
    assert gzip.decompress(compress(Compression.GZIP, TEXT, 9)) == TEXT
    assert bytes(decompress(Compression.GZIP, gzip.compress(TEXT), LIMIT)) == TEXT
    two_members = gzip.compress(b"one") + gzip.compress(b"two")
    assert bytes(decompress(Compression.GZIP, two_members, LIMIT)) == b"onetwo"


def test_gzip_with_a_lying_length():
    honest = gzip.compress(TEXT)
    for claim in (0, 2**32 - 1):
        lying = honest[:-4] + struct.pack("<I", claim)
        with contextlib.suppress(BatchError):  # to refuse it is as good as not to believe it
            assert bytes(decompress(Compression.GZIP, lying, LIMIT)) == TEXT


def test_snappy_is_written_in_javas_framing():
    packed = compress(Compression.SNAPPY, TEXT)
    assert packed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    (first,) = struct.unpack_from(">i", packed, 16)
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + first])) == TEXT[: 32 * 1024]


def test_snappy_is_read_bare_and_concatenated():
    bare = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(Compression.SNAPPY, bare, LIMIT) == TEXT
    twice = compress(Compression.SNAPPY, b"one") + compress(Compression.SNAPPY, b"two")
    assert decompress(Compression.SNAPPY, twice, LIMIT) == b"onetwo"


@pytest.mark.parametrize("size", [-1, 0, 2**31 - 1, 3])
def test_snappy_blocks_with_wrong_lengths(size):
    with pytest.raises(BatchError):
        decompress(Compression.SNAPPY, XERIAL_HEADER + struct.pack(">i", size) + b"\x01\x00a"[:2], LIMIT)


def test_snappy_that_claims_more_than_it_can_hold():
    claim = b"\x80\x80\x80\x20" + b"\x00a"  # 64 MiB in two bytes
    with pytest.raises(BatchError, match="claims to hold"):
        decompress(Compression.SNAPPY, claim, 2**30)


def test_lz4_blocks_are_independent_as_java_wants_them():
    packed = compress(Compression.LZ4, TEXT)
    assert packed.startswith(b"\x04\x22\x4d\x18")
    assert packed[4] & 0b0010_0000, "the flag of block independence"


def test_linked_lz4_blocks_are_read():
    linked = bytes(cramjam.lz4.compress(TEXT))
    assert not linked[4] & 0b0010_0000
    assert bytes(decompress(Compression.LZ4, linked, LIMIT)) == TEXT


def test_no_compression_is_no_copy():
    data = bytearray(b"abc")
    view = decompress(Compression.NONE, memoryview(data), 3)
    data[0] = ord("x")
    assert bytes(view) == b"xbc"
