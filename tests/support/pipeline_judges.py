"""The pipelines that are killed in tests: their files, the events they read, and what must hold of what they made."""

from __future__ import annotations

import datetime
import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.records.record import Record
from support.brokers import Bootstrapped
from support.filled_topics import read_topic

if TYPE_CHECKING:
    import pyarrow

EVENTS: Final = "events"
CARRIERS: Final = ("UA", "B6", "DL", "AA", "WN")
#: The first event's time, and the time between two: 900 events are three days.
FIRST_MS: Final = 1_767_225_600_000
STEP_MS: Final = 300_000
HOUR_MS: Final = 3_600_000

#: A verdict, empty where all is right, and figures.
Verdict = tuple[str, dict[str, int]]
Judge = Callable[[Path, str, Bootstrapped, Bootstrapped, Sequence[Sequence[Record]]], Verdict]

_TOP = """name = "{kind}"
kind = "{pipeline}"
checkpoint = "checkpoint"
[trigger]
{trigger}
{spark}"""
_SOURCE = """[source]
bootstrap_servers = "{source}"
topics = ["{topic}"]
max_offsets_per_trigger = {per_batch}
value_format = "json"
schema = "id BIGINT, carrier STRING, delay INT"
"""
_SINKS = {
    "parquet": '[sink]\nkind = "parquet"\npath = "table"\n',
    "delta": '[sink]\nkind = "delta"\npath = "table"\n',
    "iceberg": """[sink]
kind = "iceberg"
catalog = "local"
table = "shop.events"
[sink.catalog_options]
type = "sql"
uri = "sqlite:///{folder}/catalog.db"
warehouse = "file://{folder}/warehouse"
""",
}
_TOTALS = """[[steps]]
sql = '''SELECT {bucket} AS bucket, carrier, count(*) AS events, sum(delay) AS total
FROM source GROUP BY window(timestamp, '1 hour'), carrier'''
[sink]
key_columns = ["bucket", "carrier"]
"""
_ONLINE = {
    "online": _TOTALS.replace("{bucket}", "window.start")
    + 'kind = "database"\nurl = "sqlite:totals.db"\ntable = "totals"\n',
    "upserts": _TOTALS.replace("{bucket}", "unix_millis(window.start)") + 'kind = "topic"\ntopic = "{topic}-totals"\n',
}
#: What a pipeline is run on where nothing else is said, and when it takes a batch.
TO_THE_END: Final = "available_now = true"
_MIRROR = """[mirror]
source_alias = "here"
target_alias = "there"
source_bootstrap_servers = "{source}"
target_bootstrap_servers = "{target}"
topics = "{topic}"
max_offsets_per_trigger = {per_batch}
"""


def event_record(at: int) -> Record:
    """The event with this number."""
    value = {"id": at, "carrier": CARRIERS[at % len(CARRIERS)], "delay": at % 50}
    return Record(0, FIRST_MS + at * STEP_MS, b"%d" % at, json.dumps(value).encode())


def pipeline_file(
    kind: str,
    folder: Path,
    topic: str,
    source: Bootstrapped,
    target: Bootstrapped,
    per_batch: int,
    *,
    trigger: str = TO_THE_END,
    spark: str = "",
) -> Path:
    """Write the pipeline's file into its folder; `spark` are the tables that say where it runs."""
    pipeline = "mirror" if kind == "mirror" else "online" if kind in _ONLINE else "archive"
    parts = [_TOP, _MIRROR] if kind == "mirror" else [_TOP, _SOURCE, (_ONLINE | _SINKS)[kind]]
    path = folder / "pipeline.toml"
    path.write_text(
        "".join(parts).format(
            kind=kind,
            pipeline=pipeline,
            topic=topic,
            folder=folder,
            per_batch=per_batch,
            trigger=trigger,
            spark=spark,
            source=source.bootstrap,
            target=target.bootstrap,
        )
    )
    return path


def table_rows(kind: str, folder: Path) -> pyarrow.Table:
    """All rows of an archive, as a reader that knows nothing of pipelines finds them."""
    if kind == "parquet":
        import pyarrow.dataset

        return pyarrow.dataset.dataset(folder / "table", format="parquet", partitioning="hive").to_table()
    if kind == "delta":
        from deltalake import DeltaTable

        return DeltaTable(str(folder / "table")).to_pyarrow_table()
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog(
        "local", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse"
    )
    return catalog.load_table("shop.events").scan().to_arrow()


def _archive_judge(kind: str) -> Judge:
    def judge(
        folder: Path, topic: str, source: Bootstrapped, target: Bootstrapped, records: Sequence[Sequence[Record]]
    ) -> Verdict:
        table = table_rows(kind, folder)
        found = Counter(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
        wanted = {(part, at): record for part, some in enumerate(records) for at, record in enumerate(some)}
        lost, twice = len(wanted.keys() - found.keys()), sum(count - 1 for count in found.values())
        wrong = sum(
            (row["id"], row["carrier"], row["delay"], str(row["day"])) != _row(wanted[row["partition"], row["offset"]])
            for row in table.select(["partition", "offset", "id", "carrier", "delay", "day"]).to_pylist()
            if (row["partition"], row["offset"]) in wanted
        )
        strange = len(found.keys() - wanted.keys())
        verdict = (
            f"{lost} lost, {twice} twice, {wrong} wrong, {strange} strange" if lost or twice or wrong or strange else ""
        )
        return verdict, {"rows": table.num_rows}

    return judge


def _row(record: Record) -> tuple[int, str, int, str]:
    """The columns that an archive makes of a record, and the folder: days are those of UTC wherever it runs."""
    value = json.loads(record.value or b"")
    day = datetime.datetime.fromtimestamp(record.timestamp / 1_000, datetime.UTC).date()
    return value["id"], value["carrier"], value["delay"], day.isoformat()


def judge_online(
    folder: Path, topic: str, source: Bootstrapped, target: Bootstrapped, records: Sequence[Sequence[Record]]
) -> Verdict:
    """The totals in SQLite equal those computed afresh."""
    with sqlite3.connect(folder / "totals.db") as database:
        rows = database.execute("SELECT bucket, carrier, events, total FROM totals").fetchall()
    found = [((_bucket_ms(bucket), carrier), (events, total)) for bucket, carrier, events, total in rows]
    return _compared(records, dict(found), len(rows))


def judge_upserts(
    folder: Path, topic: str, source: Bootstrapped, target: Bootstrapped, records: Sequence[Sequence[Record]]
) -> Verdict:
    """The newest value of each key in the topic of totals equals that computed afresh."""
    written = [each for part in read_topic(source, f"{topic}-totals") for each in part]
    newest = [json.loads(value) for value in {each.key: each.value or b"" for each in written}.values()]
    found = {(row["bucket"], row["carrier"]): (row["events"], row["total"]) for row in newest}
    return _compared(records, found, len(newest))


def _compared(records: Sequence[Sequence[Record]], found: dict[tuple[int, str], tuple[int, int]], rows: int) -> Verdict:
    wanted: dict[tuple[int, str], tuple[int, int]] = {}
    for some in records:
        for record in some:
            value = json.loads(record.value or b"")
            place = (record.timestamp // HOUR_MS * HOUR_MS, value["carrier"])
            events, total = wanted.get(place, (0, 0))
            wanted[place] = (events + 1, total + value["delay"])
    wrong = sum(wanted.get(place) != found.get(place) for place in wanted.keys() | found.keys())
    strange = rows - len(found)
    return f"{wrong} totals differ, {strange} twice" if wrong or strange else "", {"rows": rows}


def _bucket_ms(bucket: str | float) -> int:
    """A timestamp as SQLite keeps it: ISO 8601 in UTC."""
    if not isinstance(bucket, str):
        return round(bucket / 1_000)
    return round(datetime.datetime.fromisoformat(bucket).replace(tzinfo=datetime.UTC).timestamp() * 1_000)


def judge_mirror(
    folder: Path, topic: str, source: Bootstrapped, target: Bootstrapped, records: Sequence[Sequence[Record]]
) -> Verdict:
    """Nothing is lost, and the first appearances are in the source's order; what was sent again is counted."""
    repeats = 0
    for part, found in enumerate(read_topic(target, f"here.{topic}")):
        firsts = list(dict.fromkeys((each.key, each.value, each.timestamp) for each in found))
        if firsts != [(each.key, each.value, each.timestamp) for each in records[part]]:
            lost = len({each.key for each in records[part]} - {each.key for each in found})
            return f"partition {part}: {lost} lost, or first appearances are not in order", {}
        repeats += len(found) - len(firsts)
    return "", {"repeats": repeats}


JUDGES: Final[dict[str, Judge]] = {
    **{kind: _archive_judge(kind) for kind in _SINKS},
    "online": judge_online,
    "upserts": judge_upserts,
    "mirror": judge_mirror,
}
