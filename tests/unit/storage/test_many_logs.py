"""What is done for each of many logs, and must not take long for all of them."""

from __future__ import annotations

from typing import NoReturn

import pytest

from ottla.env.disk import Disk, DiskError
from ottla.storage.checkpointing import LogCheckpoints
from ottla.storage.manager import DELETED_BEFORE_COLLECTION
from ottla.storage.truncation import delete_records
from ottla.testing.disk_faulty import FaultyDisk
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
    manager.checkpoints.write()
    [folder] = manager.directories.all
    named = {(topic, number) for topic in ("a.b", "a-b", "axb", "b", "a", ".b") for number in (1, 2, 12, 120)}
    found = {key for key in named if folder.names(key)}
    assert found == {(topic, number) for topic in ("a.b", "a-b", "b") for number in (1, 12)}
    append(manager.create("axb", None, 2))
    manager.checkpoints.write()
    assert folder.names(("axb", 2))
    manager.delete("axb", 2)
    manager.checkpoints.write()
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


def lines(setup: Setup, name: str = "recovery-point-offset-checkpoint") -> list[bytes]:
    return setup.read(name).splitlines()[2:]


def test_deleted_logs_leave_the_checkpoints_with_the_first_that_is_made_again(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The offsets of all others are not taken anew for it, and the others are not written for again."""
    manager = setup.opened()
    for topic in ("a", "b", "stays"):
        for partition in (0, 1, 2):
            append(manager.create(topic, None, partition))
    delete_records(manager.create("b", None, 0), 2)
    manager.checkpoints.write()
    for topic in ("a", "b"):
        for partition in (0, 1, 2):
            manager.delete(topic, partition)

    def taken_anew(*_: object) -> NoReturn:
        raise AssertionError("the offsets of all logs are taken")

    monkeypatch.setattr(LogCheckpoints, "_entries", taken_anew)
    manager.create("b", None, 0)
    assert lines(setup) == [b"stays 0 0", b"stays 1 0", b"stays 2 0"]
    assert setup.read("recovery-point-offset-checkpoint").startswith(b"0\n3\n")
    assert setup.read("log-start-offset-checkpoint") == b"0\n0\n"
    number = manager.directories.all[0]._number
    for topic in ("a", "b"):
        for partition in (0, 1, 2):
            manager.create(topic, None, partition)
    assert manager.directories.all[0]._number == number
    monkeypatch.undo()
    manager.checkpoints.write()
    assert len(lines(setup)) == 9
    manager.close()


def test_what_was_in_checkpoints_before_the_start_goes_with_the_first_log_that_is_made(setup: Setup) -> None:
    manager = setup.opened()
    for topic in ("a", "b"):
        append(manager.create(topic, None, 0))
    manager.checkpoints.write()
    for topic in ("a", "b"):
        manager.delete(topic, 0)
    for folder in manager.directories.all:  # the process is gone
        folder.release()
    again = setup.opened()
    assert {line.split()[0] for line in lines(setup)} == {b"a", b"b"}
    again.create("a", None, 0)
    assert not lines(setup)
    again.close()


def test_a_checkpoint_that_could_not_be_written_is_no_ground_for_the_next(ground: tuple[Disk, str]) -> None:
    disk = FaultyDisk(ground[0])
    setup = Setup(disk, f"{ground[1]}/logs")
    manager = setup.opened()
    append(manager.create("a", None, 0))
    manager.checkpoints.write()
    manager.delete("a", 0)
    [folder] = manager.directories.all
    assert folder.made_checkpoint("recovery-point-offset-checkpoint") is not None
    changed = folder.changed_checkpoint("recovery-point-offset-checkpoint", b"0\n0\n")
    assert changed is not None
    disk.fail("replace", "*checkpoint")
    with pytest.raises(DiskError):
        folder.write_checkpoint(changed)
    assert folder.made_checkpoint("recovery-point-offset-checkpoint") is None
    disk.heal()
    manager.close()


def test_deleted_logs_that_are_too_many_to_be_remembered_leave_with_the_others(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.storage.checkpoints.MOST_DELETED_LOGS", 2)
    manager = setup.opened()
    for partition in range(6):
        append(manager.create("t", None, partition))
    manager.checkpoints.write()
    for partition in range(5):
        manager.delete("t", partition)
    manager.create("t", None, 0)
    assert lines(setup) == [b"t 5 0"]
    manager.checkpoints.write()
    manager.delete("t", 0)
    manager.delete("t", 5)
    monkeypatch.setattr(LogCheckpoints, "_entries", lambda *_: pytest.fail("the offsets of all logs are taken"))
    manager.create("t", None, 0)
    assert not lines(setup)
    monkeypatch.undo()
    manager.close()


def test_a_checkpoint_that_is_being_written_counts(ground: tuple[Disk, str]) -> None:
    """A thread writes one that names a log which was deleted since; it would be believed after a kill."""
    seen: list[bool] = []

    class WatchedDisk(FaultyDisk):
        def write_atomic(self, path: str, data: bytes, sync: bool = True) -> None:
            if data is old:
                assert folder.changed_checkpoint(name, b"0\n0\n") is not None
                seen.append(folder.names(("t", 0)))
            super().write_atomic(path, data, sync)

    name, old = "recovery-point-offset-checkpoint", b"0\n1\nt 0 3\n"
    setup = Setup(WatchedDisk(ground[0]), f"{ground[1]}/logs")
    manager = setup.opened()
    [folder] = manager.directories.all
    checkpoint = folder.changed_checkpoint(name, old)
    assert checkpoint is not None
    folder.write_checkpoint(checkpoint)
    assert seen == [True]
    manager.close()


def test_an_older_checkpoint_is_written_where_the_newer_one_fails(ground: tuple[Disk, str]) -> None:
    disk = FaultyDisk(ground[0])
    setup = Setup(disk, f"{ground[1]}/logs")
    manager = setup.opened()
    [folder] = manager.directories.all
    name = "recovery-point-offset-checkpoint"
    older, newer = (folder.changed_checkpoint(name, data) for data in (b"0\n1\nt 0 3\n", b"0\n1\nt 0 7\n"))
    assert older is not None
    assert newer is not None
    disk.fail("replace", "*checkpoint", times=1)
    with pytest.raises(DiskError):
        folder.write_checkpoint(newer)
    folder.write_checkpoint(older)
    assert lines(setup) == [b"t 0 3"]
    manager.close()


def test_deleted_logs_are_forgotten_when_no_checkpoint_names_them(setup: Setup) -> None:
    manager = setup.opened()
    for partition in range(3):
        append(manager.create("t", None, partition))
    manager.checkpoints.write()
    manager.delete("t", 0)
    manager.delete("t", 1)
    checkpoints = manager.checkpoints
    assert checkpoints._deleted.known() == {b"t 0", b"t 1"}
    steps = checkpoints.write_in_slices("recovery-point-offset-checkpoint")
    next(steps)
    manager.delete("t", 2)
    for _ in steps:
        pass
    [folder] = manager.directories.all
    folder.changed_checkpoint("cleaner-offset-checkpoint", b"0\n1\nt 1 5\n")
    for _ in checkpoints.write_in_slices("log-start-offset-checkpoint"):
        pass
    assert checkpoints._deleted.known() == {b"t 1", b"t 2"}, "in the cleaner's; went after the first was begun"
    manager.close()
