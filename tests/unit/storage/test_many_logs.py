"""What is done for each of many logs, and must not take long for all of them."""

from __future__ import annotations

import pytest

from ottla.env.disk import Disk
from ottla.storage.manager import DELETED_BEFORE_COLLECTION
from support.storage_logs import append
from support.storage_managers import ManagerSetup as Setup

pytestmark = pytest.mark.spec("L9")


@pytest.fixture
def setup(ground: tuple[Disk, str]) -> Setup:
    return Setup(ground[0], f"{ground[1]}/logs")


def test_a_new_log_is_looked_for_in_checkpoints_by_its_whole_name(setup: Setup) -> None:
    manager = setup.opened()
    for topic in ("a.b", "a-b", "b"):
        for partition in (1, 12):
            append(manager.create(topic, None, partition))
    manager.checkpoint()
    [folder] = manager._directories.all
    named = {(topic, number) for topic in ("a.b", "a-b", "axb", "b", "a", ".b") for number in (1, 2, 12, 120)}
    found = {key for key in named if folder.names(key)}
    assert found == {(topic, number) for topic in ("a.b", "a-b", "b") for number in (1, 12)}
    append(manager.create("axb", None, 2))
    manager.checkpoint()
    assert folder.names(("axb", 2))
    manager.delete("axb", 2)
    manager.checkpoint()
    assert not folder.names(("axb", 2))
    manager.close()


def test_the_collector_looks_at_what_deletions_leave_behind(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr("ottla.storage.manager.collect_new", lambda: calls.append(1))
    manager = setup.opened()
    for partition in range(2 * DELETED_BEFORE_COLLECTION + 1):
        manager.create("t", None, partition)
    for partition in range(2 * DELETED_BEFORE_COLLECTION + 1):
        manager.delete("t", partition)
    assert len(calls) == 2
    manager.close()
