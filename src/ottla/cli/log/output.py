"""How `ottla log` writes rows as tables, and findings as text.

A table is aligned page by page, so that a log of any size is shown as it is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.cli.terminal import Column as TableColumn
from ottla.cli.terminal import Terminal

if TYPE_CHECKING:
    from ottla.inspection.findings import LogFinding, Tally

Row = dict[str, Any]

#: Rows that are aligned with each other.
PAGE_ROWS: Final = 200
#: Characters of a cell; what is longer is cut, in tables only.
WIDEST_CELL: Final = 60
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

#: Columns of a table by the type of the row: heading and what stands in it.
_Column = tuple[str, Callable[[Row], Any]]


def write_table(rows: Iterable[Row], terminal: Terminal) -> None:
    """Pages of rows of one type, under headings where the type changes; records are indented under their batch."""
    shown = ""
    for kind, page in _pages(rows):
        if kind in _SENTENCES:
            for row in page:
                terminal.line(_SENTENCES[kind](row))
            shown = kind
            continue
        columns = [column for column in _COLUMNS.get(kind) or _plain(page[0]) if _used(column, page)]
        terminal.table(
            [TableColumn(heading, partial(_cell, get)) for heading, get in columns],
            page,
            indent="    " if kind == "record" else "  ",
            headings=kind != shown or kind != "record",
        )
        shown = kind


def finding_row(finding: LogFinding) -> Row:
    """A finding as an object."""
    row: Row = {"type": "finding", "severity": str(finding.severity), "kind": finding.kind, "path": finding.path}
    if finding.position >= 0:
        row |= {"position": finding.position, "size": finding.length}
    if finding.first_offset is not None:
        row |= {"first_offset": finding.first_offset, "last_offset": finding.last_offset}
    row |= {"message": finding.message, "meaning": finding.meaning}
    return row | {"remedy": None if finding.remedy is None else str(finding.remedy.kind)}


def finding_lines(finding: LogFinding) -> str:
    """A finding in words: where and what, and what it means."""
    place = f" at position {finding.position}, {finding.length} bytes" if finding.position >= 0 else ""
    meaning = f"  {finding.meaning}\n" if finding.meaning else ""
    return f"{finding.severity.upper()}  {finding.path}{place}: {finding.message}\n{meaning}"


def remedy_line(finding: LogFinding) -> str:
    """The remedy of a finding, in one line."""
    remedy = finding.remedy
    if remedy is None:
        return ""
    kept = " and keep them beside it" if remedy.keep else ""
    deeds = {
        "patch": f"write {sum(len(patch.data) for patch in remedy.patches)} bytes of the batch's head again",
        "cut": f"take {remedy.length} bytes out of the log{kept}",
        "rebuild indexes": "rebuild the indexes of the segment from its log",
        "rebuild leader epochs": "rebuild the leader epochs from the logs",
        "keep what can be read": "write it again with the entries that can be read",
        "move aside": "rename it; brokers create it again",
        "write anew": "write it again",
    }
    return f"  -> {deeds[remedy.kind]}\n"


def summary_row(tally: Tally) -> Row:
    """Summary of a check, as an object."""
    counts = {str(severity): count for severity, count in sorted(tally.findings.items())}
    row: Row = {"type": "summary", "partitions": tally.partitions, "files": tally.files, "bytes": tally.bytes}
    return row | {"batches": tally.batches, "records": tally.records, "findings": counts, "sound": not tally.damaged}


def summary_line(tally: Tally) -> str:
    """Summary of a check in one line."""
    counted = {"file": tally.files, "batch": tally.batches, "record": tally.records}
    went = ", ".join(f"{count:,} {_plural(name, count)}" for name, count in counted.items())
    went += f", {tally.bytes:,} bytes of logs"
    found = [
        f"{count} {severity}" + ("s" if count > 1 and severity != "damage" else "")
        for severity, count in sorted(tally.findings.items())
    ]
    return f"{went}: {', '.join(found) or 'intact'}\n"


def _plural(name: str, count: int) -> str:
    if count == 1:
        return name
    return f"{name}es" if name.endswith("ch") else f"{name}s"


def instant(timestamp_ms: int) -> str:
    """A timestamp as people read it, "-" without one."""
    if timestamp_ms < 0:
        return "-"
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03}"


def _pages(rows: Iterable[Row]) -> Iterator[tuple[str, list[Row]]]:
    page: list[Row] = []
    for row in rows:
        if page and (row["type"] != page[0]["type"] or len(page) >= PAGE_ROWS):
            yield page[0]["type"], page
            page = []
        page.append(row)
    if page:
        yield page[0]["type"], page


def _used(column: _Column, page: list[Row]) -> bool:
    """Whether a column has anything to say on a page: producers and epochs mostly have not."""
    return any(column[1](row) not in (None, "", -1) for row in page)


def _cell(get: Callable[[Row], Any], row: Row) -> str:
    value = get(row)
    if value is None:
        return "-"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if not text.isprintable():
        text = json.dumps(text, ensure_ascii=False)[1:-1]
    return text if len(text) <= WIDEST_CELL else text[: WIDEST_CELL - 1] + "…"


def _plain(row: Row) -> list[_Column]:
    return [(name, _field(name)) for name in row if name != "type"]


def _field(name: str) -> Callable[[Row], Any]:
    return lambda row: row.get(name)


def _offsets(row: Row) -> str:
    first, last = row["base_offset"], row["last_offset"]
    return f"{first}-{last}" if first != last else str(first)


def _producer(row: Row) -> str:
    if row.get("producer_id", -1) < 0:
        return ""
    sequence = f" seq {row['base_sequence']}-{row['last_sequence']}" if row["base_sequence"] >= 0 else ""
    return f"{row['producer_id']} epoch {row['producer_epoch']}{sequence}"


def _flags(row: Row) -> str:
    flags = ["transactional"] if row.get("is_transactional") else []
    flags += ["control"] if row.get("is_control") else []
    flags += [] if row["timestamp_type"] == "CreateTime" else [row["timestamp_type"]]
    return " ".join(flags)


def _shown(name: str) -> Callable[[Row], Any]:
    """Key or value of a record in whatever format it comes."""

    def get(row: Row) -> Any:
        for suffix in ("", "_hex", "_base64"):
            if name + suffix in row:
                value = row[name + suffix]
                return f"0x{value}" if suffix == "_hex" else value
        return None

    return get


def _headers(row: Row) -> str:
    pairs = ((each["key"], _shown("value")(each)) for each in row.get("headers", ()))
    return " ".join(f"{key}={'null' if value is None else value}" for key, value in pairs)


def _control(row: Row) -> str:
    return f"{row['control_type']} coordinator epoch {row.get('coordinator_epoch')}" if "control_type" in row else ""


def _time(name: str) -> Callable[[Row], Any]:
    return lambda row: instant(row[name])


_COLUMNS: Final[dict[str, list[_Column]]] = {
    "batch": [
        ("offsets", _offsets),
        ("count", _field("count")),
        ("position", _field("position")),
        ("size", _field("size")),
        ("time", _time("max_timestamp")),
        ("magic", _field("magic")),
        ("compression", _field("compression")),
        ("leader epoch", _field("partition_leader_epoch")),
        ("producer", _producer),
        ("flags", _flags),
        ("delete horizon", lambda row: instant(row["delete_horizon_ms"]) if row.get("delete_horizon_ms") else None),
    ],
    "record": [
        ("offset", _field("offset")),
        ("time", _time("timestamp")),
        ("key", _shown("key")),
        ("value", _shown("value")),
        ("decoded", _field("decoded")),
        ("headers", _headers),
        ("control", _control),
    ],
    "segment": [
        ("base offset", _field("base_offset")),
        ("last", _field("last_offset")),
        ("bytes", _field("bytes")),
        ("batches", _field("batches")),
        ("records", _field("records")),
        ("from", _time("oldest_timestamp")),
        ("to", _time("newest_timestamp")),
        ("index", _field("index_entries")),
        ("time index", _field("time_index_entries")),
        ("damaged bytes", lambda row: row["damaged_bytes"] or None),
        ("", lambda row: "active, never deleted" if row["is_active"] else "closed"),
    ],
    "time-index-entry": [
        ("timestamp", _field("timestamp")),
        ("time", _time("timestamp")),
        ("offset", _field("offset")),
    ],
    "producer": [
        ("producer id", _field("producer_id")),
        ("epoch", _field("producer_epoch")),
        ("last sequence", _field("last_sequence")),
        ("last offset", _field("last_offset")),
        ("last write", _time("last_timestamp")),
        ("coordinator epoch", _field("coordinator_epoch")),
        ("transaction since offset", _field("transaction_start")),
    ],
}


def _file(row: Row) -> str:
    return f"{row['path']}: {row['kind']}, {row['size']:,} bytes"


def _damage(row: Row) -> str:
    return f"  DAMAGED at position {row['position']}, {row['size']} bytes: {row['reason']}"


def _unused(row: Row) -> str:
    return f"  {row['size']:,} bytes from position {row['position']} on are allocated and not used yet"


def _log(row: Row) -> str:
    kept = "1 segment" if row["segments"] == 1 else f"{row['segments']} segments"
    offsets = f"log start offset {row['log_start_offset']}, log end offset {row['log_end_offset']}"
    return f"{row['topic']}-{row['partition']}: {kept}, {row['bytes']:,} bytes, {offsets}"


def _offset_lookup(row: Row) -> str:
    found = f"offset {row['offset']}: "
    if row["segment"] is None:
        return f"{found}not in the log"
    found += f"in {row['segment']}, the last whose name is not above it\n"
    found += f"  index  {_entry(row['index_entry'], 'offset', 'position')}\n"
    if row["base_offset"] is None:
        following = row["next_segment"]
        return f"{found}  log    not there any more" + ("" if following is None else f", read on from {following}")
    batch = f"the batch of {_offsets(row)} is at {row['position']}"
    return f"{found}  log    read from {row['from']} past {_counted(row['batches_passed'], 'batch')}: {batch}"


def _time_lookup(row: Row) -> str:
    found = f"time {instant(row['timestamp'])}: "
    if row["segment"] is None:
        return f"{found}no record is as late"
    found += f"in {row['segment']}, the first with a record as late\n"
    found += f"  time index  {_entry(row['time_index_entry'], 'time', 'offset')}\n"
    found += f"  index       {_entry(row['index_entry'], 'offset', 'position')}\n"
    return f"{found}  log         read from {row['from']}: the first record as late has offset {row['found_offset']}"


def _entry(entry: tuple[int, int] | None, first: str, second: str) -> str:
    if entry is None:
        return "no entry as low: from the segment's beginning"
    value = instant(entry[0]) if first == "time" else entry[0]
    return f"the last entry not above it: {first} {value}, {second} {entry[1]}"


def _counted(number: int, name: str) -> str:
    return f"{number} {_plural(name, number)}"


def _coming(row: Row) -> str:
    takes = f"takes {', '.join(row['takes'])} ({row['bytes']:,} bytes): " if row["takes"] else ""
    if row["what"] != "roll" and not row["takes"]:
        takes = "takes nothing: "
    return f"{row['what']}, {row['setting']}\n  {takes}{row['reason']}"


_SENTENCES: Final[dict[str, Callable[[Row], str]]] = {
    "file": _file,
    "damage": _damage,
    "unused": _unused,
    "log": _log,
    "offset-lookup": _offset_lookup,
    "time-lookup": _time_lookup,
    "next": _coming,
}
