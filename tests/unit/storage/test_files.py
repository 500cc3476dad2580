from __future__ import annotations

import pytest

from ottla.env.disk import Disk, DiskError
from ottla.storage.files import OpenFiles, SegmentFile, offset_file_name, offsets_of


def test_names() -> None:
    assert offset_file_name(42, ".log") == "00000000000000000042.log"
    names = [
        "00000000000000000042.log",
        "00000000000000000042.log.deleted",
        "42.log",
        "0000000000000000004x.log",
        "leader-epoch-checkpoint",
    ]
    assert list(offsets_of(names, ".log")) == [42]


def test_the_least_used_handle_is_closed(ground: tuple[Disk, str]) -> None:
    disk, root = ground
    files = OpenFiles(disk, limit=3)
    made = [SegmentFile(files, root, number, ".log") for number in range(5)]
    for number, file in enumerate(made):
        file.get(create=True).append([b"%d" % number])
    assert len(files) == 3
    assert [file.is_open for file in made] == [False, False, True, True, True]
    assert made[0].get().pread(1, 0) == b"0"
    assert sum(file.is_open for file in made) == 3


def test_what_is_pinned_stays_open(ground: tuple[Disk, str]) -> None:
    disk, root = ground
    files = OpenFiles(disk, limit=2)
    made = [SegmentFile(files, root, number, ".log") for number in range(6)]
    for file in made:
        file.get(create=True).append([b"x"])
    handles = [file.pin() for file in made[:4]]
    made[5].get()
    assert all(file.is_open for file in made[:4])
    assert [handle.pread(1, 0) for handle in handles] == [b"x"] * 4
    made[0].drop()
    assert made[0].is_open, "pinned: closed when released"
    made[0].unpin()
    assert not made[0].is_open
    for file in made[1:4]:
        file.unpin()
    for file in made:
        file.drop()
    assert len(files) == 0


def test_a_dropped_file_that_is_pinned_again_stays(ground: tuple[Disk, str]) -> None:
    disk, root = ground
    file = SegmentFile(OpenFiles(disk), root, 1, ".log")
    file.drop()
    file.get(create=True).append([b"x"])
    first = file.pin()
    file.pin()
    file.drop()
    file.unpin()
    assert first.pread(1, 0) == b"x"
    file.unpin()
    assert not file.is_open


def test_deleted_files_are_renamed(ground: tuple[Disk, str]) -> None:
    disk, root = ground
    file = SegmentFile(OpenFiles(disk), root, 1, ".log")
    file.get(create=True)
    assert file.modified_ms() >= 0
    assert file.mark_deleted() == f"{root}/00000000000000000001.log.deleted" == file.path
    assert disk.listdir(root) == ["00000000000000000001.log.deleted"]
    missing = SegmentFile(OpenFiles(disk), root, 2, ".log")
    missing.mark_deleted()
    with pytest.raises(DiskError):
        missing.get()
