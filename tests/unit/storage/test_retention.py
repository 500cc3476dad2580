from __future__ import annotations

import pytest

from ottla.env.disk import Disk
from ottla.env.warmth import without_waiting
from ottla.storage.log import PartitionLog
from ottla.storage.retention import confirm_expired, delete_old_segments
from ottla.storage.truncation import delete_records
from support.storage_logs import NOW_MS, append, batch, log_config, new_log, open_log, read_all

SIZE = len(batch(3))
HOUR_MS = 3_600_000


def filled(ground: tuple[Disk, str], **settings: object) -> PartitionLog:
    """Ten segments of one batch each, one an hour, the last one now."""
    log = new_log(*ground, log_config(segment_bytes=SIZE, **settings))
    for number in range(10):
        append(log, batch(3, timestamp=NOW_MS - (9 - number) * HOUR_MS))
    assert len(log.segments) == 10
    return log


@pytest.mark.spec("L4")
def test_by_time(ground: tuple[Disk, str]) -> None:
    disk, _ = ground
    log = filled(ground, retention_ms=5 * HOUR_MS)
    renamed = delete_old_segments(log, NOW_MS + 2)
    assert (log.log_start_offset, len(log.segments)) == (12, 6)
    assert len(renamed) == 4 * 3 + 3, "three files each, and the snapshots of all but the first"
    assert all(path.endswith(".deleted") and disk.exists(path) for path in renamed)
    assert [record.offset for record in read_all(log)] == list(range(12, 30))
    assert delete_old_segments(log, NOW_MS + 2) == []


@pytest.mark.spec("L4")
def test_a_damaged_time_index_deletes_nothing(ground: tuple[Disk, str]) -> None:
    disk, root = ground
    log = filled(ground, retention_ms=5 * HOUR_MS, index_interval_bytes=0)
    log.close()
    for segment in log.segments[4:]:
        path = segment.time_index.file.path
        data = bytearray(disk.read_bytes(path))
        assert len(data) == 12
        data[2] ^= 1
        disk.write_atomic(path, bytes(data))
    again = open_log(disk, root, log.config, clean=True, recovery_point=30)
    assert again.segments[5].largest_timestamp_so_far() < NOW_MS - 1000 * HOUR_MS
    delete_old_segments(again, NOW_MS + 2)
    assert (again.log_start_offset, len(again.segments)) == (12, 6)


def test_half_a_look_at_cold_batches_does_not_report_how_old_they_are(
    ground: tuple[Disk, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = new_log(*ground, log_config(retention_ms=HOUR_MS))
    append(log, batch(3, timestamp=NOW_MS - 9 * HOUR_MS))
    append(log, batch(3, timestamp=NOW_MS))
    segment = log.segments[0]
    # As a damaged time index has it.
    segment.max_timestamp, segment.max_timestamp_offset = NOW_MS - 5 * HOUR_MS, 2
    cold_from = SIZE
    monkeypatch.setattr(type(segment.log.get()), "is_warm", lambda _, position, length: position < cold_from)
    (cold,) = without_waiting(lambda: confirm_expired(log, NOW_MS + 2))
    cold_from = 2 * SIZE
    assert not without_waiting(lambda: confirm_expired(log, NOW_MS + 2))
    delete_old_segments(log, NOW_MS + 2)
    assert log.log_start_offset == 0
    assert (cold.position, cold.length) == (SIZE, SIZE), "all that is left of it, in one go"


def test_all_cold_segments_are_asked_for_together(ground: tuple[Disk, str], monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(ground, retention_ms=5 * HOUR_MS)
    monkeypatch.setattr(type(log.segments[0].log.get()), "is_warm", lambda *_: False)
    assert len(without_waiting(lambda: confirm_expired(log, NOW_MS + 2))) == 4
    assert log.log_start_offset == 0


@pytest.mark.spec("L4")
def test_by_time_the_last_segment_is_closed_before_it_goes(ground: tuple[Disk, str]) -> None:
    log = filled(ground, retention_ms=HOUR_MS)
    delete_old_segments(log, NOW_MS + 2 * HOUR_MS)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes, len(log.segments)) == (30, 30, 0, 1)
    append(log)
    assert [record.offset for record in read_all(log)] == [30, 31, 32]
    empty = new_log(ground[0], ground[1] + "/other", log_config(retention_ms=1))
    assert delete_old_segments(empty, NOW_MS * 2) == []
    assert len(empty.segments) == 1


@pytest.mark.spec("L4")
@pytest.mark.parametrize(("limit", "left"), [(10 * SIZE, 10), (10 * SIZE - 1, 10), (9 * SIZE, 9), (SIZE, 1), (0, 0)])
def test_by_size(ground: tuple[Disk, str], limit: int, left: int) -> None:
    log = filled(ground, retention_bytes=limit, retention_ms=-1)
    delete_old_segments(log, NOW_MS)
    assert log.size_bytes == left * SIZE
    assert log.log_start_offset == 30 - 3 * left


def test_without_limits_everything_stays(ground: tuple[Disk, str]) -> None:
    log = filled(ground, retention_bytes=-1, retention_ms=-1)
    assert delete_old_segments(log, NOW_MS * 2) == []
    compacted = filled((ground[0], ground[1] + "/other"), cleanup_policy="compact", retention_ms=1, retention_bytes=1)
    assert delete_old_segments(compacted, NOW_MS * 2) == []


@pytest.mark.spec("L4")
def test_what_lies_below_the_start(ground: tuple[Disk, str]) -> None:
    log = filled(ground, retention_ms=-1)
    delete_records(log, 10)
    delete_old_segments(log, NOW_MS)
    assert [segment.base_offset for segment in log.segments] == list(range(9, 30, 3))
    assert log.log_start_offset == 10
    log.config = log_config(cleanup_policy="compact")
    log.raise_log_start(30)
    delete_old_segments(log, NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [27]


def test_what_is_not_replicated_stays(ground: tuple[Disk, str]) -> None:
    log = filled(ground, retention_ms=HOUR_MS)
    log.update_high_watermark(7)
    delete_old_segments(log, NOW_MS * 2)
    assert log.log_start_offset == 6
