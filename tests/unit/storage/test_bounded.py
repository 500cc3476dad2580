"""How far a batch may expand where the log looks into it."""

from __future__ import annotations

import pytest

from ottla.records.batch import BatchHeader, parse_batch_header
from ottla.records.compression import Compression
from ottla.records.errors import BatchError
from ottla.records.record import Record, encode_batch
from ottla.storage import bounded
from ottla.storage.bounded import decode_bounded


def batch_of(count: int, value: bytes, compression: Compression = Compression.ZSTD) -> tuple[bytes, BatchHeader]:
    records = [Record(at, 1_700_000_000_000, None, value, ()) for at in range(count)]
    data = encode_batch(records, compression=compression)
    return data, parse_batch_header(data)


def test_usual_batches_are_decoded() -> None:
    data, header = batch_of(1000, b"x" * 1000)
    assert [record.offset for record in decode_bounded(data, header)] == list(range(1000))


def test_records_beyond_measure_are_refused_before_they_are_expanded() -> None:
    data, header = batch_of(1, b"x")
    header.records_count = bounded.ALWAYS_ALLOWED_RECORDS + 1
    with pytest.raises(BatchError, match=r"200001 records in a batch of \d+ bytes, more than 200000"):
        decode_bounded(data, header)


def test_bytes_beyond_measure_are_refused() -> None:
    data, header = batch_of(1, bytes(bounded.ALWAYS_ALLOWED_BYTES + 1))
    assert len(data) < 10_000
    with pytest.raises(BatchError, match="beyond the limit"):
        decode_bounded(data, header)


def test_a_large_batch_may_hold_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was sent in full was no bomb."""
    monkeypatch.setattr(bounded, "ALWAYS_ALLOWED_RECORDS", 10)
    monkeypatch.setattr(bounded, "ALWAYS_ALLOWED_BYTES", 10)
    data, header = batch_of(100, b"x" * 10, Compression.NONE)
    assert len(decode_bounded(data, header)) == 100
