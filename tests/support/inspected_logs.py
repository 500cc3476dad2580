"""Log folders for the tests of `ottla log`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ottla.env.disk import RealDisk
from ottla.records.compression import Compression
from ottla.records.control import ControlRecordType, end_transaction_record
from ottla.records.record import Record, encode_batch
from support.storage_logs import NOW_MS, append, batch, log_config, new_log


def fill(root: Path, batches: int = 60) -> Path:
    """A log folder with one partition: segments, indexes, snapshots, epochs, and the folder's own files."""
    log = new_log(RealDisk(), str(root), log_config(segment_bytes=3_000, index_interval_bytes=300))
    sequence = 0
    for number in range(batches):
        codec = list(Compression)[number % 5]
        fields: dict[str, Any] = (
            {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence} if number % 3 == 0 else {}
        )
        sequence += 2 if fields else 0
        buf = batch(2, size=60, timestamp=NOW_MS + 50 * number, compression=codec, **fields)
        append(log, buf, leader_epoch=number // 25)
    end = log.log_end_offset
    log.close()
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (root / name).write_text(f"0\n1\norders 0 {end}\n")
    (root / "log-start-offset-checkpoint").write_text("0\n0\n")
    (root / "meta.properties").write_text("#\nversion=0\nbroker.id=1\ncluster.id=abcdefghijklmnopqrstuA\n")
    (Path(log.directory) / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    return Path(log.directory)


def starts(data: bytes | bytearray) -> list[int]:
    """Where the batches begin."""
    found, at = [], 0
    while at < len(data):
        found.append(at)
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return found


def transactional(path: Path) -> list[tuple[int, int, int]]:
    """A log with transactions; returns (producer, first offset, marker's offset) of those aborted."""
    data, offset, aborted = b"", 0, []
    first: dict[int, int] = {}
    for step, (producer, kind) in enumerate(
        [(1, ""), (2, ""), (1, "abort"), (2, ""), (2, "commit"), (3, ""), (3, "abort")]
    ):
        fields: dict[str, Any] = {
            "base_offset": offset,
            "producer_id": producer,
            "producer_epoch": 0,
            "is_transactional": True,
        }
        if not kind:
            first.setdefault(producer, offset)
            content = [Record(0, NOW_MS + step, b"k", b"v")] * 2
            data += encode_batch(content, **fields, base_sequence=0, leader_epoch=0)
            offset += 2
            continue
        marker = ControlRecordType.ABORT if kind == "abort" else ControlRecordType.COMMIT
        record = Record(0, NOW_MS + step, *end_transaction_record(marker, 0))
        data += encode_batch([record], **fields, is_control=True, leader_epoch=0)
        if kind == "abort":
            aborted.append((producer, first[producer], offset))
        del first[producer]
        offset += 1
    path.write_bytes(data)
    return aborted
