"""Lengths of batches that cannot be: whoever steps over the file by them comes to an end, and one log alone suffers."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ottla.env.clock import VirtualClock
from ottla.env.disk import DiskError, RealDisk
from ottla.env.executor import InlineExecutor
from ottla.env.file_reader import ReadableFile
from ottla.inspection.batch_rows import RecordWish
from ottla.inspection.dump import DumpWish, dump
from ottla.inspection.findings import Tally
from ottla.inspection.verify import VerifyWish, verify
from ottla.records.errors import BatchError
from ottla.storage.log import LogRead, PartitionLog, ReadRefusal
from ottla.storage.lookups import offset_for_timestamp, offset_of_max_timestamp
from ottla.storage.manager import LogManager
from ottla.storage.recovery import load_log
from ottla.storage.resources import LogResources
from ottla.storage.results import OffsetTimestamp
from ottla.storage.retention import confirm_expired, delete_old_segments
from ottla.storage.truncation import truncate_to
from ottla.testing.disk_memory import MemoryDisk, MemoryFile
from support.compaction import Cleaning, compact_config
from support.storage_logs import NOW_MS, append, batch, new_log, place, read_all

pytestmark = pytest.mark.spec("L9")

ROOT = "/data"
CONFIG = compact_config(segment_bytes=1000, index_interval_bytes=250)
#: Less the 12 bytes that a length does not count: -12 stands still, -49 goes back a little, 14 is the least.
LENGTHS = (-(2**31), -1_000_000, -400, -49, -13, -12, -11, -1, 0, 1, 13, 14, 48, 49, 50, 10_000, 2**31 - 13, 2**31 - 1)
#: No walk over these few KiB reads more often, and no loop that stands still ends before.
MOST_READS = 20_000


@pytest.fixture(autouse=True)
def _reads_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def counted(kind: type) -> None:
        pread, left = kind.pread, [MOST_READS]  # type: ignore[attr-defined]

        def limited(file: object, length: int, position: int) -> bytes:
            left[0] -= 1
            if not left[0]:
                pytest.exit(f"{kind.__name__}: a loop over damaged bytes does not end")
            data: bytes = pread(file, length, position)
            return data

        monkeypatch.setattr(kind, "pread", limited)

    counted(MemoryFile)
    counted(ReadableFile)


class Written:
    """A log of several segments after a clean stop."""

    def __init__(self) -> None:
        disk = MemoryDisk()
        disk.mkdirs(ROOT)
        log = new_log(disk, ROOT, CONFIG)
        for number in range(24):
            append(log, batch(3, timestamp=NOW_MS + 10 * number, size=20), leader_epoch=number // 9)
        self.end = log.log_end_offset
        log.close()
        self.folder = log.directory
        self.files = {name: disk.read_bytes(f"{self.folder}/{name}") for name in disk.listdir(self.folder)}
        self.logs = sorted(name for name in self.files if name.endswith(".log"))
        assert len(self.logs) > 3

    def places(self) -> Iterator[tuple[str, int]]:
        """The file and position of the length of every batch."""
        for name in self.logs:
            data, at = self.files[name], 0
            while at < len(data):
                yield name, at + 8
                at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")

    def disk(self, name: str, position: int, length: int) -> MemoryDisk:
        """The log with another length at that place."""
        disk = MemoryDisk()
        disk.mkdirs(self.folder)
        for each, content in self.files.items():
            data = bytearray(content)
            if each == name:
                struct.pack_into(">i", data, position, length)
            file = disk.open(f"{self.folder}/{each}", create=True)
            file.append([data])
            file.close()
        return disk


WRITTEN = Written()
PLACES = list(WRITTEN.places())


def opened(disk: MemoryDisk, *, clean: bool, recovery_point: int = 0) -> PartitionLog:
    at = place(ROOT, CONFIG, clean=clean, recovery_point=recovery_point)
    return load_log(LogResources(disk), at, NOW_MS)


def use(log: PartitionLog) -> None:
    """All that a running broker asks of a log."""
    for offset in range(log.log_start_offset, log.log_end_offset + 1):
        for max_bytes in (1, 300, 1 << 20):
            read = log.read(offset, max_bytes, up_to_offset=log.log_end_offset - 2)
            assert isinstance(read, LogRead | ReadRefusal)
            if isinstance(read, LogRead) and read.slice is not None and read.slice.release is not None:
                read.slice.release()
    for timestamp in range(NOW_MS - 5, NOW_MS + 250, 15):
        found = offset_for_timestamp(log, timestamp)
        assert found is None or isinstance(found, OffsetTimestamp | ReadRefusal)
    offset_of_max_timestamp(log)
    with suppress(BatchError):
        list(log.read_batches(0))
    assert append(log).first_offset == append(log).first_offset - 3
    confirm_expired(log, NOW_MS)
    delete_old_segments(log, NOW_MS)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_clean_start_and_all_that_is_read_then(length: int) -> None:
    for name, position in PLACES:
        disk = WRITTEN.disk(name, position, length)
        log = opened(disk, clean=True, recovery_point=WRITTEN.end)
        assert log.log_end_offset <= WRITTEN.end
        use(log)
        log.close()
        opened(disk, clean=True, recovery_point=log.log_end_offset)


@pytest.mark.parametrize("length", LENGTHS)
def test_recovery(length: int) -> None:
    chance = random.Random(length)
    for name, position in PLACES:
        disk = WRITTEN.disk(name, position, length)
        log = opened(disk, clean=False, recovery_point=chance.choice((0, 30, WRITTEN.end)))
        use(log)
        whole = opened(WRITTEN.disk(name, position, length), clean=False)
        kept = {record.offset for record in read_all(whole)}
        assert len(kept) == WRITTEN.end - 3, "what is behind the damaged batch stays"


@pytest.mark.parametrize("length", LENGTHS)
def test_compaction(length: int) -> None:
    for name, position in PLACES:
        disk = WRITTEN.disk(name, position, length)
        cleaning = Cleaning(disk, opened(disk, clean=True, recovery_point=WRITTEN.end))
        cleaning.clock.advance(cleaning.cleaner.settings.backoff_ms)
        end = cleaning.log.log_end_offset
        cleaning.cleaner.maintain({("orders", 0): cleaning.log}, cleaning.clock.now_ms())
        assert cleaning.log.log_end_offset == end


@pytest.mark.parametrize("length", LENGTHS)
def test_truncation(length: int) -> None:
    for number, (name, position) in enumerate(PLACES):
        disk = WRITTEN.disk(name, position, length)
        log = opened(disk, clean=True, recovery_point=WRITTEN.end)
        try:
            truncate_to(log, 7 * number % WRITTEN.end, NOW_MS)
        except (BatchError, DiskError):
            assert log.failure


@pytest.mark.parametrize("length", LENGTHS)
def test_commands(tmp_path: Path, length: int) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    for name, position in PLACES[::3]:
        for each, content in WRITTEN.files.items():
            data = bytearray(content)
            if each == name:
                struct.pack_into(">i", data, position, length)
            (folder / each).write_bytes(data)
        assert list(verify(RealDisk(), str(tmp_path), VerifyWish(), Tally()))
        assert list(dump(RealDisk(), str(tmp_path), DumpWish(records=RecordWish(), everything=True)))


@pytest.mark.parametrize("length", LENGTHS)
def test_other_partitions_are_served(tmp_path: Path, length: int) -> None:
    """On a real disk, which refuses to read before the begin of a file."""
    disk = RealDisk()
    clock = VirtualClock(NOW_MS)

    def manager() -> LogManager:
        made = LogManager(disk, clock, InlineExecutor(), [str(tmp_path)], lambda topic: CONFIG)
        assert made.open() is None
        return made

    first = manager()
    for topic in ("damaged", "sound"):
        log = first.create(topic, None, 0, CONFIG)
        for number in range(10):
            append(log, batch(3, timestamp=NOW_MS + number))
    first.close()
    path = max((tmp_path / "damaged-0").glob("*.log"))
    data = bytearray(path.read_bytes())
    at, last = 0, 0
    while at < len(data):
        last, at = at, at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    struct.pack_into(">i", data, last + 8, length)
    path.write_bytes(data)
    again = manager()
    assert again.failed_log_dirs == []
    sound = again.get("sound", 0)
    assert sound is not None
    assert [record.offset for record in read_all(sound)] == list(range(30))
    damaged = again.get("damaged", 0)
    assert damaged is not None
    assert [record.offset for record in read_all(damaged)] == list(range(27))
    again.close()
