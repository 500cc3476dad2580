"""Verify: what is sound is called sound, and each damage is found, placed and explained."""

from __future__ import annotations

import errno
import os
import random
import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from ottla.env.disk import DiskError, RealDisk
from ottla.env.file_reader import ReadableFile, is_locked_elsewhere
from ottla.inspection import verify as verify_module
from ottla.inspection.directories import NothingThere
from ottla.inspection.findings import LogFinding, Severity, Tally
from ottla.inspection.verify import VerifyWish, verify
from ottla.records.batch import frame_batch, parse_batch_header
from ottla.records.compression import Compression
from ottla.records.crc import crc32c
from ottla.records.message_set import encode_messages
from ottla.records.record import Record, encode_batch
from support.inspected_logs import fill, starts, transactional
from support.storage_logs import NOW_MS

pytestmark = pytest.mark.spec("L9")


def findings(path: Path, wish: VerifyWish | None = None) -> list[LogFinding]:
    return list(verify(RealDisk(), str(path), wish or VerifyWish(), Tally()))


def damage(path: Path, wish: VerifyWish | None = None) -> list[LogFinding]:
    return [each for each in findings(path, wish) if each.severity is Severity.DAMAGE]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("made"))


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A fresh copy of the folder."""
    return Path(shutil.copytree(made.parent, tmp_path / "data")) / made.name


def change(path: Path, position: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def logs(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def test_a_intact_directory(folder: Path) -> None:
    tally = Tally()
    assert list(verify(RealDisk(), str(folder.parent), VerifyWish(), tally)) == []
    assert (tally.partitions, tally.batches, tally.records) == (1, 60, 120)
    assert tally.files == len([*folder.iterdir(), *folder.parent.iterdir()]) - 1
    assert findings(folder) == []
    for path in folder.iterdir():
        assert findings(path) == [], path


@pytest.mark.parametrize("seed", range(8))
def test_flipped_bits_and_cut_files_of_every_kind_are_found(folder: Path, seed: int) -> None:
    """But for what does no harm and cannot be told: an index cut between entries, a last line end."""
    chance = random.Random(seed)
    files = [path for path in sorted(folder.iterdir()) if path.stat().st_size]
    files += sorted(folder.parent.glob("*checkpoint"))
    for _ in range(25):
        path = chance.choice(files)
        data = path.read_bytes()
        at = chance.randrange(len(data))
        if chance.random() < 0.3:
            harmless = {".index": at % 8 == 0, ".timeindex": at % 12 == 0}.get(path.suffix, at == len(data) - 1)
            path.write_bytes(data[:at])
            # An empty checkpoint is what a broker makes first.
            harmless = harmless or (at == 0 and path.parent == folder.parent)
        else:
            change(path, at, bytes((data[at] ^ 1 << chance.randrange(8),)))
            # A digit that became another one, a single entry within a batch: nothing contradicts them.
            harmless = path.suffix in ("", ".metadata") or len(data) <= 12
        found = [each for each in findings(folder.parent) if each.severity is not Severity.NOTICE]
        assert found or harmless, (path.name, at)
        if path.suffix == ".log":
            assert damage(folder.parent), (path.name, at)
        path.write_bytes(data)
    assert findings(folder.parent) == []


def test_a_damaged_batch_and_its_records(folder: Path) -> None:
    path = logs(folder)[0]
    second = 12 + int.from_bytes(path.read_bytes()[8:12], "big")
    change(path, second + 70, b"\xff\xff")
    (found,) = damage(folder)
    assert (found.kind, found.path, found.position) == ("batch", str(path), second)
    assert (found.first_offset, found.last_offset) == (2, 3)
    assert found.meaning == "the records 2 to 3 cannot be read"


@pytest.mark.parametrize("wrong", [0, 3, 5, 7, 1 << 40, -1])
def test_a_wrong_base_offset_is_reported_by_the_neighbours(folder: Path, wrong: int) -> None:
    path = logs(folder)[0]
    data = path.read_bytes()
    third = sum(12 + int.from_bytes(data[at + 8 : at + 12], "big") for at in starts(data)[:2])
    change(path, third, wrong.to_bytes(8, "big", signed=True))
    found = damage(folder)[0]
    assert found.kind == "offset"
    assert found.remedy is not None
    assert found.remedy.patches == ((third, (4).to_bytes(8, "big")),)


@pytest.mark.parametrize("which", [0, 1, 3, -1])
def test_a_wrong_leader_epoch(folder: Path, which: int) -> None:
    path = logs(folder)[1]
    at = starts(path.read_bytes())[which] + 12
    right = path.read_bytes()[at : at + 4]
    change(path, at, (77).to_bytes(4, "big"))
    (found,) = damage(folder)
    assert found.kind == "epoch"
    assert found.remedy is not None
    assert found.remedy.patches == ((at, right),)


def test_a_checkpoint_of_epochs_that_the_log_contradicts(folder: Path) -> None:
    path = folder / "leader-epoch-checkpoint"
    lines = path.read_text().replace(" 50", " 46")
    path.write_text(lines)
    (found,) = damage(folder)
    assert (found.kind, found.path) == ("epochs", str(path))


def test_missing_offsets(folder: Path) -> None:
    path = logs(folder)[1]
    data = path.read_bytes()
    at = starts(data)
    base = int.from_bytes(data[at[2] : at[2] + 8], "big")
    path.write_bytes(data[: at[2]] + data[at[3] :])
    for index in (path.with_suffix(".index"), path.with_suffix(".timeindex")):
        index.unlink()
    (found,) = damage(folder)
    assert (found.kind, found.first_offset, found.last_offset) == ("gap", base, base + 1)
    assert damage(folder, VerifyWish(compacted=True)) == []
    (folder.parent / "cleaner-offset-checkpoint").write_text(f"0\n1\norders 0 {base + 2}\n")
    assert damage(folder) == []
    (folder.parent / "cleaner-offset-checkpoint").write_text(f"0\n1\norders 0 {base}\n")
    assert len(damage(folder)) == 1, "behind the compacted part nothing may be missing"


def test_a_log_that_lost_its_end(folder: Path) -> None:
    """Cut between two batches: only other files know that there was more."""
    last = logs(folder)[-1]
    data = last.read_bytes()
    last.write_bytes(data[: starts(data)[-1]])
    for suffix in (".index", ".timeindex"):
        last.with_suffix(suffix).unlink()
    found = damage(folder.parent)
    assert {each.kind for each in found} == {"lost-end"}
    assert {Path(each.path).name for each in found} >= {
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
    }
    assert {(each.first_offset, each.last_offset) for each in found} == {(118, 119)}


def test_the_tail_of_a_directory_in_use(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    last = logs(folder)[-1]
    last.write_bytes(last.read_bytes() + encode_batch([Record(0, NOW_MS, b"k", b"v" * 99)], base_offset=120)[:80])
    (found,) = damage(folder)
    assert found.kind == "cut-off"
    monkeypatch.setattr(verify_module, "is_locked_elsewhere", lambda path: True)
    (found,) = findings(folder)
    assert (found.severity, found.kind) == (Severity.NOTICE, "tail")


def test_zeros_behind_the_last_batch_are_a_warning(folder: Path) -> None:
    last = logs(folder)[-1]
    last.write_bytes(last.read_bytes() + bytes(10_000))
    (found,) = findings(folder)
    assert (found.severity, found.kind) == (Severity.WARNING, "zeros")


def test_files_that_are_missing_or_left_over(folder: Path) -> None:
    logs(folder)[0].with_suffix(".index").unlink()
    (folder / "00000000000000009999.timeindex").write_bytes(b"")
    (folder / "00000000000000000000.log.deleted").write_bytes(b"")
    kinds = {each.kind: each.severity for each in findings(folder)}
    assert kinds == {"missing-index": Severity.WARNING, "orphan": Severity.WARNING, "passing": Severity.NOTICE}


def test_a_topic_id_is_known_from_other_partitions(folder: Path) -> None:
    other = Path(shutil.copytree(folder, folder.parent / "orders-1"))
    (other / "partition.metadata").write_text("")
    (found,) = [each for each in damage(folder.parent) if each.kind == "topic-id"]
    assert found.remedy is not None
    assert found.remedy.content == (folder / "partition.metadata").read_bytes()
    (other / "partition.metadata").write_text("version: 0\ntopic_id: BBBBBBBBBBBBBBBBBBBBAQ")
    assert "topic-id" in {each.kind for each in damage(folder.parent)}


@pytest.mark.parametrize(
    "content",
    ["", "version=7\n", "version=0\nbroker.id=x\n", "version=0\nbroker.id=1\nnonsense\n", "\xff\xfe"],
)
def test_meta_properties(folder: Path, content: str) -> None:
    (folder.parent / "meta.properties").write_text(content, encoding="latin-1")
    (found,) = damage(folder.parent)
    assert found.kind == "meta"
    (folder.parent / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    assert damage(folder.parent) == [], "a folder of a KRaft node is one, too"


@pytest.mark.parametrize(
    ("change_entries", "sound"),
    [
        (lambda entries: entries, True),
        (lambda entries: entries[:1], False),
        (lambda entries: [], False),
        (lambda entries: [(0, 9, *entries[0][2:]), entries[1]], False),
        (lambda entries: [(1, *entries[0][1:]), entries[1]], False),
        (lambda entries: [(*entries[0][:2], 1, *entries[0][3:]), entries[1]], False),
        (lambda entries: [(*entries[0][:4], 7), entries[1]], False),
        (lambda entries: [*entries, (0, 3, 11, 12, 13)], False),
        (lambda entries: entries[::-1], False),
    ],
)
def test_transaction_indexes(tmp_path: Path, change_entries: Callable[[list], list], sound: bool) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (one, three) = transactional(folder / f"{0:020}.log")
    entries = [(0, *one, 2), (0, *three, three[2] + 1)]
    packed = b"".join(struct.pack(">hqqqq", *entry) for entry in change_entries(entries))
    (folder / f"{0:020}.txnindex").write_bytes(packed)
    found = damage(folder)
    assert [each.kind for each in found] == ([] if sound else ["index"])


@pytest.mark.parametrize(("first", "stable", "sound"), [(-2, 0, True), (0, -3, True), (1, 0, False), (0, 1, False)])
def test_the_first_batches_of_a_transaction_may_have_been_compacted_away(
    tmp_path: Path, first: int, stable: int, sound: bool
) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    one, three = transactional(folder / f"{0:020}.log")
    entries = [(0, *one, 2), (0, three[0], three[1] + first, three[2], three[2] + 1 + stable)]
    (folder / f"{0:020}.txnindex").write_bytes(b"".join(struct.pack(">hqqqq", *entry) for entry in entries))
    assert [each.kind for each in damage(folder)] == ["index"]
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 1\n")
    assert [each.kind for each in damage(tmp_path) if each.kind == "index"] == ([] if sound else ["index"])


def test_heads_that_compaction_left_open_no_transaction(tmp_path: Path) -> None:
    """Of a committed transaction the heads of its batches may stay longer than its marker does."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    path = folder / f"{0:020}.log"
    one, three = transactional(path)
    data = path.read_bytes()
    begins = [*starts(data), len(data)]
    pieces = [data[begin:end] for begin, end in pairwise(begins)]
    for number in (1, 3):
        pieces[number] = frame_batch(b"", replace(parse_batch_header(pieces[number]), records_count=0))
    del pieces[4]
    path.write_bytes(b"".join(pieces))
    entries = [(0, *one, 2), (0, *three, three[2] + 1)]
    (folder / f"{0:020}.txnindex").write_bytes(b"".join(struct.pack(">hqqqq", *entry) for entry in entries))
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 8\n")
    assert [each for each in damage(tmp_path) if each.kind == "index"] == []


def test_old_formats(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    data = b""
    for magic in (0, 1):
        for codec in (Compression.NONE, Compression.GZIP):
            first = 10 * magic + 5 * codec
            content = [Record(first + n, NOW_MS if magic else -1, b"k", b"v") for n in range(5)]
            data += encode_messages(content, magic, compression=codec)
    path = folder / f"{0:020}.log"
    path.write_bytes(data)
    assert damage(folder) == []
    damaged = bytearray(data)
    damaged[-10] ^= 1
    path.write_bytes(damaged)
    (found,) = damage(folder)
    assert found.first_offset == 15


def test_records_that_were_written_wrong(tmp_path: Path) -> None:
    """The checksum is right, the number of records is not: a broken producer, and no client can read it."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    data = bytearray(encode_batch([Record(0, NOW_MS, b"k", b"v")] * 3))
    data[57:61] = (4).to_bytes(4, "big")
    data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
    (folder / f"{0:020}.log").write_bytes(data)
    (found,) = damage(folder)
    assert found.kind == "records"
    assert damage(folder, VerifyWish(records=False)) == []


def test_what_cannot_be_judged(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(NothingThere):
        findings(tmp_path / "notes.txt")
    with pytest.raises(NothingThere):
        findings(tmp_path)
    (tmp_path / f"{0:020}.index").write_bytes(b"")
    with pytest.raises(NothingThere):
        findings(tmp_path / f"{0:020}.index")


def test_nobody_holds_a_lock_that_nobody_took(tmp_path: Path) -> None:
    assert not is_locked_elsewhere(str(tmp_path / ".lock"))
    (tmp_path / ".lock").write_bytes(b"")
    assert not is_locked_elsewhere(str(tmp_path / ".lock"))


@pytest.mark.parametrize("number", [errno.EIO, errno.EISDIR])
def test_a_file_that_the_disk_does_not_give_is_reported_and_the_others_are_checked(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    bad, later = logs(folder)[0], logs(folder)[-1]
    change(later, 70, bytes(8))
    read = ReadableFile.pread

    def failing(file: ReadableFile, length: int, position: int) -> bytes:
        if file.path == str(bad):
            raise DiskError("read", file.path, number)
        return read(file, length, position)

    monkeypatch.setattr(ReadableFile, "pread", failing)
    found = damage(folder)
    [told] = [each for each in found if each.kind == "unreadable"]
    assert told.path == str(bad)
    assert told.message == f"cannot read {bad}: {os.strerror(number)}"
    assert any(each.path == str(later) for each in found), "the check goes on behind it"


def test_what_is_not_ours_to_read_ends_the_check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(file: ReadableFile, length: int, position: int) -> bytes:
        raise DiskError("read", file.path, errno.EACCES)

    monkeypatch.setattr(ReadableFile, "pread", failing)
    with pytest.raises(DiskError, match="Permission denied"):
        findings(folder)


def test_more_records_than_the_bytes_can_hold_are_damage(tmp_path: Path) -> None:
    whole = encode_batch([Record(0, 0, b"k", b"v", ())])
    count = bytearray(whole)
    struct.pack_into(">i", count, 57, 2**31 - 1)
    struct.pack_into(">i", count, 23, 2**31 - 2)
    struct.pack_into(">I", count, 17, crc32c(count[21:]))
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(count)
    [told] = damage(path)
    assert "cannot hold the declared number of 2147483647 records" in told.message
