"""What the queries of pipelines make of topics: SQL with event time, joins, deduplication; records that do not fit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow
import pyarrow.dataset
import pyarrow.parquet
import pytest

from ottla.records.record import Record
from ottla.spark.pipelines.errors import PipelineError, PipelineSettingsError
from ottla.spark.pipelines.queries.ending import run_pipeline
from ottla.spark.pipelines.settings.model import (
    NewFields,
    PipelineKind,
    StaticTableSettings,
    StepSettings,
    TableSinkSettings,
    TopicSinkSettings,
)
from ottla.spark.pipelines.tables.opening import open_table
from support.filled_topics import fill_topic, read_topic
from support.pipeline_settings import database, json_record, pipeline, results, run, source
from support.staged_tables import delta_sink, iceberg_sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.ottla_server import OttlaServer

MINUTE = 60_000
BASE = 1_700_000_040_000  # The beginning of a minute.
EVENTS = "id BIGINT, user STRING, amount DOUBLE, at TIMESTAMP"


def _event(number: int, at_ms: int, **more: object) -> Record:
    fields = {"id": number, "user": "ab"[number % 2], "amount": 1.0, "at": _iso(at_ms)}
    return json_record(at_ms, "ab"[number % 2], **fields | more)


def _iso(at_ms: int) -> str:
    import datetime

    return datetime.datetime.fromtimestamp(at_ms / 1_000, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.spec("D3")
def test_totals_by_key_and_window_are_upserted_and_late_events_are_left_out(
    spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, tmp_path: Path
) -> None:
    fill_topic(shared_ottla_server, unique, [[_event(n, BASE + n * MINUTE // 4) for n in range(16)]])
    settings = pipeline(
        tmp_path,
        source(shared_ottla_server, unique, EVENTS, watermark_column="at", watermark_delay="1 minute"),
        database(tmp_path, "minute", "user"),
        "SELECT window.start AS minute, user, count(*) AS n, sum(amount) AS total FROM events "
        "GROUP BY window(at, '1 minute'), user",
        kind=PipelineKind.online,
        output_mode="update",
    )
    run(spark, settings)
    first = results(tmp_path)
    assert len(first) == 8
    assert first[0] == ("2023-11-14 22:14:00.000000", "a", 2, 2.0)
    late, in_time = _event(100, BASE), _event(101, BASE + 3 * MINUTE, amount=0.5)
    fill_topic(shared_ottla_server, unique, [[late, in_time]], create=False)
    run(spark, settings)
    changed = dict.fromkeys(results(tmp_path)).keys() ^ dict.fromkeys(first).keys()
    assert changed == {("2023-11-14 22:17:00.000000", "b", 2, 2.0), ("2023-11-14 22:17:00.000000", "b", 3, 2.5)}


def test_sql_is_taken_as_it_stands(
    spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, tmp_path: Path
) -> None:
    """Spark would put the environment in place of ${env:…}; a file that wants that says so itself."""
    fill_topic(shared_ottla_server, unique, [[_event(1, BASE)]])
    settings = pipeline(
        tmp_path,
        source(shared_ottla_server, unique, EVENTS),
        database(tmp_path, "id"),
        "SELECT id, '${env:PATH} ${spark.app.name}' AS text FROM events",
    )
    run(spark, settings)
    assert results(tmp_path) == [(1, "${env:PATH} ${spark.app.name}")]


def test_two_streams_join_by_key_and_time(
    spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, tmp_path: Path
) -> None:
    paid = f"{unique}-paid"
    fill_topic(shared_ottla_server, unique, [[_event(n, BASE + n * 1_000) for n in range(20)]])
    fill_topic(
        shared_ottla_server, paid, [[json_record(BASE, order=n, paid_at=_iso(BASE + n * 1_000)) for n in range(5, 30)]]
    )
    delayed = {"watermark_delay": "1 minute"}
    sources = (
        source(shared_ottla_server, unique, EVENTS, "orders", watermark_column="at", **delayed),
        source(
            shared_ottla_server,
            paid,
            "`order` BIGINT, paid_at TIMESTAMP",
            "payments",
            watermark_column="paid_at",
            **delayed,
        ),
    )
    sql = (
        "SELECT id, user, paid_at FROM orders JOIN payments ON id = `order` "
        "AND paid_at BETWEEN at AND at + INTERVAL 1 MINUTE"
    )
    run(spark, pipeline(tmp_path, sources, database(tmp_path, "id"), sql))
    assert [row[0] for row in results(tmp_path, "SELECT id FROM results ORDER BY id")] == sorted(range(5, 20), key=str)


def test_a_stream_joins_a_table_as_it_is_in_each_batch(
    spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, tmp_path: Path
) -> None:
    folder = tmp_path / "users"
    (folder / "region=eu").mkdir(parents=True)
    pyarrow.parquet.write_table(pyarrow.table({"user": ["a"], "name": ["Ann"]}), folder / "region=eu" / "1.parquet")
    fill_topic(shared_ottla_server, unique, [[_event(n, BASE) for n in range(2)]])
    settings = pipeline(
        tmp_path,
        source(shared_ottla_server, unique, EVENTS),
        database(tmp_path, "id"),
        "SELECT id, name, region FROM events JOIN users USING (user)",
        tables=(StaticTableSettings(name="users", format="parquet", path=str(folder)),),
    )
    run(spark, settings)
    assert results(tmp_path) == [(0, "Ann", "eu")]


def test_a_table_that_changes_while_the_query_runs_is_read_anew(
    spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, tmp_path: Path
) -> None:
    from deltalake import write_deltalake

    from ottla.spark.pipelines.queries.start import start_pipeline
    from ottla.spark.pipelines.settings.model import TriggerSettings

    folder = str(tmp_path / "users")
    write_deltalake(folder, pyarrow.table({"user": ["a"], "name": ["Ann"]}))
    fill_topic(shared_ottla_server, unique, [[_event(n, BASE) for n in range(2)]])
    settings = pipeline(
        tmp_path,
        source(shared_ottla_server, unique, EVENTS),
        database(tmp_path, "id"),
        "SELECT id, name FROM events JOIN users USING (user)",
        tables=(StaticTableSettings(name="users", format="delta", path=folder),),
        trigger=TriggerSettings(interval_ms=0),
    )
    query = start_pipeline(spark, settings)
    try:
        query.processAllAvailable()
        write_deltalake(folder, pyarrow.table({"user": ["a", "b"], "name": ["Anna", "Bob"]}), mode="overwrite")
        fill_topic(shared_ottla_server, unique, [[_event(n, BASE) for n in range(2, 4)]], create=False)
        query.processAllAvailable()
    finally:
        query.stop()
    assert results(tmp_path) == [(0, "Ann"), (2, "Anna"), (3, "Bob")]


def test_rows_with_equal_columns_are_one_within_the_watermark(
    spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, tmp_path: Path
) -> None:
    fill_topic(shared_ottla_server, unique, [[_event(n % 7, BASE + n * 1_000) for n in range(30)]])
    steps = (
        StepSettings(
            name="once",
            sql="SELECT id, at, offset FROM events",
            watermark_column="at",
            watermark_delay="10 minutes",
            deduplicate_by=("id",),
        ),
        StepSettings(name="result", sql="SELECT id, offset FROM once"),
    )
    settings = pipeline(
        tmp_path, source(shared_ottla_server, unique, EVENTS), database(tmp_path, "offset"), steps=steps
    )
    run(spark, settings)
    assert len(results(tmp_path)) == 7


BAD = [Record(0, BASE, b"k", b"not json"), Record(0, BASE, None, b'{"id": "x"}')]


def test_records_that_do_not_parse_go_to_their_topic_and_are_counted(
    spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, tmp_path: Path
) -> None:
    good = [_event(n, BASE) for n in range(10)]
    fill_topic(shared_ottla_server, unique, [[*good[:5], BAD[0], *good[5:], BAD[1]], []])
    settings = pipeline(
        tmp_path,
        source(shared_ottla_server, unique, EVENTS, max_offsets_per_trigger=6),
        database(tmp_path, "id"),
        "SELECT id FROM events",
    )
    query = run(spark, settings)
    assert len(results(tmp_path)) == 10
    counted = [each.observedMetrics["events_bad_records"].bad_records for each in query.recentProgress]
    assert sum(counted) == 2
    letters = TopicSinkSettings(bootstrap_servers=shared_ottla_server.bootstrap, topic=f"{unique}-bad")
    second = tmp_path / "second"
    second.mkdir()
    run(
        spark,
        replace(settings, checkpoint=str(second / "checkpoint"), sink=database(second, "id"), dead_letters=letters),
    )
    [records] = read_topic(shared_ottla_server, f"{unique}-bad")
    assert sorted((each.key, each.value) for each in records if each.key) == [(b"k", b"not json")]
    headers = dict(next(each.headers for each in records if each.key is None))
    assert headers["ottla.topic"] == unique.encode()
    assert (headers["ottla.partition"], headers["ottla.offset"]) == (b"0", b"11")
    assert b"column id" in (headers["ottla.reason"] or b"")
    assert len(results(second)) == 10


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_new_field_ends_the_query_where_it_may_not_come(
    spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, tmp_path: Path, partitions: int
) -> None:
    records = [_event(n, BASE) for n in range(300)]
    records[290] = _event(290, BASE, coupon="x", nested={"a": 1})
    fill_topic(shared_ottla_server, unique, [records, [BAD[0]]][:partitions])
    settings = pipeline(
        tmp_path,
        source(shared_ottla_server, unique, EVENTS),
        database(tmp_path, "id"),
        "SELECT id FROM events",
        new_fields=NewFields.fail,
    )
    said = rf"^source events: field coupon, nested\.a, first in {unique}-0@290, is not in the schema; add it to schema"
    with pytest.raises(PipelineError, match=said):
        run(spark, settings)
    assert results(tmp_path, "SELECT name FROM sqlite_master WHERE name = 'results'") == []
    run(spark, replace(settings, new_fields=NewFields.ignore))
    assert len(results(tmp_path)) == 300


def test_new_fields_become_columns_from_their_batch_on(
    spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, tmp_path: Path
) -> None:
    records = [_event(n, BASE) for n in range(20)]
    records[10] = _event(10, BASE, coupon="x", extra={"n": 1})
    records[15] = _event(15, BASE, extra={"n": 2.5, "m": None})
    fill_topic(shared_ottla_server, unique, [records])
    settings = pipeline(
        tmp_path,
        source(shared_ottla_server, unique, EVENTS, max_offsets_per_trigger=8),
        TopicSinkSettings(bootstrap_servers=shared_ottla_server.bootstrap, topic=f"{unique}-out", value_format="json"),
        "SELECT * EXCEPT (key, topic, partition, offset, timestamp, timestampType, user, amount, at) FROM events",
        new_fields=NewFields.add,
    )
    started = []
    run_pipeline(spark, settings, started=started.append)
    assert len(started) == 2, "once more for the batch that has all of them"
    [out] = read_topic(shared_ottla_server, f"{unique}-out")
    values = [each.value for each in out]
    assert len(values) == 20
    assert {b'{"id":10,"coupon":"x","extra":{"n":1.0}}', b'{"id":15,"extra":{"n":2.5}}', b'{"id":1}'} <= set(values)


def test_sql_that_does_not_fit_is_refused_by_step(
    spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, tmp_path: Path
) -> None:
    fill_topic(shared_ottla_server, unique, [[]])
    settings = pipeline(
        tmp_path, source(shared_ottla_server, unique, EVENTS), database(tmp_path, "id"), "SELECT ide FROM events"
    )
    with pytest.raises(PipelineSettingsError, match=r"^step result: .*ide.*") as refused:
        run(spark, settings)
    assert "\n" not in str(refused.value)
    both = (settings.sources[0], replace(settings.sources[0], name="again"))
    with pytest.raises(PipelineSettingsError, match="sources events and again both read topic"):
        run(spark, replace(settings, sources=both))


TIMED = "id BIGINT, place STRING, at TIMESTAMP"


@pytest.mark.parametrize(
    ("format_name", "sql"),
    [
        ("parquet", "SELECT id, place, CAST(at AS DATE) AS day FROM events"),
        ("parquet", "SELECT id, upper(place) AS place, to_date(at) AS day FROM events"),
        ("delta", "SELECT id, upper(place) AS place, CAST(at AS DATE) AS day FROM events"),
        ("iceberg", "SELECT id, place, CAST(at AS DATE) AS day FROM events"),
    ],
)
@pytest.mark.spec("D3")
def test_rows_that_no_partition_can_hold_are_dead_letters_and_the_others_are_written(
    spark: SparkSession,
    shared_ottla_server: OttlaServer,
    unique: str,
    tmp_path: Path,
    format_name: str,
    sql: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The first and the last statement are of the fast path, whose letters are the records themselves."""
    late = Record(0, BASE, b"k", b'{"id": 7, "place": "X", "at": "+10000-01-01T00:00:00Z"}')
    good = [json_record(BASE, id=n, place="X", at="2024-05-06T07:08:09Z") for n in range(4)]
    fill_topic(shared_ottla_server, unique, [[*good[:2], late, BAD[0], *good[2:]]])
    columns, path = ("day", "place"), tmp_path / "table"
    sink = {
        "parquet": lambda: TableSinkSettings(format="parquet", path=str(path), partition_by=columns),
        "delta": lambda: delta_sink(path, partition_by=columns),
        "iceberg": lambda: iceberg_sink(path, partition_by=columns),
    }[format_name]()
    letters = TableSinkSettings(format="parquet", path=str(tmp_path / "letters"))
    settings = pipeline(tmp_path, source(shared_ottla_server, unique, TIMED), sink, sql, dead_letters=letters)
    run(spark, settings)
    last = open_table(sink, settings.name).last_commit()
    assert last is not None
    assert last.end_offsets == {"events": {unique: {0: 6}}}
    files = [pyarrow.parquet.read_table(each, partitioning=None) for each in (tmp_path / "table").rglob("*.parquet")]
    assert sorted(n for each in files for n in each.column("id").to_pylist()) == [0, 1, 2, 3]
    found = pyarrow.dataset.dataset(letters.path).to_table().to_pylist()
    reason = "partition column day: a date outside of the years 1 to 9999"
    [refused] = [each for each in found if each["reason"] == reason]
    assert len(found) == 2
    assert f"1 rows of batch 0 are left out: {reason}" in caplog.text
    if "upper" in sql:
        assert json.loads(refused["value"]) == {"id": 7, "place": "X", "day": "+10000-01-01"}
    else:
        assert (refused["value"], refused["key"], refused["offset"]) == (late.value, late.key, 2)


@pytest.mark.parametrize(
    ("sink", "sql", "complaint"),
    [
        ("rows", "SELECT id, user FROM events", "partition_by names day, which the rows lack; they have id, user"),
        ("rows", "SELECT id, dya AS day FROM events", "step result: .*dya.* cannot be resolved"),
        ("letters", "SELECT id, to_date(at) AS day FROM events", "partition_by names day, which the rows lack"),
    ],
)
@pytest.mark.spec("D3")
def test_a_start_that_fails_makes_nothing_and_the_corrected_file_runs(
    spark: SparkSession,
    shared_ottla_server: OttlaServer,
    unique: str,
    tmp_path: Path,
    sink: str,
    sql: str,
    complaint: str,
) -> None:
    fill_topic(shared_ottla_server, unique, [[_event(n, BASE) for n in range(4)]])
    path = tmp_path / "table"
    wrong = TableSinkSettings(format="parquet", path=str(path), partition_by=("day",))
    letters = TableSinkSettings(format="parquet", path=str(tmp_path / "letters"), partition_by=("topic",))
    if sink == "letters":
        letters = replace(letters, partition_by=("day",))
    settings = pipeline(tmp_path, source(shared_ottla_server, unique, EVENTS), wrong, sql, dead_letters=letters)
    with pytest.raises(PipelineError, match=complaint):
        run(spark, settings)
    assert sorted(each.name for each in tmp_path.iterdir()) == []
    corrected = pipeline(
        tmp_path,
        source(shared_ottla_server, unique, EVENTS),
        replace(wrong, partition_by=("user",)),
        "SELECT id, user FROM events",
        dead_letters=replace(letters, partition_by=("topic",)),
    )
    run(spark, corrected)
    assert pyarrow.dataset.dataset(path, partitioning="hive").to_table().num_rows == 4
