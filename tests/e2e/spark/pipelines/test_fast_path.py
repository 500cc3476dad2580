"""The archive's fast path: what pyarrow computes is what Spark computes, and a batch gives the same rows."""

from __future__ import annotations

import datetime
import itertools
import json
import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.dataset
import pytest

from ottla.client.model import TopicPartition
from ottla.client.sync import Client
from ottla.records.record import Record
from ottla.spark.pipelines.queries.checkpoint import QueryCheckpoint
from ottla.spark.pipelines.settings.model import (
    PipelineKind,
    PipelineSettings,
    SourceSettings,
    StepSettings,
    TableSinkSettings,
)
from ottla.spark.pipelines.tables.contract import EndOffsets, StagedFile, Staging
from ottla.spark.pipelines.writing.direct import direct_stream
from ottla.spark.pipelines.writing.plan import SqlRules, plan_steps
from ottla.spark.pipelines.writing.schemas import arrow_schema
from ottla.spark.pipelines.writing.tasks import write_batch
from support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from support.brokers import RunningBroker
    from support.ottla_server import OttlaServer

pytestmark = pytest.mark.spec("D3")

ROWS = 400
NUMBERS = [0, 1, -1, 2, 7, 100, 127, -128]
LONGS = [*NUMBERS, 1 << 31, -(1 << 31) - 1, (1 << 63) - 1, -(1 << 63), (1 << 53) + 1]
DOUBLES = [0.0, -0.0, 1.0, 1.5, -2.25, 100.0, 1e300, math.nan, math.inf, -math.inf, 2.0**53]
TEXTS = ["", "a", "A", "b", "ab", "z\u00e9", "\U0001f600", "7", " 7 ", "true"]
BYTES = [b"", b"a", b"\xff\xfe", b"\xc3\x28", b"z\xc3\xa9"]
DAYS = [datetime.date(1960, 2, 29), datetime.date(1969, 12, 31), datetime.date(2024, 2, 29), datetime.date(1, 1, 1)]
TIMES = [-1, 0, 86_399_999_999, 86_400_000_000, -86_400_000_001, 1_700_000_000_123_456]


def _rows(dice: random.Random) -> pyarrow.Table:
    def column(values: list[Any], kind: pyarrow.DataType) -> pyarrow.Array:
        return pyarrow.array([None if dice.random() < 0.2 else dice.choice(values) for _ in range(ROWS)], kind)

    times = column(TIMES, pyarrow.int64()).cast(pyarrow.timestamp("us", "UTC"))
    os = column(TEXTS, pyarrow.string())
    device = pyarrow.StructArray.from_arrays(
        [os, column(NUMBERS, pyarrow.int32())],
        fields=[pyarrow.field("Os", pyarrow.string()), pyarrow.field("version", pyarrow.int32())],
        mask=pyarrow.array([dice.random() < 0.2 for _ in range(ROWS)]),
    )
    return pyarrow.table(
        {
            "n": pyarrow.array(range(ROWS), pyarrow.int32()),
            "tiny": column(NUMBERS, pyarrow.int8()),
            "small": column(NUMBERS, pyarrow.int16()),
            "whole": column(NUMBERS, pyarrow.int32()),
            "other": column(NUMBERS, pyarrow.int32()),
            "long": column(LONGS, pyarrow.int64()),
            "number": column(DOUBLES, pyarrow.float64()),
            "second": column(DOUBLES, pyarrow.float64()),
            "single": column(DOUBLES[:6], pyarrow.float32()),
            "flag": column([True, False], pyarrow.bool_()),
            "yes": column([True, False], pyarrow.bool_()),
            "text": column(TEXTS, pyarrow.string()),
            "word": column(TEXTS, pyarrow.string()),
            "bytes": column(BYTES, pyarrow.binary()),
            "day": column(DAYS, pyarrow.date32()),
            "at": times,
            "device": device,
        }
    )


#: Each is computed by pyarrow.
SUPPORTED = [
    "whole",
    "LONG",
    "device",
    "device.os",
    "events.device.VERSION",
    "7",
    "-7",
    "3000000000",
    "1.50",
    "2e3",
    "true",
    "'x'",
    "DATE '2024-02-29'",
    *(f"CAST({name} AS {kind})" for name in ("tiny", "small", "whole") for kind in ("SMALLINT", "INT", "BIGINT")),
    "CAST(small AS TINYINT)",
    "CAST(whole AS TINYINT)",
    "CAST(whole AS DOUBLE)",
    "CAST(long AS DOUBLE)",
    "CAST(single AS DOUBLE)",
    "CAST(long AS STRING)",
    "CAST(flag AS STRING)",
    "CAST(bytes AS STRING)",
    "CAST(text AS BINARY)",
    "CAST(at AS DATE)",
    "to_date(at)",
    "date(at)",
    "int(small)",
    "whole::bigint",
    "whole + other",
    "whole - other",
    "whole * 3",
    "small - other",
    "tiny * 100000L",
    "whole + number",
    "number + 0.5",
    "number + second",
    "number * second",
    "number - 1e0",
    "flag AND yes",
    "flag OR yes",
    "NOT flag",
    "NOT (flag AND yes) OR whole > 1",
    "whole IN (1, -1, 100)",
    "whole NOT IN (1, 2)",
    "text IN ('a', 'A')",
    "number IN (1e0, 1e2)",
    "text BETWEEN 'A' AND 'b'",
    "long BETWEEN -1 AND 3000000000",
    "flag IS NULL",
    "device IS NOT NULL",
    "device.os IS NULL",
    "number IS NOT NULL",
    "whole <=> other",
    "text <=> 'a'",
    "number <=> second",
    "day = DATE '2024-02-29'",
    "number > 1.5",
    "1.5 >= number",
    "whole < number",
    "bytes < CAST(text AS BINARY)",
    *(f"{a} {sign} {b}" for sign in ("=", "<>", "<", "<=", ">", ">=", "==", "!=") for a, b in (
        ("whole", "other"),
        ("tiny", "long"),
        ("number", "second"),
        ("text", "word"),
        ("day", "CAST(at AS DATE)"),
        ("at", "at"),
        ("flag", "yes"),
        ("long", "7"),
        ("long", "2e3"),
    )),
]  # fmt: skip
#: Each is left to Spark.
NOT_SUPPORTED = [
    "whole / other",
    "tiny + tiny",
    "single + single",
    "single < number",
    "whole = text",
    "day > '2024-01-01'",
    "CAST(text AS INT)",
    "CAST(number AS INT)",
    "CAST(at AS STRING)",
    "CAST(number AS STRING)",
    "try_cast(text AS INT)",
    "upper(text)",
    "CASE WHEN flag THEN 1 END",
    "coalesce(whole, 1)",
    "NULL",
    "TIMESTAMP '2024-01-01 00:00:00'",
    "text LIKE 'a%'",
    "'a\\n'",
    '"text"',
    "'it''s'",
    "X'1F'",
    "current_date()",
    "nowhere",
    "device.nowhere",
    "text.nowhere",
    "-whole",
    "99999999999999999999999",
    "flag IS TRUE",
    "(whole + 1 > 1) AND flag",
]


@contextmanager
def _ansi(spark: SparkSession, value: bool) -> Iterator[None]:
    spark.conf.set("spark.sql.ansi.enabled", str(value).lower())
    try:
        yield
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def _ours(table: pyarrow.Table, sql: str, rules: SqlRules) -> pyarrow.Table | None:
    plan = plan_steps("events", table.schema, [("result", sql)], rules)
    if plan is None:
        return None
    (batch,) = table.to_batches()
    return pyarrow.Table.from_batches([plan.conditions.selected(plan.conditions.kept(batch))])


def _values(table: pyarrow.Table) -> dict[str, list[Any]]:
    """Exact values: texts as bytes, numbers with their sign and NaN."""

    def exact(value: Any) -> Any:
        return repr(value) if isinstance(value, float) else value

    found = {}
    for name, column in zip(table.schema.names, table.columns, strict=True):
        as_bytes = column.cast(pyarrow.binary()) if pyarrow.types.is_string(column.type) else column
        found[name] = [exact(each) for each in as_bytes.to_pylist()]
    return found


@pytest.mark.parametrize("ansi", [True, False])
def test_expressions_are_those_of_spark(spark: SparkSession, ansi: bool) -> None:
    table = _rows(random.Random(20 + ansi))
    rules = SqlRules(ansi=ansi, utc=True)
    unions = {f"c{number}": text for number, text in enumerate(SUPPORTED)}
    for text in SUPPORTED:
        assert _ours(table, f"SELECT {text} AS x FROM events", rules) is not None, text
    sql = f"SELECT n, {', '.join(f'{text} AS {name}' for name, text in unions.items())} FROM events"
    with _ansi(spark, ansi):
        spark.createDataFrame(table).createOrReplaceTempView("events")
        theirs = spark.sql(sql).orderBy("n").toArrow()
    ours = _ours(table, sql, rules)

    assert ours is not None
    found, wanted = _values(ours), _values(theirs)
    for name, text in unions.items():
        assert ours.schema.field(name).type == theirs.schema.field(name).type, text
        assert found[name] == wanted[name], text


def test_conditions_keep_the_rows_that_spark_keeps(spark: SparkSession) -> None:
    dice = random.Random(8)
    table = _rows(dice)
    rules = SqlRules(ansi=True, utc=True)
    spark.createDataFrame(table).createOrReplaceTempView("events")
    atoms = [
        text
        for text in SUPPORTED
        if (ours := _ours(table, f"SELECT {text} AS x FROM events WHERE {text}", rules)) is not None and ours.num_rows
    ]
    assert len(atoms) > 50
    parts, expected = [], {}
    for number in range(60):
        text = " ".join(
            f"{'NOT ' if dice.random() < 0.3 else ''}({dice.choice(atoms)}) {dice.choice(['AND', 'OR'])}"
            for _ in range(dice.randrange(1, 4))
        )
        text += f" ({dice.choice(atoms)})"
        ours = _ours(table, f"SELECT n FROM events WHERE {text}", rules)
        assert ours is not None, text
        expected[number] = (text, ours["n"].to_pylist())
        parts.append(f"SELECT {number} AS q, n FROM events WHERE {text}")
    found: dict[int, list[int]] = {}
    for row in spark.sql(" UNION ALL ".join(parts)).orderBy("q", "n").collect():
        found.setdefault(row.q, []).append(row.n)
    for number, (text, rows) in expected.items():
        assert found.get(number, []) == rows, text


def test_what_is_left_to_spark() -> None:
    table = _rows(random.Random(1))
    rules = SqlRules(ansi=True, utc=True)
    for text in NOT_SUPPORTED:
        assert _ours(table, f"SELECT {text} AS x FROM events", rules) is None, text
        assert _ours(table, f"SELECT n FROM events WHERE {text}", rules) is None, text
    for sql in (
        "SELECT whole + 1 FROM events",
        "SELECT DISTINCT n FROM events",
        "SELECT n FROM events LIMIT 3",
        "SELECT n FROM events ORDER BY n",
        "SELECT n FROM events GROUP BY n",
        "SELECT n FROM other",
        "SELECT n FROM x.events",
        "SELECT a.n FROM events AS a, events AS b",
        "SELECT n FROM events TABLESAMPLE (1 ROWS)",
        "SELECT n FROM (SELECT * FROM events)",
        "SELECT n FROM events UNION ALL SELECT n FROM events",
        "WITH a AS (SELECT 1) SELECT n FROM events",
        "SELECT /*+ COALESCE(1) */ n FROM events",
        "SELECT n, n FROM events",
        "SELECT n, tiny AS N FROM events",
        "SELECT * EXCEPT (n) FROM events",
        "SELECT n FROM events WHERE whole",
        "SELECT n FROM events WHERE whole + 1 > 1",
        "SELECT n FROM events WHERE CAST(whole AS TINYINT) = 1",
        "SELECT FROM events",
        "not SQL at all (",
    ):
        assert _ours(table, sql, rules) is None, sql
    assert _ours(table, "SELECT CAST(at AS DATE) AS x FROM events", SqlRules(ansi=True, utc=False)) is None


def test_steps_after_each_other_and_stars(spark: SparkSession) -> None:
    table = _rows(random.Random(5))
    steps = [
        ("first", "SELECT *, CAST(at AS DATE) AS seen, device.os AS os FROM events e WHERE e.whole > 0"),
        ("second", "SELECT f.*, whole * 2 AS twice FROM `first` AS f WHERE seen IS NOT NULL AND f.os <> 'a'"),
        ("third", "SELECT twice, seen, os, n FROM second WHERE twice >= 4 -- a comment"),
    ]
    plan = plan_steps("events", table.schema, steps, SqlRules(ansi=False, utc=True))
    assert plan is not None
    assert plan.conditions.columns == {"whole", "at", "device", "n"}
    (batch,) = table.to_batches()
    ours = plan.conditions.selected(plan.conditions.kept(batch))
    with _ansi(spark, False):
        spark.createDataFrame(table).createOrReplaceTempView("events")
        for name, sql in steps:
            spark.sql(sql).createOrReplaceTempView(name)
        theirs = spark.table("third").orderBy("n").toArrow()
    assert ours.num_rows > 10
    assert pyarrow.Table.from_batches([ours]).to_pylist() == theirs.to_pylist()


def test_a_value_that_does_not_fit_fails_in_both(spark: SparkSession) -> None:
    table = _rows(random.Random(6))
    rules = SqlRules(ansi=True, utc=True)
    spark.createDataFrame(table).createOrReplaceTempView("events")
    for text in ("CAST(long AS INT)", "long + 1", "long * 2", "long - 2"):
        sql = f"SELECT {text} AS x FROM events"
        with pytest.raises(pyarrow.ArrowInvalid):
            _ours(table, sql, rules)
        with pytest.raises(Exception, match="OVERFLOW"):
            spark.sql(sql).collect()


SCHEMA = "id BIGINT, place STRING, price DOUBLE, at TIMESTAMP"
SQL = (
    "SELECT id, price, CAST(at AS DATE) AS day, place, partition, offset FROM events WHERE price < 90 OR price IS NULL"
)


def _event(number: int) -> Record:
    value = {"id": number, "place": f"p{number % 3}", "price": None if number % 7 == 0 else number % 100}
    value["at"] = f"2024-03-{1 + number // 200:02}T10:00:00Z"
    text = json.dumps(value) if number % 50 else '{"id": "no number"}'
    return Record(0, number, b"k%d" % number, text.encode())


def _settings(topic: str, broker: RunningBroker, folder: Path) -> PipelineSettings:
    source = SourceSettings(
        name="events",
        bootstrap_servers=broker.bootstrap,
        group_id=f"{topic}-archive",
        topics=(topic,),
        value_format="json",
        schema=SCHEMA,
        watermark_column="at",
        watermark_delay="1 day 30 minutes",
    )
    return PipelineSettings(
        name="archive",
        kind=PipelineKind.archive,
        checkpoint=str(folder / "checkpoint"),
        sources=(source,),
        steps=(StepSettings(name="rows", sql=SQL),),
        sink=TableSinkSettings(format="parquet", path=str(folder / "table"), partition_by=("day", "place")),
    )


def _options(settings: PipelineSettings) -> dict[str, str]:
    (source,) = settings.sources
    return {
        "kafka.bootstrap.servers": source.bootstrap_servers,
        "subscribe": ",".join(source.topics),
        "kafka.group.id": source.group_id,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "400",
        "valueFormat": "json",
        "valueSchema": SCHEMA,
        "badValueColumn": "",
        "badReasonColumn": "_bad_reason",
    }


def _slow(spark: SparkSession, settings: PipelineSettings, options: dict[str, str]) -> DataFrame:
    frame = spark.readStream.format("ottla").options(**options).load()
    frame.where("_bad_reason IS NULL").drop("_bad_reason").createOrReplaceTempView("events")
    return spark.sql(settings.steps[0].sql)


def _archive(
    settings: PipelineSettings, frame: DataFrame, write: Callable[[DataFrame, Staging], list[StagedFile]], folder: Path
) -> list[list[StagedFile]]:
    """Run the stream to its end; gives the files of each batch."""
    assert isinstance(settings.sink, TableSinkSettings)
    staging = Staging(folder.as_uri(), {}, settings.sink.partition_by, settings.sink.compression)
    batches: list[list[StagedFile]] = []
    stream = frame.writeStream.foreachBatch(lambda batch, _: batches.append(write(batch, staging)))
    query = stream.option("checkpointLocation", settings.checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    return batches


def _write_slowly(frame: DataFrame, staging: Staging) -> list[StagedFile]:
    return write_batch(frame, staging).files


def _end_of(settings: PipelineSettings, batch_id: int) -> EndOffsets:
    """Where Spark has a batch end."""
    logged = QueryCheckpoint(settings.checkpoint).batch(batch_id)
    assert logged is not None
    (end,) = logged.sources
    assert end is not None
    return end


def _written(folder: Path, batches: list[list[StagedFile]]) -> list[str]:
    paths = [str(folder / each.path) for files in batches for each in files]
    assert set(paths) == {str(each) for each in folder.rglob("*.parquet")}
    table = pyarrow.dataset.dataset(paths, partitioning="hive", partition_base_dir=str(folder)).to_table()
    return sorted(map(str, table.select(sorted(table.schema.names)).to_pylist()))


def test_a_stream_gives_the_same_rows_on_both_paths(
    spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, tmp_path: Path, fill
) -> None:
    broker = shared_ottla_server
    fill(broker, unique, [[_event(number) for number in range(start, 1_000, 2)] for start in range(2)])
    settings = _settings(unique, broker, tmp_path)
    options = _options(settings)
    rows = _slow(spark, settings, options)
    direct = direct_stream(spark, settings, options, rows)
    assert direct is not None
    assert direct.writer.schema == arrow_schema(rows)
    bad = 0
    numbers = itertools.count()

    def write(frame: DataFrame, staging: Staging) -> list[StagedFile]:
        nonlocal bad
        number = next(numbers)
        start = _end_of(settings, number - 1) if number else None
        done = direct.writer.write(frame.sparkSession, staging, start, _end_of(settings, number))
        bad += done.bad_records
        return done.files

    fast = _archive(settings, direct.frame, write, tmp_path / "fast")
    other = replace(settings, checkpoint=str(tmp_path / "other"))
    slow = _archive(other, rows, _write_slowly, tmp_path / "slow")

    assert [sum(each.rows for each in files) for files in fast] == [sum(each.rows for each in files) for files in slow]
    found = _written(tmp_path / "fast", fast)
    assert found == _written(tmp_path / "slow", slow)
    assert len(found) == sum(1 for each in range(1_000) if each % 50 and (each % 7 == 0 or each % 100 < 90))
    assert bad == 20
    assert len(fast) == 3
    assert all(len({each.partition for each in files}) == len(files) for files in fast), "one file for each folder"
    newest = datetime.datetime(2024, 3, 5, 10, tzinfo=datetime.UTC) - datetime.timedelta(days=1, minutes=30)
    assert direct.writer.watermark_ms == int(newest.timestamp() * 1000)

    # The same checkpoint continues with either path, and the group follows.
    late = [[_event(number) for number in range(1_000 + start, 1_200, 2)] for start in range(2)]
    fill(broker, unique, late, create=False)
    more = _archive(settings, rows, _write_slowly, tmp_path / "more")
    assert sum(each.rows for files in more for each in files) == sum(
        1 for each in range(1_000, 1_200) if each % 50 and (each % 7 == 0 or each % 100 < 90)
    )
    with Client(broker.bootstrap) as client:
        parts = [TopicPartition(unique, 0), TopicPartition(unique, 1)]
        wait_until(lambda: set(client.committed(f"{unique}-archive", parts).values()) == {600}, "the group follows")


def test_what_has_no_fast_path(
    spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, tmp_path: Path
) -> None:
    settings = _settings(unique, shared_ottla_server, tmp_path)
    options = _options(settings)
    rows = _slow(spark, settings, options)
    assert isinstance(settings.sink, TableSinkSettings)
    step = settings.steps[0]
    for other in (
        replace(settings, sink=None),
        replace(settings, sources=settings.sources * 2),
        replace(settings, output_mode="update"),
        replace(settings, steps=(replace(step, deduplicate_by=("id",)),)),
        replace(settings, steps=(replace(step, sql="SELECT upper(place) AS place FROM events"),)),
        replace(settings, steps=(replace(step, sql="SELECT id FROM events"),)),
        replace(settings, steps=(replace(step, watermark_column="day", watermark_delay="1 day"),)),
    ):
        assert direct_stream(spark, other, options, rows) is None
