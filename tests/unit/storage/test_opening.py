"""What a start finds in log directories: those that cannot be used, and index files that are made anew."""

from __future__ import annotations

import errno

import pytest

from ottla.env.disk import Disk
from ottla.testing.disk_faulty import FaultyDisk
from ottla.testing.disk_memory import MemoryDisk
from support.storage_logs import append
from support.storage_managers import ManagerSetup as Setup


@pytest.fixture
def setup(ground: tuple[Disk, str]) -> Setup:
    return Setup(ground[0], f"{ground[1]}/logs")


@pytest.mark.parametrize("is_killed", [True, False])
def test_index_files_that_are_made_anew_are_noted_in_one_line(setup: Setup, is_killed: bool) -> None:
    manager = setup.opened()
    for partition in range(20):
        append(manager.create("orders", None, partition))
    manager.checkpoints.write()
    manager.close()
    folder = setup.folders[0]
    for partition in range(20):
        setup.disk.remove(f"{folder}/orders-{partition}/00000000000000000000.timeindex")
    if is_killed:
        setup.disk.remove(f"{folder}/.kafka_cleanshutdown")
    again = setup.opened()
    (note,) = again.notes
    assert f"{folder}/orders-0/00000000000000000000.timeindex" in note
    assert "and 17 more" in note
    assert ("usual after a broker was killed" in note) is is_killed
    again.close()


@pytest.mark.spec("L8")
@pytest.mark.parametrize(
    ("number", "cure"),
    [
        (errno.EIO, "Repair the disk"),
        (errno.EACCES, "Give the user of this process the right to read and write there"),
        (errno.EROFS, "Mount the volume for writing"),
        (errno.ENOSPC, "Make room on the disk"),
        (errno.EMFILE, "Raise the limit of open files (ulimit -n)"),
    ],
)
def test_without_any_directory_there_is_no_start(number: int, cure: str) -> None:
    disk = FaultyDisk(MemoryDisk())
    disk.fail("open", error=number)
    refusal = Setup(disk, "/one", "/two").manager().open()
    assert refusal is not None
    assert "none of the specified log dirs from /one, /two" in refusal.message
    assert f". {cure}, or choose another directory for the log (log.dirs)" in refusal.message


def test_one_directory_of_several_without_the_right_to_read_it_is_noted_with_what_helps() -> None:
    disk = FaultyDisk(MemoryDisk())
    disk.fail("*", "/two*", error=errno.EACCES)
    manager = Setup(disk, "/one", "/two").opened()
    assert any("Give the user of this process the right" in note for note in manager.notes)
    manager.close()
