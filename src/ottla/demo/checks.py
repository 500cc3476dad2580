"""The checks at the end of the demo: what the pipelines made, held against the topic and against the source file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.client.model import EARLIEST, LATEST, TopicPartition
from ottla.demo.feed import BucketTotal, Feed

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
    """The archive holds every record exactly once, in the folder of its day and place."""
    import pyarrow.dataset

    name = "every event is archived once, under its day" + (f" and {feed.place_field}" if feed.place_field else "")
    if not any(folder.rglob("*.parquet")):
        return DemoCheck(name, not feed.events, "the archive holds no file")
    parts = pyarrow.dataset.partitioning(_folder_schema(feed), flavor="hive")
    dataset = pyarrow.dataset.dataset(folder, format="parquet", partitioning=parts)
    columns = ["record_partition", "record_offset", feed.date_column]
    table = dataset.to_table(columns=columns + ([feed.place_field] if feed.place_field else []))
    problems = _not_once(table, _ends(client, topic))
    days = table.column(feed.date_column).to_pylist()
    places = table.column(feed.place_field).to_pylist() if feed.place_field else [None] * len(days)
    if Counter(zip(days, places, strict=True)) != feed.folders():
        problems.append("the numbers of events per folder differ from the file's")
    files = len(dataset.files)
    found = f"{table.num_rows:,} rows in {files:,} files and {len(feed.folders()):,} folders"
    return DemoCheck(name, not problems, "; ".join([found, *problems]))


def check_mirror(source: Client, target: Client, topic: str) -> DemoCheck:
    """Both topics hold equal records: partition, order, key, value, time and headers."""
    name = "the mirror equals the source record by record"
    ends, mirrored = _ends(source, topic), _ends(target, topic)
    if ends != mirrored:
        return DemoCheck(name, False, f"records per partition: {_listed(ends)} here, {_listed(mirrored)} there")
    compared = 0
    for partition, end in sorted(ends.items()):
        ours, theirs = _columns(source, partition, end), _columns(target, partition, end)
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
    found = read_online(file)
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
    """The totals that the online pipeline left, by (start of the bucket in ms, key)."""
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(file)
    starts = table.column("bucket").cast(pyarrow.timestamp("ms", tz="UTC")).cast(pyarrow.int64()).to_pylist()
    keys, events, measured, totals = (table.column(name).to_pylist() for name in ("key", "events", "measured", "total"))
    return {
        (start, key): BucketTotal(count, known, total or 0.0)
        for start, key, count, known, total in zip(starts, keys, events, measured, totals, strict=True)
    }


def _equal(wanted: BucketTotal | None, found: BucketTotal | None) -> bool:
    if wanted is None or found is None:
        return False
    return (
        wanted.events == found.events
        and wanted.measured == found.measured
        and abs(wanted.total - found.total) <= _ROUNDING * max(1.0, abs(wanted.total))
    )


def _not_once(table: pyarrow.Table, ends: Mapping[TopicPartition, int]) -> list[str]:
    """What is wrong with the records' origins: they must be each partition's offsets from 0 to its end, once."""
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


def _folder_schema(feed: Feed) -> pyarrow.Schema:
    import pyarrow

    names = [feed.date_column, *([feed.place_field] if feed.place_field else [])]
    return pyarrow.schema([(name, pyarrow.string()) for name in names])


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
