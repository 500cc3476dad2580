from __future__ import annotations

from uuid import UUID

import pytest

from ottla.env.disk import Disk
from ottla.env.disk_memory import MemoryDisk
from ottla.storage.log import PartitionLog
from ottla.storage.recovery import create_log, load_log
from ottla.storage.resources import LogResources
from ottla.wire.errors import ErrorCode
from support.storage_logs import NOW_MS, append, batch, log_config, new_log, open_log, place, read_all, refused

CONFIG = {"segment_bytes": 1000, "index_interval_bytes": 0}
TOPIC_ID = UUID("c0ffee00-1234-4abc-8def-0123456789ff")


def producing(sequence: int) -> memoryview:
    return batch(3, producer_id=5, producer_epoch=1, base_sequence=sequence)


def filled(ground: tuple[Disk, str], count: int = 30, **settings: object) -> PartitionLog:
    log = new_log(*ground, log_config(**{**CONFIG, **settings}))
    for number in range(count):
        append(log, producing(3 * number), leader_epoch=number // 20)
    return log


def killed(log: PartitionLog) -> None:
    """The process is gone: what was handed to the system stays, what was in memory is lost."""
    for segment in log.segments:
        segment.close()


def check_whole(log: PartitionLog, end: int) -> None:
    assert [record.offset for record in read_all(log)] == list(range(end))
    assert append(log, producing(end - 3)).duplicate
    assert refused(log, producing(end + 3)).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, producing(end), leader_epoch=9).first_offset == end
    assert [record.offset for record in read_all(log)] == list(range(end + 3))


@pytest.mark.spec("L3")
def test_a_new_folder(ground: tuple[Disk, str]) -> None:
    disk, root = ground
    log = create_log(LogResources(disk), place(root), TOPIC_ID, NOW_MS)
    assert disk.listdir(log.folder) == ["00000000000000000000.log", "partition.metadata"]
    log.close()
    assert disk.listdir(log.folder) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "partition.metadata",
    ]
    again = open_log(disk, root, clean=True)
    assert (again.topic_id, again.log_start_offset, again.log_end_offset) == (TOPIC_ID, 0, 0)


@pytest.mark.spec("L9")
def test_after_a_clean_stop(ground: tuple[Disk, str]) -> None:
    log = filled(ground)
    before = [(segment.base_offset, segment.size) for segment in log.segments]
    log.close()
    at = place(ground[1], log.config, clean=True, recovery_point=90)
    again = load_log(LogResources(ground[0]), at, NOW_MS)
    assert at.notes == []
    assert [(segment.base_offset, segment.size) for segment in again.segments] == before
    assert (again.recovery_point, again.unflushed_bytes, again.high_watermark) == (90, 0, 90)
    assert again.epochs.entries == [(0, 0), (1, 60)]
    assert not again.flush_needed()
    check_whole(again, 90)


@pytest.mark.spec("L9")
@pytest.mark.parametrize("recovery_point", [0, 30, 45, 89, 90, 500])
@pytest.mark.parametrize("torn", [0, 1, 60, 90])
def test_after_a_kill(ground: tuple[Disk, str], recovery_point: int, torn: int) -> None:
    log = filled(ground)
    if recovery_point:
        log.flush()
    for number in range(30, 33):
        append(log, producing(3 * number), leader_epoch=2)
    killed(log)
    log.segments[-1].log.get().append([bytes(producing(99))[:torn]])
    at = place(ground[1], log.config, recovery_point=recovery_point)
    again = load_log(LogResources(ground[0]), at, NOW_MS)
    assert again.log_end_offset == 99
    assert again.epochs.entries == [(0, 0), (1, 60), (2, 90)]
    cuts = [note for note in at.notes if "cut" in note]
    assert [f"cut {torn} bytes" in note for note in cuts] == ([True] if torn else [])
    check_whole(again, 99)
    again.close()
    check_whole(open_log(*ground, log.config, clean=True), 102)


def test_unflushed_bytes_are_known_after_a_kill(ground: tuple[Disk, str]) -> None:
    log = filled(ground)
    killed(log)
    again = open_log(*ground, log.config)
    assert (again.recovery_point, again.unflushed_bytes) == (0, again.size_bytes)
    assert again.flush() == again.size_bytes
    assert again.recovery_point == 90


@pytest.mark.spec("L9")
def test_a_damaged_batch_ends_the_log(ground: tuple[Disk, str]) -> None:
    disk, root = ground
    log = filled(ground)
    killed(log)
    damaged = log.segments[1]
    length = len(producing(0))
    content = bytearray(disk.read_bytes(damaged.log.path))
    content[2 * length + 70] ^= 1
    disk.write_atomic(damaged.log.path, bytes(content))
    at = place(root, log.config)
    again = load_log(LogResources(disk), at, NOW_MS)
    end = damaged.base_offset + 6
    assert again.log_end_offset == end
    assert any("cut" in note for note in at.notes)
    assert any("removed" in note for note in at.notes)
    check_whole(again, end)
    again.close()
    bases = {name.partition(".")[0] for name in disk.listdir(again.folder) if name.endswith(".log")}
    assert bases == {f"{segment.base_offset:020d}" for segment in again.segments}


def test_damage_below_the_recovery_point_is_not_looked_for(ground: tuple[Disk, str]) -> None:
    disk, root = ground
    log = filled(ground)
    log.flush()
    killed(log)
    content = bytearray(disk.read_bytes(log.segments[0].log.path))
    content[-1] ^= 1
    disk.write_atomic(log.segments[0].log.path, bytes(content))
    assert open_log(disk, root, log.config, recovery_point=90).log_end_offset == 90


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "odd", "zeros", "garbage", "short"])
def test_indexes_are_made_anew(ground: tuple[Disk, str], clean: bool, suffix: str, damage: str) -> None:
    disk, root = ground
    log = filled(ground)
    log.close()
    paths = [f"{log.folder}/{name}" for name in disk.listdir(log.folder) if name.endswith(suffix)]
    healthy = {path: disk.read_bytes(path) for path in paths}
    for path in paths:
        entry = 8 if suffix == ".index" else 12
        if damage == "missing":
            disk.remove(path)
        else:
            content = {
                "odd": healthy[path] + b"\0\0\0",
                "zeros": bytes(10 * entry),
                "garbage": b"\xfe" * (5 * entry),
                "short": healthy[path][: entry * 2],
            }[damage]
            disk.write_atomic(path, content)
    again = open_log(disk, root, log.config, clean=clean, recovery_point=90 if clean else 0)
    assert again.log_end_offset == 90
    for offset in range(0, 90, 5):
        assert read_all(again, offset)[0].offset == offset
    if not clean or damage in ("missing", "odd"):
        again.close()
        for path in paths:
            if not clean or suffix == ".index":
                assert disk.read_bytes(path) == healthy[path], path


def test_a_preallocated_index_of_a_killed_apache_broker(ground: tuple[Disk, str]) -> None:
    disk, root = ground
    log = filled(ground)
    log.close()
    active = log.segments[-1]
    healthy = {}
    for index in (active.offset_index.file, active.time_index.file):
        healthy[index.path] = disk.read_bytes(index.path)
        disk.write_atomic(index.path, healthy[index.path] + bytes(10_000 // 24 * 24))
    again = open_log(disk, root, log.config, recovery_point=active.base_offset)
    assert read_all(again, 88)[0].offset == 88
    again.segments[-1].finish()
    for path, content in healthy.items():
        assert disk.read_bytes(path) == content


def test_interrupted_work_is_finished(ground: tuple[Disk, str]) -> None:
    disk, root = ground
    log = filled(ground)
    log.close()
    folder = log.folder
    for name in (
        "00000000000000000000.log.deleted",
        "00000000000000000009.index.cleaned",
        "leader-epoch-checkpoint.7.tmp",
        "00000000000000000777.index",
        "00000000000000000777.txnindex",
    ):
        disk.write_atomic(f"{folder}/{name}", b"left over")
    first, second = log.segments[0], log.segments[1]
    joined = disk.read_bytes(first.log.path) + disk.read_bytes(second.log.path)
    disk.write_atomic(f"{folder}/{first.base_offset:020d}.log.swap", joined)
    disk.write_atomic(f"{folder}/{first.base_offset:020d}.index.swap", b"")
    disk.write_atomic(f"{folder}/{first.base_offset:020d}.timeindex.swap", b"")
    again = open_log(disk, root, log.config)
    assert [segment.base_offset for segment in again.segments] == [
        segment.base_offset for segment in log.segments if segment is not second
    ]
    check_whole(again, 90)
    assert not [
        name
        for name in disk.listdir(folder)
        if name.endswith((".deleted", ".cleaned", ".swap", ".tmp")) or "777" in name
    ]


def test_a_folder_without_segments_begins_at_its_start(ground: tuple[Disk, str]) -> None:
    disk, root = ground
    disk.mkdirs(f"{root}/orders-0")
    log = open_log(disk, root, log_start_offset=40)
    assert (log.log_start_offset, log.log_end_offset) == (40, 40)
    append(log)
    assert [record.offset for record in read_all(log)] == [40, 41, 42]


def test_a_log_that_ends_before_its_start_is_begun_anew(ground: tuple[Disk, str]) -> None:
    log = filled(ground)
    killed(log)
    at = place(ground[1], log.config, log_start_offset=200)
    again = load_log(LogResources(ground[0]), at, NOW_MS)
    assert (again.log_start_offset, again.log_end_offset) == (200, 200)
    assert any("begun anew" in note for note in at.notes)
    append(again, producing(500))


def test_the_start_of_the_log_is_kept(ground: tuple[Disk, str]) -> None:
    log = filled(ground)
    log.delete_records(31)
    log.close()
    again = open_log(*ground, log.config, clean=True, log_start_offset=31)
    assert [record.offset for record in read_all(again)] == list(range(31, 90))
    assert again.epochs.entries == [(0, 31), (1, 60)]


@pytest.mark.parametrize("content", [b"", b"garbage", b"0\n5\n"])
def test_a_damaged_epoch_file(ground: tuple[Disk, str], content: bytes) -> None:
    disk, root = ground
    log = filled(ground)
    log.close()
    disk.write_atomic(f"{log.folder}/leader-epoch-checkpoint", content)
    again = open_log(disk, root, log.config, clean=bool(content), recovery_point=90 if content else 0)
    assert again.epochs.entries == [(0, 0), (1, 60)]


def test_damaged_metadata_means_no_topic_id(ground: tuple[Disk, str]) -> None:
    disk, root = ground
    create_log(LogResources(disk), place(root), TOPIC_ID, NOW_MS).close()
    disk.write_atomic(f"{root}/orders-0/partition.metadata", b"vers")
    at = place(root, clean=True)
    assert load_log(LogResources(disk), at, NOW_MS).topic_id is None
    assert any("partition.metadata" in note for note in at.notes)


@pytest.mark.parametrize("clean", [True, False])
def test_damaged_snapshots_are_replaced_by_reading_the_log(ground: tuple[Disk, str], clean: bool) -> None:
    disk, root = ground
    log = filled(ground)
    log.close()
    for name in disk.listdir(log.folder):
        if name.endswith(".snapshot"):
            disk.write_atomic(f"{log.folder}/{name}", b"damaged")
    again = open_log(disk, root, log.config, clean=clean, recovery_point=90)
    check_whole(again, 90)


def test_a_snapshot_beyond_the_end_is_removed(ground: tuple[Disk, str]) -> None:
    disk, root = ground
    log = filled(ground)
    log.close()
    active = log.segments[-1]
    whole = disk.read_bytes(active.log.path)
    disk.write_atomic(active.log.path, whole[: len(producing(0))])
    again = open_log(disk, root, log.config)
    end = active.base_offset + 3
    assert again.log_end_offset == end
    assert f"{90:020d}.snapshot" not in disk.listdir(log.folder)
    check_whole(again, end)


def test_only_what_is_not_flushed_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    disk.mkdirs("/data")
    log = filled((disk, "/data"), count=200)
    log.flush()
    append(log, producing(600))
    killed(log)
    read: list[str] = []
    from ottla.env.disk_memory import MemoryFile

    whole = MemoryFile.pread

    def counting(self: MemoryFile, length: int, position: int) -> bytes:
        if self.path.endswith(".log"):
            read.append(self.path)
        return whole(self, length, position)

    monkeypatch.setattr(MemoryFile, "pread", counting)
    again = open_log(disk, "/data", log.config, recovery_point=600)
    assert again.log_end_offset == 603
    assert len(set(read)) <= 2
