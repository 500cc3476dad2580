"""The write stream is cut at every byte; whatever is left is recovered: nothing corrupt served, nothing whole lost."""

from __future__ import annotations

import pytest

from ottla.records.batch import check_crc, split_batches
from ottla.storage.log import AppendRefusal
from ottla.testing.disk_memory import Change, MemoryDisk, journal_bytes, replay
from support.storage_logs import FOLDER_NAME, NOW_MS, append, batch, log_config, new_log, open_log, read_all

ROOT = "/data"
CONFIG = log_config(segment_bytes=420, index_interval_bytes=0)

pytestmark = [pytest.mark.spec("L9"), pytest.mark.slow]


def producing(number: int) -> memoryview:
    return batch(2, size=5, producer_id=6, producer_epoch=0, base_sequence=2 * number)


def written() -> tuple[list[Change], list[tuple[int, int]]]:
    """A run with rolls, a flush, two epochs and a clean close; and (journal bytes, log end) after each append."""
    journal: list[Change] = []
    disk = MemoryDisk(journal=journal)
    disk.mkdirs(ROOT)
    log = new_log(disk, ROOT, CONFIG)
    acknowledged = []
    for number in range(16):
        append(log, producing(number), leader_epoch=number // 5)
        acknowledged.append((journal_bytes(journal), log.log_end_offset))
        if number == 6:
            log.flush()
    log.close()
    return journal, acknowledged


def check(disk: MemoryDisk, acknowledged: int, recovery_point: int) -> None:
    log = open_log(disk, ROOT, CONFIG, recovery_point=recovery_point)
    end = log.log_end_offset
    assert acknowledged <= end <= acknowledged + 2
    assert [record.offset for record in read_all(log)] == list(range(end))
    for segment in log.segments:
        data = disk.read_bytes(segment.log.path)
        assert all(check_crc(data, header) for header in split_batches(data))
    if end:
        assert append(log, producing(end // 2 - 1)).duplicate
        wrong = log.append(producing(end // 2 + 3), leader_epoch=3, now_ms=NOW_MS)
        assert isinstance(wrong, AppendRefusal)
        assert log.leader_epoch == (end - 1) // 10
    append(log, producing(end // 2), leader_epoch=3)
    assert [record.offset for record in read_all(log)] == list(range(end + 2))
    log.close()
    again = open_log(disk, ROOT, CONFIG, clean=True, recovery_point=end + 2)
    assert again.log_end_offset == end + 2


def test_a_stop_at_every_byte() -> None:
    journal, acknowledged = written()
    cuts = journal_bytes(journal)
    assert cuts > 1000
    for cut in range(2, cuts + 1):
        safe = max((end for at, end in acknowledged if at <= cut), default=0)
        flushed = 14 if cut >= acknowledged[6][0] else 0
        disk = replay(journal, cut)
        if disk.exists(f"{ROOT}/{FOLDER_NAME}"):
            check(disk, safe, flushed)


def test_a_second_stop_during_recovery() -> None:
    journal, acknowledged = written()
    for cut in range(acknowledged[2][0], acknowledged[9][0], 41):
        safe = max(end for at, end in acknowledged if at <= cut)
        second: list[Change] = []
        first = replay(journal, cut)
        first.journal = second
        open_log(first, ROOT, CONFIG)
        for stop in range(journal_bytes(second) + 1):
            check(replay(second, stop, replay(journal, cut)), safe, 0)
