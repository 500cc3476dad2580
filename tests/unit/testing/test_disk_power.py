from __future__ import annotations

import random

from ottla.testing.disk_memory import Change, MemoryDisk, journal_bytes
from ottla.testing.disk_power import PowerLoss, every_moment, nothing_more


def recorded() -> tuple[MemoryDisk, list[Change]]:
    journal: list[Change] = []
    disk = MemoryDisk(journal=journal)
    disk.mkdirs("/a/b")
    return disk, journal


def left(journal: list[Change]) -> MemoryDisk:
    power = PowerLoss()
    for change in journal:
        power.take(change)
    return power.survivor(nothing_more)


def outcomes(journal: list[Change], path: str, tries: int = 300) -> set[bytes | None]:
    power = PowerLoss()
    for change in journal:
        power.take(change)
    found: set[bytes | None] = set()
    for seed in range(tries):
        disk = power.survivor(random.Random(seed).randrange)
        found.add(disk.read_bytes(path) if disk.exists(path) else None)
    return found


def test_bytes_are_sure_when_their_file_and_all_names_above_were_forced() -> None:
    disk, journal = recorded()
    file = disk.open("/a/b/f", create=True)
    file.append([b"abc"])
    file.flush()
    assert not left(journal).exists("/a")
    disk.fsync_dir("/a/b")
    disk.fsync_dir("/a")
    assert not left(journal).exists("/a")
    disk.fsync_dir("/")
    assert left(journal).read_bytes("/a/b/f") == b"abc"
    file.append([b"de"])
    file.truncate(1)
    assert left(journal).read_bytes("/a/b/f") == b"abc"
    file.flush()
    assert left(journal).read_bytes("/a/b/f") == b"a"


def test_what_was_not_forced_may_be_torn_or_zeros() -> None:
    disk, journal = recorded()
    for path in ("/", "/a"):
        disk.fsync_dir(path)
    file = disk.open("/a/b/f", create=True)
    disk.fsync_dir("/a/b")
    file.append([b"ab"])
    file.append([b"c"])
    assert outcomes(journal, "/a/b/f") == {b"", b"a", b"ab", b"\0\0", b"abc", b"ab\0"}
    file.truncate(1)
    assert b"a" in outcomes(journal, "/a/b/f")


def test_names_change_in_their_order_or_not_at_all() -> None:
    disk, journal = recorded()
    for path in ("/", "/a"):
        disk.fsync_dir(path)
    disk.write_atomic("/a/b/f", b"old")
    assert left(journal).read_bytes("/a/b/f") == b"old"
    disk.write_atomic("/a/b/f", b"new", sync=False)
    assert outcomes(journal, "/a/b/f") == {b"old", b"", b"n", b"ne", b"new", b"\0\0\0"}
    disk.rename("/a/b/f", "/a/b/g")
    assert {b"old", None} <= outcomes(journal, "/a/b/f")
    disk.remove("/a/b/g")
    disk.fsync_dir("/a/b")
    assert left(journal).listdir("/a/b") == []
    disk.remove_tree("/a/b")
    assert outcomes(journal, "/a/b/f") == {None}


def test_a_file_may_change_its_directory_and_vanish_on_the_way() -> None:
    disk, journal = recorded()
    disk.mkdirs("/a/c")
    for path in ("/", "/a"):
        disk.fsync_dir(path)
    disk.write_atomic("/a/b/f", b"x")
    disk.rename("/a/b/f", "/a/c/f")
    assert outcomes(journal, "/a/c/f") == {None, b"x"}
    assert outcomes(journal, "/a/b/f") == {None, b"x"}


def test_every_moment_is_a_byte_of_the_journal() -> None:
    disk, journal = recorded()
    for path in ("/", "/a"):
        disk.fsync_dir(path)
    file = disk.open("/a/b/f", create=True)
    disk.fsync_dir("/a/b")
    file.append([b"abc"])
    file.append([b"de"])
    sizes = {}
    for count, power in every_moment(journal):
        disk = power.survivor(lambda possibilities: possibilities - 1)
        sizes[count] = len(disk.read_bytes("/a/b/f")) if disk.exists("/a/b/f") else -1
    assert list(sizes) == list(range(1, journal_bytes(journal) + 1))
    assert list(sizes.values()) == [-1, -1, -1, 0, 0, 1, 2, 3, 4, 5]
    assert [count for count, _ in every_moment(journal, {3, 7})] == [3, 7]
