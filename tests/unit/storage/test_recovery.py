from __future__ import annotations

from uuid import UUID

import pytest

from ottla.env.disk import Disk
from ottla.records.batch import patch_batch, split_batches
from ottla.records.record import Record
from ottla.storage.damage import SEARCH_RATIO, find_next_batch
from ottla.storage.flushing import begin_flush, end_flush
from ottla.storage.log import PartitionLog
from ottla.storage.recovery import create_log, load_log
from ottla.storage.resources import LogResources
from ottla.storage.truncation import delete_records, truncate_to
from ottla.testing.disk_memory import REPLACE, Change, MemoryDisk, journal_bytes, replay
from ottla.testing.disk_power import PowerLoss, nothing_more
from ottla.wire.errors import ErrorCode
from support.storage_logs import (
    NOW_MS,
    append,
    batch,
    log_config,
    new_log,
    of_records,
    open_log,
    place,
    read_all,
    refused,
)

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
def test_a_new_directory(ground: tuple[Disk, str]) -> None:
    disk, root = ground
    log = create_log(LogResources(disk), place(root), TOPIC_ID, NOW_MS)
    log.assign_leader_epoch(0)
    assert disk.listdir(log.directory) == ["00000000000000000000.log"]
    assert not log.flush_needed()
    log.close()
    assert disk.listdir(log.directory) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    again = open_log(disk, root, clean=True)
    assert (again.topic_id, again.log_start_offset, again.log_end_offset) == (TOPIC_ID, 0, 0)


@pytest.mark.spec("L3")
def test_the_small_files_of_a_new_directory_come_with_the_first_append(ground: tuple[Disk, str]) -> None:
    disk, root = ground
    log = create_log(LogResources(disk), place(root), TOPIC_ID, NOW_MS)
    log.assign_leader_epoch(3)
    append(log, leader_epoch=3)
    names = ["00000000000000000000.log", "leader-epoch-checkpoint", "partition.metadata"]
    assert disk.listdir(log.directory) == names
    assert disk.read_bytes(f"{log.directory}/leader-epoch-checkpoint") == b"0\n1\n3 0\n"
    job = begin_flush(log)
    assert job is not None
    assert job.directory == log.directory
    assert {path.rpartition("/")[2] for path in job.paths} == set(names[1:])
    end_flush(log, job, None, NOW_MS)


def test_a_new_directory_whose_broker_was_killed_gets_its_topic_id_again(ground: tuple[Disk, str]) -> None:
    disk, root = ground
    create_log(LogResources(disk), place(root), TOPIC_ID, NOW_MS)
    again = open_log(disk, root)
    assert (again.topic_id, again.log_end_offset) == (None, 0)
    again.assign_topic_id(TOPIC_ID)
    assert open_log(disk, root).topic_id == TOPIC_ID


@pytest.mark.parametrize(("checkpoint", "begins_with"), [(0, 7), (5, 7), (50, 50), (90, 90), (1000, 90)])
@pytest.mark.parametrize("clean", [True, False])
def test_the_high_watermark_begins_with_its_checkpoint(
    ground: tuple[Disk, str], checkpoint: int, begins_with: int, clean: bool
) -> None:
    """Never outside the log, and not with its end: nobody knows yet what the others have."""
    log = filled(ground)
    log.close()
    at = place(ground[1], log.config, clean=clean, recovery_point=90, log_start_offset=7, high_watermark=checkpoint)
    assert load_log(LogResources(ground[0]), at, NOW_MS).high_watermark == begins_with


def test_leader_epochs_begin_with_the_log(ground: tuple[Disk, str]) -> None:
    log = filled(ground)
    log.close()
    again = open_log(*ground, log.config, clean=True, recovery_point=90, log_start_offset=75)
    assert again.epochs.entries == [(1, 75)]


@pytest.mark.spec("L9")
def test_after_a_clean_stop(ground: tuple[Disk, str]) -> None:
    log = filled(ground)
    before = [(segment.base_offset, segment.size) for segment in log.segments]
    log.close()
    at = place(ground[1], log.config, clean=True, recovery_point=90, high_watermark=88)
    again = load_log(LogResources(ground[0]), at, NOW_MS)
    assert at.notes == []
    assert [(segment.base_offset, segment.size) for segment in again.segments] == before
    assert (again.recovery_point, again.unflushed.bytes, again.high_watermark) == (90, 0, 88)
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
    assert (again.recovery_point, again.unflushed.bytes) == (0, again.size_bytes)
    assert again.flush() == again.size_bytes
    assert again.recovery_point == 90


LENGTH = len(producing(0))
#: Where a batch may be damaged: offset, length, leader epoch (not noticed), magic, checksum, header, a record.
PLACES = {"offset": 6, "length": 10, "magic": 16, "checksum": 18, "count": 59, "record": 70}


def damage(disk: Disk, path: str, position: int, mask: int = 1) -> bytes:
    """Flip a bit; returns the batch that is damaged."""
    content = bytearray(disk.read_bytes(path))
    content[position] ^= mask
    disk.write_atomic(path, bytes(content))
    start = position // LENGTH * LENGTH
    return bytes(content[start : start + LENGTH])


@pytest.mark.spec("L9")
@pytest.mark.parametrize("place_name", PLACES)
@pytest.mark.parametrize("number", [0, 2, -1])
def test_only_the_damaged_batch_is_lost(ground: tuple[Disk, str], place_name: str, number: int) -> None:
    disk, root = ground
    log = filled(ground)
    killed(log)
    damaged = log.segments[1]
    batches = damaged.size // LENGTH
    number %= batches
    bad = damage(disk, damaged.log.path, number * LENGTH + PLACES[place_name])
    at = place(root, log.config)
    again = load_log(LogResources(disk), at, NOW_MS)
    lost = range(damaged.base_offset + 3 * number, damaged.base_offset + 3 * number + 3)
    assert [record.offset for record in read_all(again)] == [offset for offset in range(90) if offset not in lost]
    aside = f"{damaged.log.path}.{number * LENGTH}.damaged"
    assert disk.read_bytes(aside) == bad
    assert again.gap_offset == lost[0]
    (note,) = at.notes
    assert f"cut {LENGTH} bytes at position {number * LENGTH}" in note
    assert aside in note
    assert f"from offset {lost[0]} on" in note
    assert append(again, producing(90), leader_epoch=9).first_offset == 90
    again.close()
    then = open_log(disk, root, log.config, clean=True, recovery_point=93)
    assert [record.offset for record in read_all(then)] == [offset for offset in range(93) if offset not in lost]


@pytest.mark.spec("L9", "R3")
@pytest.mark.parametrize("kept", [0, 2 * LENGTH, 2 * LENGTH + 5])
def test_a_gap_is_known_so_that_a_follower_can_fill_it(ground: tuple[Disk, str], kept: int) -> None:
    """A loss of power took the end of an older segment, at a batch's end or not, and left the newer ones."""
    disk, root = ground
    log = filled(ground)
    killed(log)
    older = log.segments[1]
    older.log.get().truncate(kept)
    missing = older.base_offset + 3 * (kept // LENGTH)
    again = open_log(disk, root, log.config)
    assert (again.gap_offset, again.log_end_offset) == (missing, 90)
    truncate_to(again, missing + 30, NOW_MS)
    assert again.gap_offset == missing
    truncate_to(again, missing, NOW_MS)
    assert (again.gap_offset, again.log_end_offset) == (None, missing)


def test_a_torn_end_is_no_gap(ground: tuple[Disk, str]) -> None:
    log = filled(ground)
    killed(log)
    log.segments[-1].log.get().append([bytes(producing(99))[:70]])
    assert open_log(*ground, log.config).gap_offset is None


def test_what_is_missing_below_the_recovery_point_is_no_gap(ground: tuple[Disk, str]) -> None:
    """It may have been compacted."""
    log = filled(ground)
    killed(log)
    log.segments[1].log.get().truncate(LENGTH)
    beyond = log.segments[2].base_offset
    assert open_log(*ground, log.config, recovery_point=beyond).gap_offset is None


@pytest.mark.spec("L9", "R3")
def test_a_compacted_log_has_gaps_everywhere(ground: tuple[Disk, str]) -> None:
    """Also one that was copied from its leader, of which nothing is on the disk for sure."""
    log = filled(ground, cleanup_policy="compact")
    killed(log)
    log.segments[1].log.get().truncate(LENGTH)
    assert open_log(*ground, log.config).gap_offset is None


@pytest.mark.spec("L9", "R3")
def test_damage_is_a_gap_of_a_compacted_log(ground: tuple[Disk, str]) -> None:
    log = filled(ground, cleanup_policy="compact,delete")
    killed(log)
    damaged = log.segments[1]
    damage(ground[0], damaged.log.path, 2 * LENGTH + PLACES["checksum"])
    assert open_log(*ground, log.config).gap_offset == damaged.base_offset + 6


def test_what_is_missing_below_the_start_of_the_log_is_no_gap(ground: tuple[Disk, str]) -> None:
    log = filled(ground)
    killed(log)
    log.segments[1].log.get().truncate(LENGTH)
    following = log.segments[2].base_offset
    for start, gap in ((following, None), (following - 1, following - 1)):
        at = place(ground[1], log.config, log_start_offset=start)
        assert load_log(LogResources(ground[0]), at, NOW_MS).gap_offset == gap


@pytest.mark.spec("L9")
def test_several_damaged_batches(ground: tuple[Disk, str]) -> None:
    disk, root = ground
    log = filled(ground)
    killed(log)
    for segment, number, position in ((0, 0, 70), (0, 2, 10), (1, 1, 17), (1, 2, 3), (3, 0, 16)):
        damage(disk, log.segments[segment].log.path, number * LENGTH + position)
    last = log.segments[-1]
    damage(disk, last.log.path, last.size - LENGTH + 8)
    again = open_log(disk, root, log.config)
    gone = [log.segments[number].base_offset + 3 * batch for number, batch in ((0, 0), (0, 2), (1, 1), (1, 2), (3, 0))]
    lost = {offset + number for offset in gone for number in range(3)} | {87, 88, 89}
    assert [record.offset for record in read_all(again)] == [offset for offset in range(90) if offset not in lost]
    assert len([name for name in disk.listdir(again.directory) if name.endswith(".damaged")]) == 5


def test_a_copy_of_a_log_within_a_damaged_record_is_no_batch_of_this_log(ground: tuple[Disk, str]) -> None:
    disk, root = ground
    log = new_log(disk, root)
    append(log)
    inner = bytearray(b"".join(bytes(batch()) for _ in range(3)))
    for number, header in enumerate(split_batches(inner)):
        patch_batch(inner, header.position, 3 + 3 * number, 0)
    append(log, of_records([Record(0, NOW_MS, None, bytes(inner))]))
    append(log)
    path = log.segments[0].log.path
    content = bytearray(disk.read_bytes(path))
    content[len(batch()) + 17] ^= 1
    killed(log)
    disk.write_atomic(path, bytes(content))
    again = open_log(disk, root)
    assert [record.offset for record in read_all(again)] == [0, 1, 2, 4, 5, 6]


def test_a_leader_epoch_that_is_damaged_is_not_believed(ground: tuple[Disk, str]) -> None:
    disk, root = ground
    log = filled(ground)
    killed(log)
    damage(disk, log.segments[1].log.path, 12, 0x10)
    at = place(root, log.config)
    again = load_log(LogResources(disk), at, NOW_MS)
    assert again.epochs.entries == [(0, 0), (1, 60)]
    assert [record.offset for record in read_all(again)] == list(range(90))
    assert any("leader epoch" in note for note in at.notes)


@pytest.mark.parametrize("stop", range(60))
def test_a_kill_while_damage_is_taken_out(stop: int) -> None:
    disk = MemoryDisk()
    disk.mkdirs("/data")
    log = filled((disk, "/data"), count=8)
    killed(log)
    damage(disk, log.segments[0].log.path, LENGTH + 70)
    paths = [f"{log.directory}/{name}" for name in disk.listdir(log.directory)]
    before: list[Change] = [(REPLACE, path, disk.read_bytes(path)) for path in paths]

    def as_it_was() -> MemoryDisk:
        made = MemoryDisk()
        made.mkdirs(log.directory)
        return replay(before, 1 << 40, made)

    journal: list[Change] = []
    first = as_it_was()
    first.journal = journal
    open_log(first, "/data", log.config)
    cut = journal_bytes(journal) * stop // 59
    again = open_log(replay(journal, cut, as_it_was()), "/data", log.config)
    assert [record.offset for record in read_all(again)] == [*range(3), *range(6, 24)]


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
    paths = [f"{log.directory}/{name}" for name in disk.listdir(log.directory) if name.endswith(suffix)]
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


@pytest.mark.parametrize("lost", [".index", ".timeindex"])
def test_indexes_of_which_one_is_lost_are_made_anew_both(ground: tuple[Disk, str], lost: str) -> None:
    """A killed process may have written only one of them. The other's entries are not there twice afterwards."""
    disk, root = ground
    log = filled(ground)
    log.close()
    paths = [f"{log.directory}/{name}" for name in disk.listdir(log.directory) if name.endswith("index")]
    healthy = {path: disk.read_bytes(path) for path in paths}
    assert len(healthy) > 2
    for path in paths:
        if path.endswith(lost):
            disk.remove(path)
    again = open_log(disk, root, log.config, recovery_point=90)
    again.close()
    assert {path: disk.read_bytes(path) for path in paths} == healthy


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
    folder = log.directory
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


def test_files_of_others_do_not_stop_what_is_finished(ground: tuple[Disk, str]) -> None:
    disk, root = ground
    log = filled(ground)
    folder = log.directory
    killed(log)
    for name in ("notes.log.swap", "1.log.swap", "mine.swap"):
        disk.write_atomic(f"{folder}/{name}", b"x")
    again = open_log(disk, root, log.config)
    check_whole(again, 90)


@pytest.mark.spec("L9")
@pytest.mark.parametrize("damaged", [1, 2])
def test_batches_behind_damage_are_found_where_offsets_outgrow_32_bits(ground: tuple[Disk, str], damaged: int) -> None:
    disk, root = ground
    start = (1 << 32) - 4
    at = place(root, log_start_offset=start)
    log = create_log(LogResources(disk), at, None, NOW_MS)
    for _ in range(6):
        append(log)
    path, size = log.segments[0].log.path, len(batch())
    log.close()
    data = bytearray(disk.read_bytes(path))
    # Its length, so that it does not tell where the next one begins.
    data[damaged * size + 9] ^= 1
    disk.write_atomic(path, bytes(data))
    again = load_log(LogResources(disk), place(root, log_start_offset=start), NOW_MS)
    found = [record.offset for record in read_all(again)]
    assert found == [
        offset for offset in range(start, start + 18) if not damaged <= (offset - start) // 3 < damaged + 1
    ]


def test_a_directory_without_segments_begins_at_its_start(ground: tuple[Disk, str]) -> None:
    disk, root = ground
    disk.mkdirs(f"{root}/orders-0")
    log = open_log(disk, root, log_start_offset=40)
    assert (log.log_start_offset, log.log_end_offset) == (40, 40)
    append(log)
    assert [record.offset for record in read_all(log)] == [40, 41, 42]


def test_a_log_that_ends_before_its_start_is_begun_anew(ground: tuple[Disk, str]) -> None:
    disk, root = ground
    log = filled(ground)
    killed(log)
    held = {segment.log.path: disk.read_bytes(segment.log.path) for segment in log.segments}
    at = place(root, log.config, log_start_offset=200)
    again = load_log(LogResources(disk), at, NOW_MS)
    assert (again.log_start_offset, again.log_end_offset) == (200, 200)
    assert any("begun again" in note for note in at.notes)
    assert {path: disk.read_bytes(path + ".damaged") for path in held} == held
    append(again, producing(500))
    again.close()
    names = {name for name in disk.listdir(again.directory) if not name.endswith(".damaged")}
    assert {name.partition(".")[0] for name in names if name[0] == "0"} == {f"{200:020d}", f"{203:020d}"}


def test_a_start_beyond_the_end_of_a_whole_log_is_not_believed(ground: tuple[Disk, str]) -> None:
    log = filled(ground)
    log.close()
    at = place(ground[1], log.config, clean=True, recovery_point=90, log_start_offset=910)
    again = load_log(LogResources(ground[0]), at, NOW_MS)
    assert (again.log_start_offset, again.log_end_offset) == (0, 90)
    assert any("cannot start at 910" in note for note in at.notes)
    check_whole(again, 90)


def test_the_start_of_the_log_is_kept(ground: tuple[Disk, str]) -> None:
    log = filled(ground)
    delete_records(log, 31)
    log.close()
    again = open_log(*ground, log.config, clean=True, log_start_offset=31)
    assert [record.offset for record in read_all(again)] == list(range(31, 90))
    assert again.epochs.entries == [(0, 31), (1, 60)]


@pytest.mark.parametrize("content", [b"", b"garbage", b"0\n5\n"])
def test_a_damaged_epoch_file(ground: tuple[Disk, str], content: bytes) -> None:
    disk, root = ground
    log = filled(ground)
    log.close()
    disk.write_atomic(f"{log.directory}/leader-epoch-checkpoint", content)
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
    for name in disk.listdir(log.directory):
        if name.endswith(".snapshot"):
            disk.write_atomic(f"{log.directory}/{name}", b"damaged")
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
    assert f"{90:020d}.snapshot" not in disk.listdir(log.directory)
    check_whole(again, end)


def test_only_what_is_not_flushed_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    disk.mkdirs("/data")
    log = filled((disk, "/data"), count=200)
    log.flush()
    append(log, producing(600))
    killed(log)
    read: list[str] = []
    from ottla.testing.disk_memory import MemoryFile

    whole = MemoryFile.pread

    def counting(self: MemoryFile, length: int, position: int) -> bytes:
        if self.path.endswith(".log"):
            read.append(self.path)
        return whole(self, length, position)

    monkeypatch.setattr(MemoryFile, "pread", counting)
    again = open_log(disk, "/data", log.config, recovery_point=600)
    assert again.log_end_offset == 603
    assert len(set(read)) <= 2


@pytest.mark.spec("L2")
def test_segments_of_a_killed_process_survive_a_loss_of_power_once_they_are_flushed() -> None:
    """It had not forced their names when it died, and whoever goes on has to."""
    journal: list[Change] = []
    disk = MemoryDisk(journal=journal)
    disk.mkdirs("/data")
    disk.fsync_dir("/")
    log = filled((disk, "/data"))
    assert len(log.segments) > 2
    killed(log)
    log = open_log(disk, "/data", log_config(**CONFIG))
    log.flush()
    assert log.recovery_point == 90
    power = PowerLoss()
    power.take_all(journal)
    left = open_log(power.survivor(nothing_more), "/data", log_config(**CONFIG), recovery_point=log.recovery_point)
    check_whole(left, 90)


@pytest.mark.spec("L9")
@pytest.mark.parametrize("batches", [0, 2])
def test_a_log_that_was_flushed_already_has_its_indexes_when_it_is_closed(batches: int) -> None:
    """Apache Kafka takes a missing index after a clean stop for an error, be the segment empty."""
    disk = MemoryDisk()
    disk.mkdirs("/data")
    log = filled((disk, "/data"), batches)
    log.assign_leader_epoch(3)
    log.flush()
    log.close()
    folder = f"{log.directory}/{0:020d}"
    assert disk.exists(f"{folder}.index")
    assert disk.exists(f"{folder}.timeindex")
    assert bool(disk.file_size(f"{folder}.timeindex")) == bool(batches), "the largest timestamp is in it"
    left = open_log(disk, "/data", log_config(**CONFIG), clean=True)
    assert left.flush_needed() is False
    left.prepare_close()
    assert left.flush_needed() is False, "nothing is written where nothing was changed"


@pytest.mark.spec("L5", "L9")
def test_producers_are_known_behind_a_damaged_batch_that_is_trusted() -> None:
    """Below the recovery point: no batch is taken out there, and no snapshot is left that says who wrote."""
    disk = MemoryDisk()
    disk.mkdirs("/data")
    log = filled((disk, "/data"))
    log.close()
    for name in disk.listdir(log.directory):
        if name.endswith(".snapshot"):
            disk.remove(f"{log.directory}/{name}")
    # An older snapshot, which recovery begins with.
    older = filled((MemoryDisk(), "/other"), 1)
    older.producers.end_offset = 3
    disk.write_atomic(f"{log.directory}/00000000000000000003.snapshot", older.producers.encode())
    path = f"{log.directory}/00000000000000000000.log"
    data = bytearray(disk.read_bytes(path))
    second = int.from_bytes(data[8:12], "big") + 12
    data[second + 8 : second + 12] = (-12).to_bytes(4, "big", signed=True)
    disk.write_atomic(path, bytes(data))
    again = open_log(disk, "/data", log.config, clean=True, recovery_point=90)
    assert again.log_end_offset == 90
    assert append(again, producing(87)).duplicate
    assert append(again, producing(90)).first_offset == 90


def test_the_search_for_the_next_batch_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes of which every few look like the begin of a batch that reaches to the file's end."""
    monkeypatch.setattr("ottla.storage.damage.SEARCH_ALLOWANCE_BYTES", 0)
    disk = MemoryDisk()
    file = disk.open("/f", create=True)
    size = 40_000
    like_one = b"\x00\x00\x00\x00" + (5).to_bytes(4, "big") + (size // 2).to_bytes(4, "big") + bytes(4) + b"\x02"
    file.append([(like_one + bytes(8)) * (size // 25)])
    checked = []
    monkeypatch.setattr("ottla.storage.damage._is_batch", lambda *arguments: checked.append(arguments))
    assert find_next_batch(file, 0, size, 0, 2**31, False) == size
    assert 1 <= len(checked) <= 2 * SEARCH_RATIO
