"""The checks at the end of the demo: what the pipelines made, held against the topic and against the source file."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.client.model import EARLIEST, LATEST, TopicPartition
from ottla.demo.feed import BucketTotal, Feed
from ottla.demo.pipelines import TOTALS, archive_names

if TYPE_CHECKING:
    import pyarrow

    from ottla.client.sync import Client

# Sums of a hundred thousand decimal numbers in another order differ by less than this part of them.
_ROUNDING = 1e-9
# What is compared of the two topics; the offset shows that nothing is missing or twice, record by record.
_MIRRORED = ("key", "value", "offset", "timestamp", "headers")
_ROWS_PER_BATCH = 16_384


@dataclass(frozen=True, slots=True)
class DemoCheck:
    """One check: what must hold, whether it does, and what was found."""

    name: str
    passed: bool
    detail: str


def check_loaded(client: Client, topic: str, feed: Feed) -> DemoCheck:
    """The topic holds each event of the file."""
    ends = _ends(client, topic)
    held = sum(ends.values())
    wanted = len(feed.events)
    return DemoCheck(
        "every event of the file is in the topic",
        held == wanted,
        f"{held:,} records in {len(ends)} partitions, {wanted:,} events in the file",
    )


def check_archive(client: Client, topic: str, feed: Feed, folder: Path) -> DemoCheck:
    """The archive holds every record exactly once, under its day and place."""
    import deltalake
    from deltalake.exceptions import TableNotFoundError

    name = "every event is archived once, under its day" + (f" and {feed.place_field}" if feed.place_field else "")
    try:
        archive = deltalake.DeltaTable(folder)
    except TableNotFoundError:
        return DemoCheck(name, not feed.events, "there is no archive")
    columns = archive_names(feed)
    day = [feed.date_column] if feed.day_fields is None else [columns[each] for each in feed.day_fields]
    place = [] if feed.place_field is None else [columns[feed.place_field]]
    table = archive.to_pyarrow_table(columns=["record_partition", "record_offset", *day, *place])
    problems = _not_once(table, _ends(client, topic))
    if _days_and_places(table, day, place) != feed.folders():
        problems.append("the numbers of events per day and place differ from the file's")
    found = f"{table.num_rows:,} rows in {len(archive.file_uris()):,} files of a Delta table"
    return DemoCheck(name, not problems, "; ".join([found, *problems]))


def check_mirror(source: Client, target: Client, topic: str, mirrored_topic: str) -> DemoCheck:
    """Both topics hold equal records: partition, order, key, value, time and headers."""
    name = "the mirror equals the source record by record"
    ends = _ends(source, topic)
    mirrored = {TopicPartition(topic, each.partition): end for each, end in _ends(target, mirrored_topic).items()}
    if ends != mirrored:
        return DemoCheck(name, False, f"records per partition: {_listed(ends)} here, {_listed(mirrored)} there")
    compared = 0
    for partition, end in sorted(ends.items()):
        ours = _columns(source, partition, end)
        theirs = _columns(target, TopicPartition(mirrored_topic, partition.partition), end)
        for column in _MIRRORED:
            if not ours.column(column).equals(theirs.column(column)):
                return DemoCheck(name, False, f"{partition}: column {column} differs")
        compared += ours.num_rows
    return DemoCheck(name, compared == sum(ends.values()), f"{compared:,} records compared in {len(ends)} partitions")


def check_online(feed: Feed, file: Path, dropped_late: int) -> DemoCheck:
    """The online pipeline's totals equal those computed from the file."""
    name = f"online totals per {feed.group_field or 'key'} and {feed.bucket} equal those of the file"
    if not file.exists():
        return DemoCheck(name, False, "the pipeline left no totals")
    wanted = feed.totals()
    try:
        found = read_online(file)
    except (sqlite3.Error, ValueError) as problem:
        return DemoCheck(name, False, str(problem))
    wrong = [place for place in wanted.keys() | found.keys() if not _equal(wanted.get(place), found.get(place))]
    measured = sum(total.measured for total in found.values())
    detail = f"{len(found):,} totals over {sum(total.events for total in found.values()):,} events"
    if feed.measure_field:
        detail += f", {feed.measure_field} known of {measured:,}, sum {sum(t.total for t in found.values()):,.0f}"
    if wrong or dropped_late:
        detail += f"; {len(wrong):,} totals differ, {dropped_late:,} events came too late"
    return DemoCheck(name, not wrong and not dropped_late, detail)


def check_groups(client: Client, topic: str, groups: Sequence[str]) -> DemoCheck:
    """The pipelines' groups have committed the end of every partition."""
    ends = _ends(client, topic)
    behind = {}
    for group in groups:
        committed = client.committed(group, list(ends))
        behind[group] = sum(max(0, end - max(0, committed.get(each, 0))) for each, end in ends.items())
    detail = ", ".join(f"{group} {lag:,} behind" for group, lag in behind.items())
    return DemoCheck("the pipelines committed their offsets to their groups", not any(behind.values()), detail)


def check_rebalances(recorded: int, joined: int) -> DemoCheck:
    """Each member's arrival, at least, left its evidence."""
    return DemoCheck(
        "every rebalance of the ordinary group left a record of its cause",
        recorded >= joined,
        f"{recorded} rebalances recorded, {joined} members joined",
    )


def read_online(file: Path) -> dict[tuple[int, str | None], BucketTotal]:
    """The totals that the online pipeline left, by (start of the bucket in ms, key). Raises ValueError for doubles."""
    with closing(sqlite3.connect(file)) as database:
        rows = database.execute(f"SELECT bucket, key, events, measured, total FROM {TOTALS}").fetchall()
    found = {
        (_ms(bucket), key): BucketTotal(events, measured, total or 0.0) for bucket, key, events, measured, total in rows
    }
    if len(found) < len(rows):
        raise ValueError(f"{file} has {len(rows) - len(found)} totals twice")
    return found


def _ms(bucket: str) -> int:
    """A time as the database has it, in UTC."""
    return round(datetime.fromisoformat(bucket).replace(tzinfo=UTC).timestamp() * 1_000)


def _equal(wanted: BucketTotal | None, found: BucketTotal | None) -> bool:
    if wanted is None or found is None:
        return False
    return (
        wanted.events == found.events
        and wanted.measured == found.measured
        and abs(wanted.total - found.total) <= _ROUNDING * max(1.0, abs(wanted.total))
    )


def _not_once(table: pyarrow.Table, ends: Mapping[TopicPartition, int]) -> list[str]:
    """Find faults in the records' origins: they must be each partition's offsets from 0 to its end, once."""
    problems = []
    total = sum(ends.values())
    origins = table.select(["record_partition", "record_offset"])
    distinct = origins.group_by(["record_partition", "record_offset"]).aggregate([]).num_rows
    if distinct != table.num_rows:
        problems.append(f"{table.num_rows - distinct:,} are there twice")
    if distinct != total:
        problems.append(f"{total - distinct:,} of {total:,} are missing")
    highest = origins.group_by("record_partition").aggregate([("record_offset", "max")])
    known = {each.partition: end - 1 for each, end in ends.items() if end}
    if dict(zip(*(column.to_pylist() for column in highest.columns), strict=True)) != known:
        problems.append("the last offsets differ from the topic's")
    return problems


def _days_and_places(table: pyarrow.Table, day: list[str], place: list[str]) -> Counter[tuple[str, str | None]]:
    """How many rows the archive has for each (day as 2013-01-01, place); `day` is a date or year, month and day."""
    counted = table.group_by([*day, *place]).aggregate([([], "count_all")]).to_pylist()
    found: Counter[tuple[str, str | None]] = Counter()
    for row in counted:
        values = [row[name] for name in day]
        text = values[0].isoformat() if len(values) == 1 else f"{values[0]:04}-{values[1]:02}-{values[2]:02}"
        found[text, row[place[0]] if place else None] += row["count_all"]
    return found


def _ends(client: Client, topic: str) -> dict[TopicPartition, int]:
    """How many records each partition has, by its offsets."""
    partitions = [TopicPartition(topic, number) for number in client.partitions([topic])[topic]]
    first, last = client.offsets_at(partitions, EARLIEST), client.offsets_at(partitions, LATEST)
    return {each: last[each] - first[each] for each in partitions}


def _columns(client: Client, partition: TopicPartition, end: int) -> pyarrow.Table:
    import pyarrow

    batches = list(client.read_range_arrow(partition, 0, end, rows_per_batch=_ROWS_PER_BATCH, include_headers=True))
    if not batches:
        return pyarrow.table({name: [] for name in _MIRRORED})
    return pyarrow.Table.from_batches(batches).combine_chunks()


def _listed(ends: Mapping[TopicPartition, int]) -> str:
    return ", ".join(f"{each.partition}: {end:,}" for each, end in sorted(ends.items()))
