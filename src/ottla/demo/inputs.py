"""The user's own file, CSV or NDJSON, as events: every line is checked before anything is started."""

from __future__ import annotations

import csv
import difflib
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ottla.demo.feed import Event, Feed, choose_bucket

# The demo holds the file in memory, to send its events in the order of time.
MAX_INPUT_BYTES = 1 << 30
MAX_LINE_BYTES = 900_000
# A key with no more values than this is a place of the archive.
MOST_PLACES = 40
MOST_DAYS_BY_KEY = 4_000
# The archive has no more folders than this: each batch writes a file for each folder that it has events of.
MOST_FOLDERS = 100
_NOT_AFTER_MS = 253_402_300_799_000
_LARGEST_NUMBER = 1e22
_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_TIMES = "ISO 8601 as in 2013-01-01T05:15:00Z, or seconds, milliseconds, microseconds or nanoseconds since 1970"


class InputError(ValueError):
    """An input file that cannot be used; the message names file, line and cure."""


def read_input(path: Path, key: str, time: str) -> Feed:
    """The events of a `.csv`, `.ndjson` or `.jsonl` file, by the names of two columns. Raises InputError."""
    kind = path.suffix.lower()
    if kind not in (".csv", ".ndjson", ".jsonl"):
        raise InputError(f"{path}: unknown kind of file; give a .csv, .ndjson or .jsonl")
    try:
        size = path.stat().st_size
        if size > MAX_INPUT_BYTES:
            raise InputError(f"{path} has {size:,} bytes, the demo takes {MAX_INPUT_BYTES:,}; give a part of it")
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as problem:
        raise InputError(f"cannot read {path}: {problem.strerror}") from None
    except UnicodeDecodeError as problem:
        line = path.read_bytes()[: problem.start].count(b"\n") + 1
        raise InputError(f"{path}, line {line}: not UTF-8 text") from None
    types = _Types()
    if kind == ".csv":
        events = _csv_events(path, text, key, time, types)
    else:
        events = _json_events(path, text, key, time, types)
    if not events:
        raise InputError(f"{path} holds no events")
    return _feed(path, events, key, types)


def parse_time(value: object) -> int | None:
    """A timestamp in milliseconds since 1970, from the forms that `--time` takes; None for anything else.

    Times without an offset are UTC. Numbers are seconds, milliseconds, microseconds or nanoseconds by their size.
    """
    if isinstance(value, str) and _DECIMAL.fullmatch(value.strip()):
        value = _number(value.strip())
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value.strip())
        except ValueError:
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        number = round(moment.timestamp() * 1_000)
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < _LARGEST_NUMBER:
        number = _to_ms(value)
    else:
        return None
    return number if 0 <= number <= _NOT_AFTER_MS else None


def _to_ms(number: float) -> int:
    if number < 1e11:
        return math.floor(number * 1_000)
    if number < 1e14:
        return math.floor(number)
    return math.floor(number) // (1_000 if number < 1e17 else 1_000_000)


class _Types:
    """Which Spark type each column's values have in common, in the order the columns came."""

    def __init__(self) -> None:
        self.found: dict[str, str | None] = {}

    def see(self, name: str, kind: str | None) -> None:
        known = self.found.setdefault(name, kind)
        if known == kind or kind is None:
            return
        numbers = {"BIGINT", "DOUBLE"}
        if known is None:
            self.found[name] = kind
        elif known in numbers and kind in numbers:
            self.found[name] = "DOUBLE"
        else:
            self.found[name] = "STRING"

    def fields(self) -> dict[str, str]:
        """The columns of the archive: all that have a name."""
        return {name: kind or "STRING" for name, kind in self.found.items() if name}


def _csv_events(path: Path, text: str, key: str, time: str, types: _Types) -> list[Event]:
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = next(rows, [])
        _check_columns(path, header, key, time)
        sample: list[tuple[int, list[str]]] = []
        for row in rows:
            if not row:
                continue
            if len(row) != len(header):
                raise InputError(f"{path}, line {rows.line_num}: {len(row)} values, the header names {len(header)}")
            sample.append((rows.line_num, row))
    except csv.Error as problem:
        raise InputError(f"{path}, line {rows.line_num}: {problem}") from None
    for position, name in enumerate(header):
        types.see(name, _column_type(row[position] for _, row in sample))
    numeric = [types.found[name] in ("BIGINT", "DOUBLE") for name in header]
    key_at, time_at = header.index(key), header.index(time)
    events = []
    for line, row in sample:
        values: dict[str, Any] = {
            name: None if not value else _number(value) if number else value
            for name, value, number in zip(header, row, numeric, strict=True)
        }
        events.append(_event(path, line, row[key_at] or None, row[time_at], time, _compact(values)))
    return events


def _column_type(values: Iterable[str]) -> str | None:
    kind: str | None = None
    for value in values:
        if not value:
            continue
        if _WHOLE.fullmatch(value):
            kind = kind or "BIGINT"
        elif _DECIMAL.fullmatch(value) and math.isfinite(float(value)):
            kind = "DOUBLE"
        else:
            return "STRING"
    return kind


def _number(value: str) -> float:
    return int(value) if _WHOLE.fullmatch(value) else float(value)


def _json_events(path: Path, text: str, key: str, time: str, types: _Types) -> list[Event]:
    events: list[Event] = []
    for line, raw, document in _json_lines(path, text):
        if not events:
            _check_columns(path, list(document), key, time)
        for name, value in document.items():
            types.see(name, _json_type(value))
        named = document.get(key)
        if isinstance(named, (dict, list)):
            raise InputError(f"{path}, line {line}: {key!r} is not a plain value, so it cannot be a key")
        text_key = named if named is None or isinstance(named, str) else json.dumps(named)
        events.append(_event(path, line, text_key, document.get(time), time, raw))
    return events


def _json_lines(path: Path, text: str) -> Iterator[tuple[int, bytes, Mapping[str, Any]]]:
    for line, raw in enumerate(text.split("\n"), start=1):
        stripped = raw.strip()
        if not stripped:
            continue
        try:
            document = json.loads(stripped)
        except ValueError as problem:
            raise InputError(f"{path}, line {line}: not JSON ({problem})") from None
        if not isinstance(document, dict):
            raise InputError(f"{path}, line {line}: not a JSON object")
        yield line, stripped.encode(), document


def _json_type(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, int):
        return "BIGINT" if -(1 << 63) <= value < 1 << 63 else "STRING"
    return "DOUBLE" if isinstance(value, float) else "STRING"


def _check_columns(path: Path, header: list[str], key: str, time: str) -> None:
    for option, name in (("--key", key), ("--time", time)):
        if name not in header:
            near = difflib.get_close_matches(name, header, n=1)
            advice = f" (did you mean {near[0]}?)" if near else ""
            raise InputError(
                f"{path} has no column {name!r} for {option}{advice}; it has {', '.join(header) or 'none'}"
            )
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise InputError(f"{path} names columns twice: {', '.join(twice)}")


def _event(path: Path, line: int, key: str | None, moment: object, time: str, value: bytes) -> Event:
    time_ms = parse_time(moment)
    if time_ms is None:
        raise InputError(f"{path}, line {line}: {time!r} is {moment!r}, which is not a time from 1970 on ({_TIMES})")
    if len(value) > MAX_LINE_BYTES:
        raise InputError(f"{path}, line {line}: {len(value):,} bytes are more than a record takes ({MAX_LINE_BYTES:,})")
    return Event(time_ms, None if key is None else key.encode(), value, group=key)


def _compact(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()


def _feed(path: Path, events: list[Event], key: str, types: _Types) -> Feed:
    events.sort(key=lambda event: event.time_ms)
    keys = {event.group for event in events}
    days = {event.time_ms // 86_400_000 for event in events}
    by_key = (
        len(keys) <= MOST_PLACES
        and len(keys) * len(days) <= MOST_DAYS_BY_KEY
        and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key) is not None
        and types.found.get(key) == "STRING"
        and None not in keys
    )
    if by_key:
        events = [Event(each.time_ms, each.key, each.value, each.group, None, each.group) for each in events]
    lowered = {name.lower() for name in types.found}
    names = ("date", "event_date", "record_date", *(f"date_{number}" for number in range(len(lowered) + 1)))
    date_column = next(name for name in names if name not in lowered)
    places = [key] if by_key else []
    by_day = [date_column] if len(days) * (len(keys) if by_key else 1) <= MOST_FOLDERS else []
    return Feed(
        name=re.sub(r"[^A-Za-z0-9._-]", "-", path.stem)[:100] or "events",
        events=events,
        fields=types.fields(),
        place_field=key if by_key else None,
        date_column=date_column,
        partition_by=(*by_day, *places),
        bucket=choose_bucket(events[0].time_ms, events[-1].time_ms),
    )
