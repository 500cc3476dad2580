"""What Apache Kafka's DumpLogSegments and `ottla log dump` say of the same files, in the same words."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ottla.env.disk import RealDisk
from ottla.inspection.batch_rows import RecordWish
from ottla.inspection.dump import DumpWish, dump
from support.java import java_tool

DUMP_LOG_SEGMENTS = "kafka.tools.DumpLogSegments"

Fields = dict[str, str]
#: The tool's name of a field: ours.
BATCH = {
    "baseOffset": "base_offset",
    "lastOffset": "last_offset",
    "count": "count",
    "baseSequence": "base_sequence",
    "lastSequence": "last_sequence",
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
    "partitionLeaderEpoch": "partition_leader_epoch",
    "isTransactional": "is_transactional",
    "isControl": "is_control",
    "deleteHorizonMs": "delete_horizon_ms",
    "position": "position",
    "size": "size",
    "magic": "magic",
    "compresscodec": "compression",
    "crc": "crc",
    "isvalid": "is_valid",
}
#: Of a message of an old format the tool prints fewer.
MESSAGE = {name: BATCH[name] for name in ("position", "size", "magic", "compresscodec", "crc", "isvalid")}
MESSAGE["offset"] = "last_offset"
RECORD = {"offset": "offset", "keySize": "key_size", "valueSize": "value_size"}
ABORTED = {
    "version": "version",
    "producerId": "producer_id",
    "firstOffset": "first_offset",
    "lastOffset": "last_offset",
    "lastStableOffset": "last_stable_offset",
}
PRODUCER = {
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
    "coordinatorEpoch": "coordinator_epoch",
    "currentTxnFirstOffset": "transaction_start",
    "lastTimestamp": "last_timestamp",
    "lastSequence": "last_sequence",
    "lastOffset": "last_offset",
    "offsetDelta": "offset_delta",
}
INDEX = {"offset": "offset", "position": "position"}
TIME_INDEX = {"timestamp": "timestamp", "offset": "offset"}
NAMES = {
    "batch": BATCH,
    "record": RECORD,
    "index-entry": INDEX,
    "time-index-entry": TIME_INDEX,
    "aborted-transaction": ABORTED,
    "producer": PRODUCER,
}
_FIELD = re.compile(r"(\w+): ?(\S+)")


def dumped_by_apache(files: Iterable[Path], *options: str) -> dict[str, list[Fields]]:
    """By file the fields of each line, in order."""
    names = ",".join(map(str, sorted(files)))
    lines = java_tool(DUMP_LOG_SEGMENTS, *options, "--files", names).stdout.splitlines()
    found: dict[str, list[Fields]] = {}
    for line in lines:
        if line.startswith("Dumping "):
            rows = found.setdefault(line.removeprefix("Dumping "), [])
        elif line.startswith("Log starting offset"):
            continue
        elif line.startswith("| "):
            fields = _fields(line.partition(" key: ")[0].partition(" payload: ")[0])
            rows.append({name: fields.get(name, "") for name in (*RECORD, "sequence")} | _time(fields))
        elif line.startswith("baseOffset"):
            fields = _fields(line)
            rows.append({name: fields[name] for name in BATCH} | _time(fields))
        elif ": " in line:
            rows.append(_fields(line))
    return found


def dumped_by_us(path: Path, records: bool = False) -> list[Fields]:
    """The fields of each row of a file, with the tool's names and in its spelling."""
    told = []
    for row in dump(RealDisk(), str(path), DumpWish(records=RecordWish(records=records))):
        names = MESSAGE if row.get("magic", 2) < 2 else NAMES.get(row["type"])
        if names is None:
            continue
        fields = {theirs: _spelled(row[ours]) for theirs, ours in names.items()}
        if row["type"] in ("batch", "record"):
            timestamp = row["max_timestamp" if row["type"] == "batch" else "timestamp"]
            fields |= {row["timestamp_type"]: str(timestamp)}
        if row["type"] == "record":
            fields["sequence"] = _spelled(row.get("sequence", "-1" if "headers" in row else ""))
        if row["type"] == "producer":
            start = row["transaction_start"]
            fields["currentTxnFirstOffset"] = "" if start < 0 else str(start)
        told.append(fields)
    return told


def _fields(line: str) -> Fields:
    return {name: re.sub(r"Optional(Long|Int)(\.empty|\[(.*)\])", r"\3", value) for name, value in _FIELD.findall(line)}


def _time(fields: Fields) -> Fields:
    return {name: fields[name] for name in ("CreateTime", "LogAppendTime", "NoTimestampType") if name in fields}


def _spelled(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
