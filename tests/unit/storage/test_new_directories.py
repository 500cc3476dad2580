"""The topic's id in directories of new logs: `partition.metadata`."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.env.disk import Disk
from support.storage_logs import NOW_MS, append
from support.storage_managers import ManagerSetup as Setup

TOPIC_ID = UUID("c0ffee00-1234-4abc-8def-0123456789ff")


@pytest.mark.spec("L3")
def test_new_directories_get_the_topic_id_within_a_second_some_at_a_time(
    ground: tuple[Disk, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Apache Kafka it does not wait for the first append; an append writes its own before."""
    monkeypatch.setattr("ottla.storage.upkeep.IDENTITIES_AT_ONCE", 4)

    setup = Setup(ground[0], f"{ground[1]}/logs")

    def with_ids() -> list[str]:
        return sorted(log.name for log in manager.logs() if setup.disk.exists(f"{log.directory}/partition.metadata"))

    manager = setup.opened()
    for number in range(7):
        manager.create("t", TOPIC_ID, number)
    manager.create("zookeeper-era", None, 0)
    assert with_ids() == []
    appended = manager.get("t", 6)
    assert appended is not None
    append(appended)
    manager.delete("t", 1)
    list(manager.upkeep.maintain(NOW_MS))
    assert with_ids() == ["t-0", "t-2", "t-3", "t-6"]
    list(manager.upkeep.maintain(NOW_MS + 1_000))
    assert with_ids() == ["t-0", "t-2", "t-3", "t-4", "t-5", "t-6"]
    manager.close()
    again = setup.opened()
    assert {found.topic_id for found in again.found if found.topic == "t"} == {TOPIC_ID}
    again.close()
