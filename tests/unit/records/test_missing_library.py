from __future__ import annotations

import pytest

from ottla.client.configs import parse_producer_config
from ottla.client.errors import InvalidConfigError
from ottla.records import compression
from ottla.records.compression import Compression, MissingLibrary, compress, decompress
from ottla.records.errors import MissingLibraryError

CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]
TOLD = r"compression needs the package cramjam, .* \(No module named 'cramjam'\); install it"


@pytest.fixture
def missing(monkeypatch):
    monkeypatch.setattr(compression, "cramjam", MissingLibrary("No module named 'cramjam'"))


@pytest.mark.parametrize("codec", CODECS)
def test_whoever_needs_it_is_reported(codec, monkeypatch):
    data = compress(codec, bytes(100))
    monkeypatch.setattr(compression, "cramjam", MissingLibrary("No module named 'cramjam'"))
    with pytest.raises(MissingLibraryError, match=TOLD):
        compress(codec, bytes(100))
    with pytest.raises(MissingLibraryError, match=TOLD):
        decompress(codec, data, 1000)


def test_without_compression_nobody_needs_it(missing):
    assert bytes(decompress(Compression.NONE, compress(Compression.NONE, b"abc"), 1000)) == b"abc"
    assert parse_producer_config({"bootstrap.servers": "b:1"}, {}).compression_type == "none"


def test_a_producer_is_reported_when_it_is_made(missing):
    with pytest.raises(InvalidConfigError, match=rf"compression.type=lz4: {TOLD}"):
        parse_producer_config({"bootstrap.servers": "b:1", "compression.type": "lz4"}, {})
    assert compression.library_problem() is not None
