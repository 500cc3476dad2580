from __future__ import annotations

import pytest

from ottla.env.disk import Disk
from ottla.storage.manager import LogManager
from ottla.storage.upkeep import CLOCKS_DIFFER_MS
from support.storage_logs import NOW_MS, append, batch
from support.storage_managers import ManagerSetup as Setup

HOUR_MS = 3_600_000
NANOSECONDS = NOW_MS * 1_000_000


def opened(ground: tuple[Disk, str], **settings: object) -> LogManager:
    return Setup(ground[0], f"{ground[1]}/logs", segment_bytes=len(batch(3)), **settings).opened()


@pytest.mark.spec("L4")
def test_a_timestamp_in_the_future_is_noted_once_for_each_partition(ground: tuple[Disk, str]) -> None:
    manager = opened(ground, retention_ms=HOUR_MS)
    for partition in range(2):
        log = manager.create("clicks", None, partition)
        append(log, batch(3, timestamp=NOW_MS - 2 * HOUR_MS))
        append(log, batch(3, timestamp=NANOSECONDS))
        append(log, batch(3, timestamp=NOW_MS - 2 * HOUR_MS))
    for _ in range(3):
        list(manager.upkeep.apply_retention(NOW_MS))
    assert log.log_start_offset == 3
    assert [note.partition(" ")[0] for note in manager.notes] == ["clicks-0", "clicks-1"]
    (note, _) = manager.notes
    # Records of a batch are a millisecond apart.
    assert f"segment 3 has a record with the timestamp {NANOSECONDS + 2}, in the batch that ends at offset 5" in note
    assert f"retention.ms={HOUR_MS}" in note
    assert "message.timestamp.after.max.ms" in note


def test_a_partition_that_was_deleted_is_noted_again(ground: tuple[Disk, str]) -> None:
    manager = opened(ground, retention_ms=HOUR_MS)
    for _ in range(2):
        append(manager.create("clicks", None, 0), batch(3, timestamp=NANOSECONDS))
        list(manager.upkeep.apply_retention(NOW_MS))
        assert manager.delete("clicks", 0)
        list(manager.upkeep.apply_retention(NOW_MS))
    assert len(manager.notes) == 2


@pytest.mark.parametrize(
    ("settings", "timestamp"),
    [
        ({"retention_ms": HOUR_MS}, NOW_MS + CLOCKS_DIFFER_MS - 2),
        ({"retention_ms": -1}, NANOSECONDS),
        ({"retention_ms": HOUR_MS, "cleanup_policy": "compact"}, NANOSECONDS),
    ],
)
def test_what_keeps_nothing_is_not_noted(ground: tuple[Disk, str], settings: dict[str, object], timestamp: int) -> None:
    manager = opened(ground, **settings)
    append(manager.create("clicks", None, 0), batch(3, timestamp=timestamp))
    list(manager.upkeep.apply_retention(NOW_MS))
    assert manager.notes == []
