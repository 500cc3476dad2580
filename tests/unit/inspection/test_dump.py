from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.env.disk import DiskError, RealDisk
from ottla.inspection.batch_rows import RecordWish
from ottla.inspection.directories import NothingThere
from ottla.inspection.dump import DumpWish, dump
from ottla.inspection.texts import TextFormat, field_of
from ottla.records.compression import Compression
from ottla.records.record import Record
from support.storage_logs import append, batch, log_config, new_log, of_records

pytestmark = pytest.mark.spec("L3")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log folder with a partition of several segments; returns the partition's."""
    log = new_log(RealDisk(), str(tmp_path), log_config(segment_bytes=2_000, index_interval_bytes=200))
    for number in range(30):
        append(log, batch(3, size=50, compression=list(Compression)[number % 5]))
    append(log, of_records([Record(0, 1_700_000_000_000, b"\x00\xff", None, (("h", b"x"), ("n", None)))]))
    log.close()
    return Path(log.directory)


def rows(path: Path, wish: DumpWish | None = None) -> list[dict[str, Any]]:
    return list(dump(RealDisk(), str(path), wish or DumpWish()))


def of_type(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [row for row in found if row["type"] == kind]


def test_a_partition_is_its_log(folder: Path) -> None:
    found = rows(folder)
    assert len(of_type(found, "file")) == len(list(folder.glob("*.log"))) > 2
    assert [row["base_offset"] for row in of_type(found, "batch")] == list(range(0, 91, 3))


def test_everything_is_every_file(folder: Path) -> None:
    found = rows(folder, DumpWish(everything=True))
    assert {row["path"] for row in of_type(found, "file")} == {str(path) for path in folder.iterdir()}
    assert {"index-entry", "time-index-entry", "leader-epoch"} <= {row["type"] for row in found}
    assert not of_type(found, "damage")


def test_records_in_a_range_of_offsets(folder: Path) -> None:
    wish = RecordWish(records=True, from_offset=40, until_offset=44)
    found = rows(folder, DumpWish(records=wish))
    assert [row["offset"] for row in of_type(found, "record")] == [40, 41, 42, 43]
    assert len(of_type(found, "file")) < len(list(folder.glob("*.log"))), "segments aside are not even opened"


def test_records_with_a_key(folder: Path) -> None:
    found = of_type(rows(folder, DumpWish(records=RecordWish(records=True, key=b"k1"))), "record")
    assert [row["offset"] for row in found] == list(range(1, 90, 3))


def test_what_is_no_text(folder: Path) -> None:
    (record,) = of_type(rows(folder, DumpWish(records=RecordWish(records=True, from_offset=90))), "record")
    assert record["key_hex"] == "00ff"
    assert record["value"] is None
    assert record["headers"] == [{"key": "h", "value": "x"}, {"key": "n", "value": None}]


@pytest.mark.parametrize(
    ("data", "wanted", "field"),
    [
        (b"abc", TextFormat.AUTO, ("key", "abc")),
        (b"a\x07", TextFormat.AUTO, ("key_hex", "6107")),
        (b"a\x07", TextFormat.TEXT, ("key", "a\x07")),
        (b"\xff", TextFormat.TEXT, ("key_hex", "ff")),
        (b'{"a": 1}', TextFormat.JSON, ("key", {"a": 1})),
        (b"{", TextFormat.JSON, ("key", "{")),
        (b"\xff\xfe", TextFormat.HEX, ("key_hex", "fffe")),
        (b"\xff\xfe", TextFormat.BASE64, ("key_base64", "//4=")),
        (b"\xff\xff\xff\xfe", TextFormat.INTEGER, ("key", -2)),
        (b"\xff\xff\xfe", TextFormat.INTEGER, ("key_hex", "fffffe")),
        (None, TextFormat.HEX, ("key", None)),
    ],
)
def test_formats_of_keys_and_values(data: bytes | None, wanted: TextFormat, field: tuple[str, Any]) -> None:
    assert field_of("key", data, wanted) == field


def test_a_log_directory_is_its_partitions_and_checkpoints(folder: Path) -> None:
    root = folder.parent
    (root / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 91\n")
    (root / "meta.properties").write_text("#\nversion=0\nbroker.id=3\n")
    (root / "gone-1.0123456789abcdef0123456789abcdef-delete").mkdir()
    found = rows(root)
    (partition,) = of_type(found, "partition")
    assert (partition["topic"], partition["partition"], partition["first_segment"]) == ("orders", 0, 0)
    assert partition["bytes"] == sum(path.stat().st_size for path in folder.glob("*.log"))
    assert of_type(found, "checkpoint")[0]["offset"] == 91
    assert {"type": "property", "name": "broker.id", "value": "3"} in found
    assert of_type(found, "folder")[0]["kind"] == "delete"
    assert of_type(rows(root, DumpWish(topic="orders", partition=0)), "batch")
    assert rows(root, DumpWish(topic="others")) == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("leader-epoch-checkpoint", b"no"),
        ("leader-epoch-checkpoint", b"0\n2\n0 0\n"),
        ("recovery-point-offset-checkpoint", b"\xff\xfe"),
        ("00000000000000000003.snapshot", b""),
        ("00000000000000000003.snapshot", b"\x00\x01" + bytes(50)),
        ("00000000000000000003.index", bytes(7) + b"x" * 6),
        ("00000000000000000003.timeindex", b"x" * 13),
        ("00000000000000000003.txnindex", b"x" * 35),
        ("00000000000000000003.log", b"x" * 300),
        ("partition.metadata", b"version: 0\n"),
    ],
)
def test_damaged_files_are_reported_as_such(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    (damage,) = of_type(rows(tmp_path / name), "damage")
    assert damage["reason"]


def test_unused_bytes_of_indexes_in_use(tmp_path: Path) -> None:
    index = tmp_path / f"{100:020}.index"
    index.write_bytes((5).to_bytes(4, "big") + (70).to_bytes(4, "big") + bytes(8 * 1000))
    found = rows(index)
    assert of_type(found, "index-entry") == [{"type": "index-entry", "offset": 105, "position": 70}]
    assert of_type(found, "unused") == [{"type": "unused", "position": 8, "size": 8000}]


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DiskError):
        rows(tmp_path / "missing")
    with pytest.raises(NothingThere):
        rows(tmp_path)
