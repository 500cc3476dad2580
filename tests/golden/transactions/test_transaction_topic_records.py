"""The records of `__transaction_state` against those that Apache Kafka's own classes write and read.

`records.txt` is what `TransactionTopicRecords.java` prints; record it again with `OTTLA_RECORD=1`. The tagged fields,
which Apache Kafka 3.9 keeps without a name, were compared once with the class of 4.0.0, which names them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from ottla.txn.metadata import TransactionMetadata
from ottla.txn.records import TransactionRecord, decode_record, encode_record
from ottla.txn.states import STATE_IDS, TransactionState
from support.java import java_tool

HERE = Path(__file__).parent
RECORDED = HERE / "records.txt"
RECORDER = str(HERE / "TransactionTopicRecords.java")
ID = "trånsactional"

pytestmark = pytest.mark.spec("X1")


def recorded() -> dict[str, bytes]:
    lines = (line.split(" ") for line in RECORDED.read_text().splitlines())
    return {name: bytes.fromhex(data) for name, data in lines}


def metadata(state: TransactionState, **tagged: int) -> TransactionMetadata:
    is_empty = state is TransactionState.EMPTY
    partitions = frozenset([] if is_empty else [("__consumer_offsets", 7), ("tøpic", 0), ("tøpic", 5)])
    start_ms = -1 if is_empty else 1700000000000
    return TransactionMetadata(1234567890123, 32766, 60_000, state, 1700000000001, partitions, start_ms, **tagged)


TAGGED = metadata(
    TransactionState.PREPARE_COMMIT,
    previous_producer_id=1234567890122,
    next_producer_id=1234567890124,
    client_transaction_version=2,
)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("number", range(6))
def test_every_state_is_read_and_written_as_apache_kafka_does(number: int, version: int):
    known = recorded()
    record = TransactionRecord(ID, metadata(STATE_IDS[number]))
    key, value = known["key-v0"], known[f"value-{number}-v{version}"]
    assert encode_record(record, version) == (key, value)
    assert decode_record(key, value) == record


def test_tagged_fields():
    known = recorded()
    record = TransactionRecord(ID, TAGGED)
    assert encode_record(record, 1) == (known["key-v0"], known["tagged-value-v1"])
    assert decode_record(known["key-v0"], known["tagged-value-v1"]) == record


def test_what_is_written_today():
    known = recorded()
    empty = TransactionMetadata(1234567890123, 32766, 60_000, TransactionState.EMPTY, 1700000000001)
    key, value = encode_record(TransactionRecord("t", empty), 0)
    assert (key, value) == (known["written-key"], known["written-empty"])
    for state, name, partitions in (
        (TransactionState.ONGOING, "written-ongoing", frozenset({("t", 3)})),
        (TransactionState.COMPLETE_COMMIT, "written-complete", frozenset()),
    ):
        full = TransactionMetadata(1234567890123, 32766, 60_000, state, 1700000000001, partitions, 1700000000000)
        assert encode_record(TransactionRecord("t", full), 0)[1] == known[name]


@pytest.mark.needs_kafka
@pytest.mark.slow
def test_the_recorded_bytes_are_those_of_apache_kafka():
    printed = java_tool(RECORDER).stdout
    if os.environ.get("OTTLA_RECORD"):
        RECORDED.write_text(printed)
    assert printed == RECORDED.read_text()


@pytest.mark.needs_kafka
@pytest.mark.slow
def test_apache_kafka_reads_ours():
    written = [
        encode_record(TransactionRecord(ID, metadata(state)), version) for state in STATE_IDS[:6] for version in (0, 1)
    ]
    written.append(encode_record(TransactionRecord(ID, TAGGED), 1))
    arguments = [part.hex() for record in written for part in record if part is not None]
    read = java_tool(RECORDER, *arguments).stdout.splitlines()
    states = [match[1] for line in read if (match := re.search(r"\bstate=(\w+)", line))]
    assert states == [state.value for state in STATE_IDS[:6] for _ in (0, 1)] + ["PrepareCommit"]
    for line in read:
        assert "producerId=1234567890123," in line
        assert ("tøpic-5" in line) is ("state=Empty" not in line)
