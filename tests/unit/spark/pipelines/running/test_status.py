"""Status by checkpoint and group, and the looks of `check`, with a cluster in memory."""

from __future__ import annotations

import json
import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from ottla.client.errors import ClientError
from ottla.client.model import TopicPartition
from ottla.spark.pipelines.running.checks import check_pipeline
from ottla.spark.pipelines.running.control import Liveness, RunnerHeartbeat, RunnerNotes, RunState
from ottla.spark.pipelines.running.process import host_name
from ottla.spark.pipelines.running.status import read_status
from ottla.spark.pipelines.settings.file import load_pipeline
from ottla.spark.pipelines.settings.model import PipelineSettings

NOW_MS = 1_000_000
HEAD = 'name = "p"\ncheckpoint = "checkpoint"\n'
SOURCE = '[source]\nbootstrap_servers = "fake:1"\ntopics = ["a"]\n'
CONSOLE = '[sink]\nkind = "console"\n'


def _settings(folder: Path, text: str) -> PipelineSettings:
    path = folder / "p.toml"
    path.write_text(text)
    return load_pipeline(path, {})


def _log_batch(folder: Path, number: int, ends: dict[str, int], *, finished: bool = True) -> None:
    """One batch as Spark's log has it."""
    about = {"batchWatermarkMs": 5_000 * number, "batchTimestampMs": 0, "conf": {}}
    for name, text in (
        ("metadata", '{"id":"the-query"}'),
        (f"offsets/{number}", "\n".join(["v1", json.dumps(about), json.dumps({"a": ends})])),
        (f"commits/{number}", "v1\n{}"),
    ):
        if finished or not name.startswith("commits"):
            (folder / "checkpoint" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "checkpoint" / name).write_text(text)


def test_a_pipeline_that_never_ran(cluster, tmp_path: Path) -> None:
    cluster.holds("a", (0, 10))
    found = read_status(_settings(tmp_path, HEAD + SOURCE + CONSOLE), 1_000)
    assert (found.query_id, found.planned_batch, found.finished_batch, found.lag) == (None, None, None, None)
    assert found.runner.liveness is Liveness.never
    (partition,) = found.partitions
    assert (partition.position, partition.committed, partition.end) == (None, None, 10)


def test_position_commit_and_end_stand_beside_each_other(cluster, tmp_path: Path) -> None:
    cluster.holds("a", (0, 10), (0, 20))
    cluster.commits.append(("p", {TopicPartition("a", 0): 4}))
    _log_batch(tmp_path, 0, {"0": 3, "1": 5})
    _log_batch(tmp_path, 1, {"0": 8, "1": 20})
    _log_batch(tmp_path, 2, {"0": 10, "1": 20}, finished=False)
    found = read_status(_settings(tmp_path, HEAD + SOURCE + CONSOLE), 1_000)
    assert (found.query_id, found.planned_batch, found.finished_batch) == ("the-query", 2, 1)
    assert (found.watermark_ms, found.lag) == (10_000, 2)
    assert found.finished_ms is not None
    rows = [(each.partition.partition, each.position, each.committed, each.end, each.lag) for each in found.partitions]
    assert rows == [(0, 8, 4, 10, 2), (1, 20, None, 20, 0)]


def test_a_cluster_that_does_not_answer_leaves_the_checkpoint(cluster, tmp_path: Path) -> None:
    cluster.holds("a", (0, 10))
    cluster.failures.append(ClientError("nobody there"))
    _log_batch(tmp_path, 0, {"0": 3})
    found = read_status(_settings(tmp_path, HEAD + SOURCE + CONSOLE), 1_000)
    assert found.problems == ("source: nobody there",)
    assert [(each.position, each.end, each.lag) for each in found.partitions] == [(3, None, None)]


def _checked(folder: Path, text: str) -> dict[str, tuple[bool | None, str]]:
    results = check_pipeline(_settings(folder, text), 1_000, NOW_MS)
    return {each.what: (each.passed, each.detail) for each in results}


def test_all_is_well(cluster, tmp_path: Path) -> None:
    cluster.holds("a", (0, 10), (0, 1))
    steps = '[[steps]]\nsql = """SELECT count(*) FROM source GROUP BY window(timestamp, \'1 hour\')"""\n'
    time = 'watermark_column = "timestamp"\nwatermark_delay = "1 minute"\n'
    found = _checked(tmp_path, HEAD + SOURCE + time + CONSOLE + steps)
    assert all(passed for passed, _ in found.values()), found
    assert found["source source"][1] == "a: 2 partitions, group p"


CHECKED = {
    "topic": (HEAD + SOURCE.replace('"a"', '"aa"') + CONSOLE, "source source", "create it first"),
    "schema": (
        HEAD + SOURCE + 'value_format = "json"\nschema = "id BIGNUMBER"\n' + CONSOLE,
        "source source",
        "type 'bignumber' is not served",
    ),
    "SQL": (HEAD + SOURCE + CONSOLE + '[[steps]]\nsql = "SELEC a b c"\n', "step step1", "it is not SQL"),
    "no SELECT": (HEAD + SOURCE + CONSOLE + '[[steps]]\nsql = "DROP TABLE a"\n', "step step1", "one SELECT"),
    "two statements": (HEAD + SOURCE + CONSOLE + '[[steps]]\nsql = "SELECT 1; SELECT 2"\n', "step step1", "one SELECT"),
    "view": (
        HEAD + SOURCE + CONSOLE + '[[steps]]\nsql = "SELECT a FROM sorce"\n',
        "step step1",
        "there is no view 'sorce'; did you mean source?",
    ),
    "later view": (
        HEAD + SOURCE + CONSOLE + '[[steps]]\nsql = "SELECT 1 FROM b"\n[[steps]]\nname = "b"\nsql = "SELECT 1"\n',
        "step step1",
        "there is no view 'b'; so far there are source",
    ),
    "static table": (
        HEAD + SOURCE + CONSOLE + '[tables.t]\nformat = "csv"\npath = "none.csv"\n',
        "table t",
        "is not there; correct its path",
    ),
    "folder of a database": (
        HEAD + SOURCE + '[sink]\nkind = "database"\nurl = "sqlite:none/t.db"\ntable = "t"\nkey_columns = ["key"]\n',
        "sink",
        "is not a folder; make it",
    ),
    "no database": (
        HEAD + SOURCE + '[sink]\nkind = "database"\nurl = "sqlite:p.toml"\ntable = "t"\nkey_columns = ["key"]\n',
        "sink",
        "is no SQLite database",
    ),
}


@pytest.mark.parametrize("case", CHECKED)
def test_what_is_wrong_is_named(case: str, cluster, tmp_path: Path) -> None:
    cluster.holds("a", (0, 1))
    text, what, complaint = CHECKED[case]
    found = _checked(tmp_path, text)
    assert [name for name, (passed, _) in found.items() if passed is False] == [what]
    assert complaint in found[what][1]


def test_steps_see_tables_ctes_and_earlier_steps(cluster, tmp_path: Path) -> None:
    cluster.holds("a", (0, 1))
    (tmp_path / "t.csv").touch()
    text = (
        '[tables.t]\nformat = "csv"\npath = "t.csv"\n'
        '[[steps]]\nname = "one"\nsql = "WITH w AS (SELECT * FROM Source) SELECT * FROM w JOIN t USING (id)"\n'
        '[[steps]]\nsql = "SELECT * FROM one"\n'
    )
    found = _checked(tmp_path, HEAD + SOURCE + CONSOLE + text)
    assert found["step one"] == (True, "reads source, t; columns are looked up when it starts")
    assert found["step step2"][0]


def test_a_database_that_is_there(cluster, tmp_path: Path) -> None:
    cluster.holds("a", (0, 1))
    with closing(sqlite3.connect(tmp_path / "t.db")) as database:
        database.execute("CREATE TABLE t (k)")
    sink = '[sink]\nkind = "database"\nurl = "sqlite:t.db"\ntable = "t"\nkey_columns = ["k"]\n'
    assert _checked(tmp_path, HEAD + SOURCE + sink)["sink"] == (True, f"{tmp_path / 't.db'} is there")
    jdbc = sink.replace("sqlite:t.db", "jdbc:postgresql://h/d")
    assert _checked(tmp_path, HEAD + SOURCE + jdbc)["sink"][0] is None


TABLES = {
    "parquet": 'kind = "parquet"\npath = "{place}/t"\n',
    "delta": 'kind = "delta"\npath = "{place}/t"\n',
    "iceberg": 'kind = "iceberg"\ncatalog = "c"\ntable = "n.t"\n'
    '[sink.catalog_options]\ntype = "sql"\nuri = "sqlite:///{folder}/c.db"\nwarehouse = "file://{place}"\n',
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", TABLES)
def test_a_table_is_tried_and_nothing_is_left(cluster, tmp_path: Path, kind: str) -> None:
    cluster.holds("a", (0, 1))
    place = tmp_path / "lake"
    place.mkdir()
    sink = "[sink]\n" + TABLES[kind].format(place=place, folder=tmp_path)
    passed, detail = _checked(tmp_path, HEAD + SOURCE + sink)["sink"]
    assert passed, detail
    assert list(place.iterdir()) == []
    (place / ("n" if kind == "iceberg" else "t")).touch()
    passed, detail = _checked(tmp_path, HEAD + SOURCE + sink)["sink"]
    assert not passed
    assert "\n" not in detail


@pytest.mark.skipif(sys.platform != "linux", reason="a folder that not even root writes to is /proc")
@pytest.mark.slow
@pytest.mark.parametrize("kind", TABLES)
def test_a_table_where_nobody_can_write_is_told(cluster, tmp_path: Path, kind: str) -> None:
    cluster.holds("a", (0, 1))
    sink = "[sink]\n" + TABLES[kind].format(place="/proc/ottla", folder=tmp_path)
    passed, detail = _checked(tmp_path, HEAD + SOURCE + sink)["sink"]
    assert not passed
    assert re.fullmatch(
        r"(/proc/ottla/t|the (Delta|Iceberg) table .*) (cannot be (used|made or written to)|refuses access): .*", detail
    )


def test_a_runner_that_is_there_is_named(cluster, tmp_path: Path) -> None:
    import os

    cluster.holds("a", (0, 1))
    beat = RunnerHeartbeat("run", host_name(), os.getpid(), 0, NOW_MS, RunState.running)
    RunnerNotes(str(tmp_path / "checkpoint")).beat(beat)
    passed, detail = _checked(tmp_path, HEAD + SOURCE + CONSOLE)["runner"]
    assert not passed
    assert "end it by ottla pipeline stop" in detail
