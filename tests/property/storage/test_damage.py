"""Flipped bits and cut files of every kind: no corrupt record is served, no sound one lost, and it is told.

Damage that no checksum covers is found when the log is checked: by `ottla log verify`, and at a start after an unclean
stop, from the recovery point on. So each folder is opened three times: as it was left by a clean stop (which trusts
what lies on the disk: a client that checks what it gets accepts nothing wrong), by the check, and as after a loss of
everything that says where recovery may begin.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from ottla.env.clock import VirtualClock
from ottla.env.disk import RealDisk
from ottla.env.executor import InlineExecutor
from ottla.inspection.findings import Tally
from ottla.inspection.verify import VerifyWish, verify
from ottla.records.batch import BatchHeader, check_crc, split_batches
from ottla.records.compression import Compression
from ottla.records.control import ControlRecordType, end_transaction_record
from ottla.records.errors import BatchError
from ottla.records.record import Record, decode_batch
from ottla.storage.log import COORDINATOR, AppendInfo, PartitionLog
from ottla.storage.manager import LogManager
from ottla.storage.results import LogRead
from ottla.storage.truncation import delete_records
from support.storage_logs import NOW_MS, log_config, of_records

CONFIG = log_config(segment_bytes=1500, index_interval_bytes=300)
DISK = RealDisk()
#: Files that have no checksum and in which one digit is as good as another: what they say is believed.
PLAIN_TEXT = ("checkpoint", "meta.properties", "partition.metadata", ".kafka_cleanshutdown", ".lock")

pytestmark = [pytest.mark.spec("L9"), pytest.mark.slow]


def opened(root: Path) -> LogManager:
    manager = LogManager(DISK, VirtualClock(NOW_MS), InlineExecutor(), [str(root)], lambda topic: CONFIG)
    refusal = manager.open()
    if refusal is not None and "checkpoint: version" in refusal.message:
        # Its version was hit, so that it seems to be a later release's: the file is named, and removed.
        Path(refusal.message.partition(":")[0]).unlink()
        refusal = manager.open()
    assert refusal is None, refusal
    return manager


@dataclass
class Content:
    """What was written: the values by topic and offset, and the batches of each log file."""

    values: dict[tuple[str, int], bytes]
    batches: dict[str, list[BatchHeader]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Content]:
    """A folder after a clean stop: several segments, producers, leader epochs, compressed and plain batches."""
    root = tmp_path_factory.mktemp("whole")
    chosen = random.Random(4)
    manager = opened(root)
    assert manager.directories.claim("cluster", 1) is None
    values = {}
    for topic in ("plain", "packed"):
        log = manager.create(topic, None, 0)
        sequence = 0
        for number in range(60):
            count = chosen.randint(1, 6)
            start = log.log_end_offset
            content = [
                Record(
                    each,
                    NOW_MS + start,
                    b"key",
                    b"%d of %s %d" % (start + each, topic.encode(), chosen.randrange(1 << 60)),
                )
                for each in range(count)
            ]
            codec = chosen.choice(list(Compression)) if topic == "packed" else Compression.NONE
            buf = of_records(content, compression=codec, producer_id=3, producer_epoch=0, base_sequence=sequence)
            sequence += count
            info = log.append(buf, leader_epoch=number // 25, now_ms=NOW_MS)
            assert isinstance(info, AppendInfo)
            for each, record in enumerate(content):
                values[topic, start + each] = record.value or b""
        delete_records(log, 5)
    log = manager.create("packed", None, 1)
    for number in range(12):
        transaction(log, number, values)
    manager.close()
    batches = {str(path.relative_to(root)): split_batches(path.read_bytes()) for path in sorted(root.rglob("*.log"))}
    return root, Content(values, batches)


def transaction(log: PartitionLog, number: int, values: dict[tuple[str, int], bytes]) -> None:
    """Write two batches of a transaction and the marker that ends it: every second one is aborted."""
    start = log.log_end_offset
    for each in range(2):
        value = b"transaction %d %d" % (number, each)
        buf = of_records(
            [Record(0, NOW_MS, b"key", value)],
            producer_id=9,
            producer_epoch=0,
            base_sequence=2 * number + each,
            is_transactional=True,
        )
        info = log.append(buf, leader_epoch=0, now_ms=NOW_MS, origin=COORDINATOR)
        assert isinstance(info, AppendInfo), info
        values["transactions", start + each] = value
    kind = ControlRecordType.ABORT if number % 2 else ControlRecordType.COMMIT
    key, value = end_transaction_record(kind, 1)
    marker = of_records(
        [Record(0, NOW_MS, key, value)], producer_id=9, producer_epoch=0, is_transactional=True, is_control=True
    )
    info = log.append(marker, leader_epoch=0, now_ms=NOW_MS, origin=COORDINATOR)
    assert isinstance(info, AppendInfo), info
    values["transactions", start + 2] = value


def accepted(log: PartitionLog, from_offset: int) -> dict[int, bytes]:
    """What a client accepts that checks checksums and offsets, and continues behind what it cannot take."""
    found: dict[int, bytes] = {}
    offset = from_offset
    while offset < log.log_end_offset:
        read = log.read(offset, 600)
        after = offset + 1
        if isinstance(read, LogRead) and read.slice is not None:
            data = read.slice.read()
            if read.slice.release is not None:
                read.slice.release()
            try:
                headers = split_batches(data, partial_tail=True)
            except BatchError:
                headers = []
            for header in headers:
                if not check_crc(data, header) or not header.base_offset <= offset <= header.last_offset:
                    break
                for record in decode_batch(data, header):
                    found[record.offset] = record.value or b""
                offset = after = header.next_offset
        offset = after
    return {number: value for number, value in found.items() if number >= from_offset}


@dataclass
class Harm:
    """One damage: which file, and where it begins and ends."""

    name: str
    start: int
    end: int
    cut: bool


def harm(root: Path, chosen: random.Random) -> Harm:
    """Damage one file: each kind is as likely as the others."""
    kinds: dict[str, list[Path]] = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.stat().st_size:
            kinds.setdefault(path.suffix or path.name, []).append(path)
    path = chosen.choice(kinds[chosen.choice(sorted(kinds))])
    data = bytearray(path.read_bytes())
    position = chosen.randrange(len(data))
    if chosen.random() < 0.25:
        path.write_bytes(bytes(data[:position]))
        return Harm(str(path.relative_to(root)), position, len(data), True)
    data[position] ^= 1 << chosen.randrange(8)
    path.write_bytes(bytes(data))
    return Harm(str(path.relative_to(root)), position, position + 1, False)


def hit(content: Content, harmed: Harm) -> tuple[set[int], bool]:
    """The offsets of the damaged batches, and whether what is damaged lies outside their checksums."""
    lost: set[int] = set()
    unseen = False
    for header in content.batches.get(harmed.name, ()):
        if header.position < harmed.end and harmed.start < header.position + header.length:
            lost |= set(range(header.base_offset, header.next_offset))
            inside = harmed.start - header.position
            unseen = unseen or (not harmed.cut and (inside < 8 or 12 <= inside < 16))
    return lost, unseen


def check(whole: tuple[Path, Content], tmp_path: Path, seed: int) -> None:
    original, content = whole
    root = tmp_path / str(seed)
    shutil.copytree(original, root)
    harmed = harm(root, random.Random(seed))
    lost, unseen = hit(content, harmed)
    in_text = harmed.name.endswith(PLAIN_TEXT)
    reported = [str(finding) for finding in verify(DISK, str(root), VerifyWish(), Tally())]
    shutil.copytree(root, trusting := root.with_name(f"{seed}-clean"))
    if harmed.name != "meta.properties":
        reported += look(trusting, content, set() if in_text else lost, harmed, trusted=True, unseen=unseen)
        for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
            (root / name).unlink(missing_ok=True)
        reported += look(root, content, lost, harmed, trusted=False, unseen=unseen)
    # What an entry of an index says may be less exact than it was, and still true.
    assert reported or in_text or harmed.name.endswith((".index", ".timeindex")), harmed
    shutil.rmtree(root)
    shutil.rmtree(trusting)


def look(root: Path, content: Content, lost: set[int], harmed: Harm, *, trusted: bool, unseen: bool) -> list[str]:
    """Open the folder, read everything, continue writing; returns what was told."""
    manager = opened(root)
    notes = list(manager.notes)
    for topic, partition in (("plain", 0), ("packed", 0), ("packed", 1)):
        log = manager.get(topic, partition)
        assert log is not None
        here = lost if harmed.name.startswith(f"{topic}-{partition}") else set()
        found = accepted(log, log.log_start_offset)
        written = "transactions" if partition else topic
        expected = {offset: value for (name, offset), value in content.values.items() if name == written}
        # What is wrong within reason is told by comparing with the log, which a trusting start does not.
        if partition and not here and not (trusted and harmed.name.endswith(".txnindex")):
            aborted = log.aborted_transactions(log.log_start_offset, log.log_end_offset)
            assert [each.first_offset for each in aborted] == list(range(3, 36, 6)), (harmed, aborted, notes)
        if harmed.name != "log-start-offset-checkpoint":
            assert log.log_start_offset <= 5 or here
            first = 0 if partition else 5
        else:
            first = log.log_start_offset
        wrong = {offset for offset, value in found.items() if expected.get(offset) != value}
        assert not wrong or (unseen and here), (harmed, wrong)
        missing = {offset for offset in expected if offset >= first and offset not in found} - here
        assert not missing or (trusted and here), (harmed, sorted(missing), notes)
        end = log.log_end_offset
        assert end >= max(expected) + 1 or here, (harmed, end)
        info = log.append(of_records([Record(0, NOW_MS, b"k", b"new")]), leader_epoch=9, now_ms=NOW_MS)
        assert isinstance(info, AppendInfo)
        assert info.first_offset == end
        assert accepted(log, end) == {end: b"new"}
    manager.close()
    return notes


@pytest.mark.parametrize("seed", range(60))
def test_damage(whole: tuple[Path, Content], tmp_path: Path, seed: int) -> None:
    check(whole, tmp_path, seed)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("hundred", range(10))
def test_a_thousand_damages(whole: tuple[Path, Content], tmp_path: Path, hundred: int) -> None:
    for seed in range(1000 + 100 * hundred, 1100 + 100 * hundred):
        check(whole, tmp_path, seed)
