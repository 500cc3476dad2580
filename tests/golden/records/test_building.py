"""The builder of batches and the hash of keys against Apache Kafka's classes, in plain Python and compiled."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from types import ModuleType

import pyarrow
import pytest

from ottla.records import _building, from_arrow
from ottla.records.batch import patch_batch
from ottla.records.building import finish_batch
from ottla.records.from_arrow import encode_arrow, source_of
from support.java import java_command
from support.processes import run_tool

RECORDED = Path(__file__).with_name("batches.txt")
T = 1_700_000_000_000
LEADER_EPOCH = 9
KEYS = 10_000
#: SHA-256 of what `KeyHashes.java 10000` prints, as big-endian numbers of 32 bits.
KEY_HASHES = "97ec8bbd4f030a50bc94305e399d40c47da06a860f1d4f7e7a9fd3c3f2d14fb2"
RECORDS = [
    (T, b"key", b"value", ()),
    (T - 100_000, None, b"earlier than the first", ()),
    (T + 5, b"tombstone", None, ()),
    (T + 6, None, None, ()),
    (T + 3_000_000_000, b"", b"", (("trace", b"1"), ("größe", None), ("", b""))),
]


@pytest.fixture(params=["python", "compiled"])
def builders(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    chosen = _building
    if request.param == "compiled":
        chosen = pytest.importorskip("ottla.records._building_native", reason="not compiled here")
    for name in ("RecordsBuilder", "SourceColumns", "Strings"):
        monkeypatch.setattr(from_arrow, name, getattr(chosen, name))
    return chosen


def recorded(name: str) -> bytes:
    [found] = [line for line in RECORDED.read_text().splitlines() if line.startswith(f"{name} ")]
    return bytes.fromhex(found.split(" ")[1])


def appended(batch: bytes, base_offset: int) -> bytes:
    """As a leader writes it to its log."""
    placed = bytearray(batch)
    patch_batch(placed, 0, base_offset, LEADER_EPOCH)
    return bytes(placed)


@pytest.mark.spec("P3")
def test_the_builders_bytes_are_kafkas(builders: ModuleType) -> None:
    builder = builders.RecordsBuilder()
    for record in RECORDS:
        builder.append(*record)
    assert appended(finish_batch(builder), 5) == recorded("mixed-none")
    identity = {"producer_id": 4001, "producer_epoch": 3}
    idempotent = finish_batch(builder, base_sequence=0x7FFFFFFF, **identity)
    assert appended(idempotent, 7) == recorded("idempotent")
    transactional = finish_batch(builder, base_sequence=12, is_transactional=True, **identity)
    assert appended(transactional, 7) == recorded("transactional")


@pytest.mark.spec("P3")
def test_bytes_from_arrow_are_kafkas(builders: ModuleType) -> None:
    timestamps, keys, values, headers = zip(*RECORDS, strict=True)
    pairs = [[{"key": name, "value": value} for name, value in each] for each in headers]
    kind = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))
    source = source_of(
        pyarrow.array(values, pyarrow.binary()),
        pyarrow.array(keys, pyarrow.binary()),
        pyarrow.array(timestamps, pyarrow.timestamp("ms")),
        pyarrow.array(pairs, kind),
    )
    [batch] = encode_arrow(source, 100_000)
    assert appended(batch, 5) == recorded("mixed-none")


def keys() -> list[bytes]:
    return [hashlib.sha512(b"key-%d" % number).digest()[: number % 65] for number in range(KEYS)]


@pytest.mark.spec("P3")
def test_hashes_of_keys_are_javas(builders: ModuleType) -> None:
    hashes = [builders.murmur2(key) for key in keys()]
    assert hashlib.sha256(struct.pack(f">{KEYS}I", *hashes)).hexdigest() == KEY_HASHES
    column = from_arrow.strings_of(pyarrow.array(keys(), pyarrow.binary()))
    assert list(builders.partitions_for_keys(column, 17)) == [(hashed & 0x7FFFFFFF) % 17 for hashed in hashes]


@pytest.mark.needs_kafka
def test_the_recorded_hashes_are_those_of_kafkas_jars() -> None:
    told = run_tool(java_command(str(Path(__file__).with_name("KeyHashes.java")), str(KEYS))).stdout
    hashes = [int(line) for line in told.split()]
    assert hashlib.sha256(struct.pack(f">{KEYS}i", *hashes)).hexdigest() == KEY_HASHES
