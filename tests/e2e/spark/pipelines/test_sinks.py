"""Sinks that are no tables: a batch that runs again changes nothing that is seen."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.client.admin.model import ConfigResource
from ottla.client.sync import Admin
from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.settings.model import (
    ConsoleSinkSettings,
    DatabaseSinkSettings,
    PipelineKind,
    TopicSinkSettings,
)
from ottla.spark.pipelines.sinks import databases
from support.filled_topics import fill_topic, read_topic
from support.pipeline_settings import database, forget_last_batch, json_record, pipeline, results, run, source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.ottla_server import OttlaServer

BASE = 1_700_000_040_000
TOTALS = "SELECT user, count(*) AS n, sum(amount) AS total FROM events GROUP BY user"
SCHEMA = "user STRING, amount DOUBLE"


def _fill(server: OttlaServer, topic: str, count: int, *, create: bool = True) -> None:
    records = [json_record(BASE, user=f"u{n % 3}" if n % 4 else None, amount=1.0) for n in range(count)]
    fill_topic(server, topic, [records], create=create)


@pytest.mark.spec("D3")
def test_upserts_into_sqlite_are_the_same_when_a_batch_runs_again(
    spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill(shared_ottla_server, unique, 24)
    settings = pipeline(
        tmp_path,
        source(shared_ottla_server, unique, SCHEMA, max_offsets_per_trigger=10),
        database(tmp_path, "user"),
        TOTALS,
        kind=PipelineKind.online,
        output_mode="update",
    )
    run(spark, settings)
    expected = [("u0", 6, 6.0), ("u1", 6, 6.0), ("u2", 6, 6.0), (None, 6, 6.0)]
    assert sorted(results(tmp_path), key=str) == sorted(expected, key=str)
    forget_last_batch(settings)
    run(spark, settings)
    assert sorted(results(tmp_path), key=str) == sorted(expected, key=str)
    assert [row[3] for row in results(tmp_path, "SELECT * FROM ottla_batches")] == [2]

    def dies(*_: object) -> None:
        raise RuntimeError("killed in the transaction")

    _fill(shared_ottla_server, unique, 12, create=False)
    with monkeypatch.context() as patch:
        patch.setattr(databases.SqliteSink, "_upsert", dies)
        with pytest.raises(Exception, match="killed in the transaction"):
            run(spark, settings)
    run(spark, settings)
    assert [row[1] for row in results(tmp_path)] == [9, 9, 9, 9]


def test_upserts_go_to_a_compacted_topic_by_their_key(
    spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, tmp_path: Path
) -> None:
    _fill(shared_ottla_server, unique, 24)
    out = f"{unique}-out"
    sink = TopicSinkSettings(
        bootstrap_servers=shared_ottla_server.bootstrap, topic=out, key_columns=("user",), value_format="json"
    )
    settings = pipeline(
        tmp_path,
        source(shared_ottla_server, unique, SCHEMA, max_offsets_per_trigger=10),
        sink,
        TOTALS.replace("SELECT user", "SELECT coalesce(user, 'none') AS user"),
        kind=PipelineKind.online,
        output_mode="update",
    )
    run(spark, settings)
    expected = {name: {"user": name.decode(), "n": 6, "total": 6.0} for name in (b"u0", b"u1", b"u2", b"none")}

    def last() -> dict[bytes | None, object]:
        return {
            each.key: json.loads(each.value or b"") for part in read_topic(shared_ottla_server, out) for each in part
        }

    assert last() == expected
    forget_last_batch(settings)
    run(spark, settings)
    assert last() == expected
    resource = ConfigResource.topic(out)
    with Admin(bootstrap_servers=shared_ottla_server.bootstrap) as admin:
        assert admin.describe_configs([resource])[resource]["cleanup.policy"].value == "compact"


def test_rows_go_to_a_jdbc_table_with_the_number_of_their_batch(
    spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, tmp_path: Path
) -> None:
    _fill(shared_ottla_server, unique, 24)
    spark._jvm.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    url = f"jdbc:derby:{tmp_path / 'derby'};create=true"
    options = {"driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver"}
    settings = pipeline(
        tmp_path,
        source(shared_ottla_server, unique, SCHEMA, max_offsets_per_trigger=10),
        DatabaseSinkSettings(url=url, table="totals", key_columns=("user",), options=options),
        TOTALS,
        kind=PipelineKind.online,
        output_mode="update",
    )
    run(spark, settings)
    table = spark.read.format("jdbc").options(**options, url=url, dbtable="totals").load()
    latest = "SELECT user, max_by(n, ottla_batch) AS n FROM totals GROUP BY user"
    table.createOrReplaceTempView("totals")
    assert sorted(map(tuple, spark.sql(latest).collect()), key=str) == [("u0", 6), ("u1", 6), ("u2", 6), (None, 6)]
    rows = table.count()
    forget_last_batch(settings)
    run(spark, settings)
    assert table.count() == rows


def test_the_console_shows_the_first_rows_of_each_batch(
    spark: SparkSession,
    shared_ottla_server: OttlaServer,
    unique: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _fill(shared_ottla_server, unique, 6)
    sources = source(shared_ottla_server, unique, SCHEMA)
    run(spark, pipeline(tmp_path, sources, ConsoleSinkSettings(rows=2), "SELECT user FROM events"))
    shown = capsys.readouterr().out
    assert "p: batch 0, 6 rows" in shown
    assert "only showing top 2 rows" in shown


def test_what_a_sink_cannot_take_is_said_in_one_sentence(
    spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, tmp_path: Path
) -> None:
    _fill(shared_ottla_server, unique, 3)
    settings = pipeline(
        tmp_path, source(shared_ottla_server, unique, SCHEMA), database(tmp_path, "id"), "SELECT user FROM events"
    )
    with pytest.raises(PipelineError, match=r"^key_columns names id; the last step gives user$"):
        run(spark, settings)
    away = TopicSinkSettings(bootstrap_servers="127.0.0.1:1", topic="x", options={"kafka.request.timeout.ms": "500"})
    with pytest.raises(PipelineError, match=r"^topic x of the sink: the frame has no column named value; it has user$"):
        run(spark, replace(settings, sink=away))
    settings = pipeline(
        tmp_path / "away", source(shared_ottla_server, unique, SCHEMA), away, "SELECT user AS value FROM events"
    )
    with pytest.raises(PipelineError, match=r"^topic x of the sink: .*127\.0\.0\.1:1"):
        run(spark, settings)
