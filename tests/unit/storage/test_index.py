from __future__ import annotations

import pytest

from ottla.env.disk import Disk, DiskError
from ottla.storage.files import OpenFiles
from ottla.storage.index import OFFSET_ENTRY, SPILL_BYTES, IndexMemory, OffsetIndex, TimeIndex
from ottla.testing.disk_faulty import FaultyDisk
from ottla.testing.disk_memory import MemoryDisk

BASE = 1000


def offset_index(ground: tuple[Disk, str], entries: int = 0, limit_bytes: int = 1 << 20) -> OffsetIndex:
    disk, root = ground
    return OffsetIndex(OpenFiles(disk), IndexMemory(limit_bytes), root, BASE, entries)


def time_index(ground: tuple[Disk, str], entries: int = 0) -> TimeIndex:
    disk, root = ground
    return TimeIndex(OpenFiles(disk), root, BASE, entries)


def lookup(index: OffsetIndex, offset: int) -> int:
    number = index.floor(offset)
    return index.loaded_entry(number)[1] if number >= 0 else 0


def last_position_up_to(index: OffsetIndex, position: int) -> int:
    number = index.floor_of_position(position)
    return index.loaded_entry(number)[1] if number >= 0 else 0


def test_lookups_find_the_last_entry_that_is_not_beyond(ground: tuple[Disk, str]) -> None:
    index = offset_index(ground)
    assert (lookup(index, BASE + 5), last_position_up_to(index, 99)) == (0, 0)
    for number in range(1, 2000):
        index.append(BASE + 10 * number, 100 * number)
        if index.spill_due:
            index.spill()
    assert index.entries == 1999
    for offset, position in (
        (BASE - 1, 0),
        (BASE + 9, 0),
        (BASE + 10, 100),
        (BASE + 19, 100),
        (BASE + 10_000, 100_000),
        (BASE + 99_999, 199_900),
    ):
        assert lookup(index, offset) == position
    for limit, position in ((99, 0), (100, 100), (250, 200), (10**8, 199_900)):
        assert last_position_up_to(index, limit) == position
    assert index.entry(1998) == (BASE + 19_990, 199_900)
    index.append(BASE + 20_000, 200_000)
    assert lookup(index, BASE + 20_000) == 200_000


def test_the_file_is_kafkas(ground: tuple[Disk, str]) -> None:
    disk, root = ground
    index = offset_index(ground)
    index.append(BASE + 1, 256)
    index.append(BASE + 0x01020304, 0x05060708)
    index.finish()
    assert disk.read_bytes(f"{root}/{BASE:020d}.index").hex() == "00000001000001000102030405060708"
    times = time_index(ground)
    times.append_if_newer(5, BASE + 2)
    times.append_if_newer(5, BASE + 3)
    times.append_if_newer(4, BASE + 4)
    times.append_if_newer(6, BASE + 5)
    times.finish()
    assert disk.read_bytes(f"{root}/{BASE:020d}.timeindex").hex() == "000000000000000500000002000000000000000600000005"
    again = offset_index(ground, entries=2)
    assert (lookup(again, BASE + 1), lookup(again, BASE)) == (256, 0)


def test_an_index_without_entries_has_a_file_when_finished(ground: tuple[Disk, str]) -> None:
    disk, root = ground
    offset_index(ground).finish()
    time_index(ground).finish()
    assert disk.file_size(f"{root}/{BASE:020d}.index") == 0
    assert disk.file_size(f"{root}/{BASE:020d}.timeindex") == 0


@pytest.mark.parametrize("spilled", [0, 3, 10])
def test_truncation(ground: tuple[Disk, str], spilled: int) -> None:
    index, times = offset_index(ground), time_index(ground)
    for number in range(1, 11):
        index.append(BASE + 10 * number, 100 * number)
        times.append_if_newer(number, BASE + 10 * number)
        if number == spilled:
            index.spill()
            times.spill()
    index.truncate(BASE + 500)
    assert index.entries == 10
    index.truncate(BASE + 50)
    times.truncate(BASE + 50)
    assert (index.entries, times.entries) == (4, 4)
    assert lookup(index, BASE + 1000) == 400
    assert times.last() == (4, BASE + 40)
    index.append(BASE + 60, 7)
    assert lookup(index, BASE + 60) == 7
    index.truncate(0)
    times.truncate(0)
    assert (index.entries, times.entries, lookup(index, BASE + 60), times.last()) == (0, 0, 0, (-1, BASE))


def test_time_lookups(ground: tuple[Disk, str]) -> None:
    times = time_index(ground)
    assert times.lookup(5) == BASE
    for number in range(1, 600):
        times.append_if_newer(10 * number, BASE + number)
        if number == 400:
            times.spill()
    assert [times.lookup(timestamp) for timestamp in (9, 10, 19, 20, 4000, 4010, 10**9)] == [
        BASE,
        BASE + 1,
        BASE + 1,
        BASE + 2,
        BASE + 400,
        BASE + 401,
        BASE + 599,
    ]


def test_zeros_at_the_end_of_a_preallocated_file_do_not_count(ground: tuple[Disk, str]) -> None:
    disk, root = ground
    for real in (0, 1, 7):
        content = b"".join(
            (number + 1).to_bytes(4, "big") + (9 * number).to_bytes(4, "big") for number in range(1, real + 1)
        )
        disk.write_atomic(f"{root}/{BASE:020d}.index", content + bytes(80 - len(content)))
        assert offset_index(ground, entries=10).valid_entries() == real
        content = b"".join(
            (number + 1).to_bytes(8, "big") + (9 * number).to_bytes(4, "big") for number in range(1, real + 1)
        )
        disk.write_atomic(f"{root}/{BASE:020d}.timeindex", content + bytes(120 - len(content)))
        assert time_index(ground, entries=10).valid_entries() == real


def test_memory_is_bounded_and_given_back() -> None:
    disk = MemoryDisk()
    disk.mkdirs("/i")
    files, memory = OpenFiles(disk), IndexMemory(limit_bytes=1000)
    indexes = [OffsetIndex(files, memory, "/i", base) for base in range(0, 10_000, 1000)]
    for index in indexes:
        for number in range(1, 51):
            index.append(index.base_offset + number, number)
    for _ in range(3):
        for index in indexes:
            assert lookup(index, index.base_offset + 30) == 30
            assert memory.used_bytes <= 1000 + 400
    indexes[-1].append(indexes[-1].base_offset + 900, 900)
    assert lookup(indexes[-1], indexes[-1].base_offset + 950) == 900
    for index in indexes:
        index.drop()
    assert memory.used_bytes == 0


def test_indexes_of_many_segments_fit_into_the_default_memory() -> None:
    disk = MemoryDisk()
    disk.mkdirs("/i")
    files, memory = OpenFiles(disk), IndexMemory()
    indexes = [OffsetIndex(files, memory, "/i", base) for base in range(0, 20_000, 1000)]
    for index in indexes:
        for number in range(1, 1000):
            index.append(index.base_offset + number, number)
        assert lookup(index, index.base_offset + 30) == 30
    assert memory.used_bytes == 20 * 999 * OFFSET_ENTRY.size


def test_entries_that_cannot_be_written_wait() -> None:
    disk = FaultyDisk(MemoryDisk())
    disk.mkdirs("/i")
    index = offset_index((disk, "/i"))
    for number in range(1, SPILL_BYTES // 8 + 1):
        index.append(BASE + number, number)
    assert index.spill_due
    disk.fail("write", times=1)
    with pytest.raises(DiskError):
        index.spill()
    assert lookup(index, BASE + 100) == 100
    index.spill()
    assert not index.spill_due
    assert disk.file_size(f"/i/{BASE:020d}.index") == SPILL_BYTES
