"""Filtering of aborted transactions for read_committed consumers (KIP-98). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.records.batch import NO_PRODUCER_ID, BatchHeader
from ottla.records.control import ControlRecordType, control_record_type
from ottla.records.errors import BatchError
from ottla.records.record import decode_batch


def application_batches(headers: Iterable[BatchHeader]) -> list[BatchHeader]:
    """Return the batches of application records, committed or not; a negative count is damage, and is kept."""
    return [header for header in headers if header.records_count and not header.is_control]


def committed_batches(
    buffer: memoryview, headers: Sequence[BatchHeader], aborted: Sequence[tuple[int, int]]
) -> tuple[list[BatchHeader], int]:
    """Leave out the batches of aborted transactions; `aborted` lists them as (first offset, producer id).

    The result ends before a malformed control record; the number is how many of `headers` were looked at.
    Raises BatchError if the first is malformed.
    """
    waiting = sorted(aborted, reverse=True)
    open_producers: set[int] = set()
    kept: list[BatchHeader] = []
    for number, header in enumerate(headers):
        if header.producer_id != NO_PRODUCER_ID:
            while waiting and waiting[-1][0] <= header.last_offset:
                open_producers.add(waiting.pop()[1])
        if header.is_control:
            if header.producer_id in open_producers:
                try:
                    records = decode_batch(buffer, header)
                    aborts = bool(records) and control_record_type(records[0].key) is ControlRecordType.ABORT
                except BatchError:
                    if not number:
                        raise
                    return kept, number
                if aborts:
                    open_producers.discard(header.producer_id)
        elif header.records_count and not (header.is_transactional and header.producer_id in open_producers):
            kept.append(header)
    return kept, len(headers)
