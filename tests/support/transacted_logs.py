"""Partition directories with transactions, on the machine's disk, and which of their records are committed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ottla.env.disk import RealDisk
from ottla.records.batch import split_batches
from ottla.records.compression import Compression
from ottla.records.control import ControlRecordType, end_transaction_record
from ottla.records.record import Record, decode_batch
from ottla.storage.checkpoints import HIGH_WATERMARK_FILE, LOG_START_FILE, encode_offsets
from ottla.storage.log import COORDINATOR, AppendInfo
from support.compaction import Cleaning
from support.storage_logs import FOLDER_NAME, NOW_MS, TOPIC, committed, log_config, new_log, of_records

#: Small segments with many index entries, which the cleaner takes as soon as they are rolled.
SETTINGS: dict[str, object] = {
    "cleanup_policy": "compact",
    "segment_bytes": 3000,
    "index_interval_bytes": 200,
    "min_cleanable_dirty_ratio": 0,
    "delete_retention_ms": 0,
}


class TransactedLog:
    """A log in the log directory `root`, led by its only replica, and what a read_committed consumer gets of it."""

    def __init__(self, root: Path, **settings: object) -> None:
        self.root = root
        self.directory = root / FOLDER_NAME
        self.log = new_log(RealDisk(), str(root), log_config(**(SETTINGS | settings)))
        self._cleaning = Cleaning(RealDisk(), self.log)
        self._sequences: dict[int, int] = {}
        #: Offsets that open transactions have written, by producer id.
        self._open: dict[int, list[int]] = {}
        self._aborted: set[int] = set()

    def write(
        self,
        count: int = 3,
        *,
        producer_id: int = -1,
        keys: Sequence[bytes] = (),
        size: int = 20,
        compression: Compression = Compression.NONE,
    ) -> int:
        """Append a batch, in a transaction where a producer is named; its first offset."""
        first = self.log.log_end_offset
        records = [
            Record(
                0, NOW_MS + first + n, keys[n] if keys else b"k%d" % (first + n), b"v%d-" % (first + n) + bytes(size)
            )
            for n in range(len(keys) or count)
        ]
        if producer_id < 0:
            self._append(of_records(records, compression=compression))
            return first
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + len(records)
        self._append(
            of_records(
                records,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=True,
                compression=compression,
            )
        )
        self._open.setdefault(producer_id, []).extend(range(first, first + len(records)))
        return first

    def end(self, producer_id: int, *, commit: bool) -> int:
        """Append the marker that ends the producer's transaction; its offset."""
        kind = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
        key, value = end_transaction_record(kind, 0)
        marker = of_records(
            [Record(0, NOW_MS, key, value)],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=-1,
            is_transactional=True,
            is_control=True,
        )
        at = self._append(marker)
        written = self._open.pop(producer_id, [])
        if not commit:
            self._aborted.update(written)
        return at

    def _append(self, buf: memoryview) -> int:
        done = self.log.append(buf, leader_epoch=0, now_ms=NOW_MS, origin=COORDINATOR)
        assert isinstance(done, AppendInfo), done
        committed(self.log)
        return done.first_offset

    @property
    def open_producers(self) -> list[int]:
        """Those with an open transaction."""
        return sorted(self._open)

    def clean(self) -> None:
        """Compact what is due."""
        self.log.flush()
        self._cleaning.clean()

    def expected(
        self, end: int | None = None, start: int | None = None
    ) -> list[tuple[int, bytes | None, bytes | None]]:
        """Offset, key and value of the committed records, by default from the log's start to the stable end."""
        stop = self.log.last_stable_offset if end is None else end
        first = self.log.log_start_offset if start is None else start
        return [
            (record.offset, record.key, record.value)
            for data in self.log.read_batches(self.log.log_start_offset)
            for header in split_batches(data)
            if not header.is_control
            for record in decode_batch(data, header)
            if first <= record.offset < stop and record.offset not in self._aborted
        ]

    def checkpoint(self, high_watermark: int | None = None) -> None:
        """Write everything to the files, and the checkpoints as the broker does."""
        self.log.flush()
        at = self.log.high_watermark if high_watermark is None else high_watermark
        key = (TOPIC, 0)
        (self.root / HIGH_WATERMARK_FILE).write_bytes(encode_offsets({key: at}))
        (self.root / LOG_START_FILE).write_bytes(encode_offsets({key: self.log.log_start_offset}))
