"""Reads that are refused rather than waited for."""

from __future__ import annotations

import threading

import pytest

from ottla.env.warmth import READ_AHEAD_BYTES, ColdRange, Range, bring, pread, without_waiting
from ottla.testing.disk_memory import MemoryDisk, MemoryFile

pytestmark = pytest.mark.spec("L6")


class ColdFile:
    """A file that is cold until it was read."""

    def __init__(self, file: MemoryFile) -> None:
        self.path = file.path
        self.warm: bool | None = False
        self._file = file

    def is_warm(self, position: int, length: int) -> bool | None:
        return self.warm

    def pread(self, length: int, position: int) -> bytes:
        return self._file.pread(length, position)


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.mkdirs("/d")
    disk.open("/d/f", create=True).append([b"0123456789"])
    return disk


def test_outside_it_reads_as_ever(disk: MemoryDisk) -> None:
    assert pread(ColdFile(disk.open("/d/f")), 3, 2) == b"234"  # type: ignore[arg-type]


def test_what_is_cold_is_named(disk: MemoryDisk) -> None:
    file = ColdFile(disk.open("/d/f"))
    got: list[bytes] = []
    assert without_waiting(lambda: got.append(pread(file, 3, 2))) == [Range("/d/f", 2, 3)]  # type: ignore[arg-type]
    assert got == []
    for warm in (True, None):
        file.warm = warm
        assert without_waiting(lambda: got.append(pread(file, 3, 2))) == ()  # type: ignore[arg-type]
    assert got == [b"234", b"234"], "where the system cannot tell, it is read"


def test_other_threads_may_wait(disk: MemoryDisk) -> None:
    file = ColdFile(disk.open("/d/f"))
    got: list[bytes] = []

    def work() -> None:
        thread = threading.Thread(target=lambda: got.append(pread(file, 1, 0)))  # type: ignore[arg-type]
        thread.start()
        thread.join()

    assert without_waiting(work) == ()
    assert got == [b"0"]


def test_it_ends_with_the_work(disk: MemoryDisk) -> None:
    file = ColdFile(disk.open("/d/f"))

    def fails() -> None:
        raise ValueError

    with pytest.raises(ValueError):
        without_waiting(fails)

    def within() -> None:
        assert without_waiting(lambda: None) == ()
        pread(file, 1, 0)  # type: ignore[arg-type]

    assert without_waiting(within) == [Range("/d/f", 0, 1)], "the inner one ends, the outer goes on"
    assert pread(file, 1, 0) == b"0"  # type: ignore[arg-type]


def test_what_is_gone_is_not_brought(disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, found = disk.open, []
    monkeypatch.setattr(disk, "open", lambda path: found.append(opened(path)) or found[-1])
    bring(disk, [Range("/d/gone", 0, 1), Range("/d/f", 0, READ_AHEAD_BYTES)])
    assert len(found) == 1, "the other one"


def test_several_ranges_are_one_refusal() -> None:
    assert str(ColdRange([Range("a", 0, 1), Range("b", 0, 1)])) == "2 ranges are not in the page cache"
