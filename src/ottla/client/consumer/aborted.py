"""Which batches a read_committed consumer leaves out: those of transactions that were aborted (KIP-98). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.records.batch import NO_PRODUCER_ID, BatchHeader
from ottla.records.control import ControlRecordType, control_record_type
from ottla.records.errors import BatchError
from ottla.records.record import decode_batch


def application_batches(headers: Iterable[BatchHeader]) -> list[BatchHeader]:
    """The batches that hold records of applications, committed or not; a negative count is damage, and stays."""
    return [header for header in headers if header.records_count and not header.is_control]


def committed_batches(
    buffer: memoryview, headers: Sequence[BatchHeader], aborted: Sequence[tuple[int, int]]
) -> tuple[list[BatchHeader], int]:
    """Those of them that are not of aborted transactions, each of which `aborted` tells as (first offset, producer id).

    They end before a control record that is malformed; the number says how many of `headers` were looked at.
    BatchError where it is the first.
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
                    is_abort_marker = _is_abort_marker(buffer, header)
                except BatchError:
                    if not number:
                        raise
                    return kept, number
                if is_abort_marker:
                    open_producers.discard(header.producer_id)
        elif header.records_count and not (header.is_transactional and header.producer_id in open_producers):
            kept.append(header)
    return kept, len(headers)


def _is_abort_marker(buffer: memoryview, header: BatchHeader) -> bool:
    records = decode_batch(buffer, header)
    return bool(records) and control_record_type(records[0].key) is ControlRecordType.ABORT
