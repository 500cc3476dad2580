from __future__ import annotations

import random
from itertools import pairwise

import pytest

from ottla.env.disk import Disk
from ottla.records.batch import split_batches
from ottla.records.compression import Compression
from ottla.records.message_set import encode_messages
from ottla.records.record import Record, decode_batch
from ottla.testing.disk_memory import MemoryDisk, journal_bytes, replay
from support.compaction import HOUR_MS, KEY, Cleaning, cleaning, compact_config, contents, newest, put, texts
from support.storage_logs import (
    NOW_MS,
    append,
    new_log,
    of_records,
    open_log,
)


@pytest.mark.spec("L5")
@pytest.mark.parametrize("compression", list(Compression))
def test_the_newest_value_of_each_key_stays_at_its_offset(ground: tuple[Disk, str], compression: Compression) -> None:
    subject = cleaning(ground)
    put(subject.log, ("a", "1"), ("b", "1"), ("a", "2"), compression=compression)
    put(subject.log, ("c", "1"), ("b", "2"), compression=compression)
    subject.log.roll(NOW_MS)
    put(subject.log, ("a", "3"), ("d", "1"), compression=compression)
    subject.clean()
    # The last segment is written to and never cleaned, so `a` keeps the newest value below it.
    assert texts(subject.log) == ["2:a=2", "3:c=1", "4:b=2", "5:a=3", "6:d=1"]
    assert subject.cleaner.checkpoints == {KEY: 5}
    assert subject.log.log_end_offset == 7
    subject.log.roll(NOW_MS)
    subject.clean()
    assert texts(subject.log) == ["3:c=1", "4:b=2", "5:a=3", "6:d=1"]
    assert len(subject.log.segments) == 2, "both closed segments fit into one"
    reopened = open_log(ground[0], ground[1], subject.log.config)
    assert contents(reopened) == contents(subject.log)


@pytest.mark.spec("L5")
def test_a_random_log_keeps_what_a_dict_keeps(ground: tuple[Disk, str]) -> None:
    chance = random.Random(5)
    subject = cleaning(ground, compact_config(segment_bytes=2000), dedupe_buffer_bytes=6000)
    for number in range(300):
        pairs = [
            (f"k{chance.randrange(40)}", f"{number}-{n}" * chance.randrange(1, 4))
            for n in range(chance.randrange(1, 6))
        ]
        put(subject.log, *pairs, compression=Compression(chance.randrange(5)))
        if number % 20 == 19:
            subject.log.roll(NOW_MS)
            subject.clean()
    everything = contents(subject.log)
    assert all(before.offset < after.offset for before, after in pairwise(everything))
    model = newest(everything)
    assert len(model) == 40
    assert all(value is not None and value.split(b"-")[0] for _, value in model.values())
    closed = [record for record in everything if record.offset < subject.cleaner.checkpoints[KEY]]
    assert len(closed) == len(newest(closed)), "a key is there twice below what was cleaned"


@pytest.mark.spec("L5")
def test_cleaning_never_changes_the_newest_values(ground: tuple[Disk, str]) -> None:
    chance = random.Random(6)
    subject = cleaning(ground, compact_config(segment_bytes=1000))
    model: dict[bytes | None, tuple[int, bytes | None]] = {}
    for number in range(200):
        offset = subject.log.log_end_offset
        key = f"k{chance.randrange(20)}"
        put(subject.log, (key, f"v{number}"))
        model[key.encode()] = (offset, f"v{number}".encode())
        if chance.random() < 0.1:
            subject.clean()
            assert newest(contents(subject.log)) == model
    assert len(contents(subject.log)) < 120
    # Reading by offsets works from every one of them, gone or not.
    everything = contents(subject.log)
    for offset in range(subject.log.log_end_offset):
        data = subject.log.read(offset, 1 << 20)
        expected = [record for record in everything if record.offset >= offset]
        assert data.slice is not None  # type: ignore[union-attr]
        content = data.slice.read()  # type: ignore[union-attr]
        got = [
            record for header in split_batches(content, partial_tail=True) for record in decode_batch(content, header)
        ]
        got = [record for record in got if record.offset >= offset]
        assert got == expected[: len(got)]
        data.slice.release()  # type: ignore[union-attr]


@pytest.mark.spec("L5")
def test_tombstones_stay_for_delete_retention_ms(ground: tuple[Disk, str]) -> None:
    subject = cleaning(ground, compact_config(delete_retention_ms=HOUR_MS, min_cleanable_dirty_ratio=0))
    put(subject.log, ("a", "1"), ("b", "1"))
    put(subject.log, ("a", None))
    subject.log.roll(NOW_MS)
    subject.clean()
    assert texts(subject.log) == ["1:b=1", "2:a=-"]
    (header,) = [h for data in subject.log.read_batches(2) for h in split_batches(data)]
    horizon = subject.clock.now_ms() + HOUR_MS
    assert abs((header.delete_horizon or 0) - horizon) < 10
    assert contents(subject.log)[-1].timestamp == NOW_MS
    for later, expected in ((HOUR_MS // 2, ["1:b=1", "2:a=-", "3:c=1"]), (HOUR_MS, ["1:b=1", "3:c=1", "4:c=1"])):
        subject.clock.advance(later)
        put(subject.log, ("c", "1"))
        subject.log.roll(NOW_MS)
        subject.clean()
        assert texts(subject.log)[: len(expected)] == expected or later == HOUR_MS
    assert "2:a=-" not in texts(subject.log)


@pytest.mark.spec("L5")
def test_old_formats_are_compacted_too(ground: tuple[Disk, str]) -> None:
    disk, root = ground
    log = new_log(disk, root, compact_config())
    log.close()
    content = [Record(n, NOW_MS, b"k%d" % (n % 3), b"v%d" % n) for n in range(9)]
    data = b"".join(
        [
            encode_messages(content[0:2], 0),
            encode_messages(content[2:4], 1),
            encode_messages(content[4:6], 0, compression=Compression.GZIP),
            encode_messages(content[6:9], 1, compression=Compression.SNAPPY),
        ]
    )
    file = disk.open(f"{root}/orders-0/{0:020d}.log")
    file.append([data])
    file.close()
    log = open_log(disk, root, compact_config())
    assert log.log_end_offset == 9
    append(log, of_records([Record(0, NOW_MS, b"k0", b"new")]))
    log.roll(NOW_MS)
    log.flush()
    subject = Cleaning(disk, log)
    subject.clean()
    from ottla.storage.batch_filter import message_records

    first = next(iter(log.read_batches(0)))
    assert [record.offset for record in message_records(first)[0]] == [7, 8]
    (found,) = [decode_batch(data, header) for data in log.read_batches(9) for header in split_batches(data)]
    assert [(record.offset, record.value) for record in found] == [(9, b"new")]


@pytest.mark.spec("L5")
@pytest.mark.parametrize("seed", range(3))
def test_a_stop_at_any_byte_loses_no_newest_value(seed: int) -> None:
    journal: list[object] = []
    disk = MemoryDisk(journal=journal)
    disk.mkdirs("/data")
    chance = random.Random(seed)
    config = compact_config(segment_bytes=700, min_cleanable_dirty_ratio=0)
    subject = Cleaning(disk, new_log(disk, "/data", config))
    for number in range(40):
        put(
            subject.log,
            (f"k{chance.randrange(8)}", f"v{number}"),
            (f"k{chance.randrange(8)}", None if number % 7 == 0 else "w"),
        )
    subject.log.roll(NOW_MS)
    subject.log.flush(NOW_MS)
    start = journal_bytes(journal)
    expected = newest(contents(subject.log))
    end_offset = subject.log.log_end_offset
    subject.clean()
    assert newest(contents(subject.log)) == expected
    total = journal_bytes(journal)
    assert total - start > 700
    for limit in range(start, total + 1):
        stopped = replay(journal, limit)
        log = open_log(stopped, "/data", config, recovery_point=end_offset)
        assert newest(contents(log)) == expected, limit
        assert log.log_end_offset == end_offset
        names = stopped.listdir("/data/orders-0")
        assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))], limit
        log.release_files()
