"""What a look at SQL says without Spark: unknown columns, what sinks lack, what Spark refuses of a stream; no more."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from ottla.spark.pipelines.running.checks import check_pipeline
from ottla.spark.pipelines.settings.file import load_pipeline

pytestmark = pytest.mark.spec("D3")

SOURCE = """
[sources.events]
bootstrap_servers = "fake:1"
topics = ["a"]
value_format = "json"
schema = "id BIGINT, place STRING, at TIMESTAMP, who STRUCT<name: STRING>, tags ARRAY<STRING>"
"""
TIMED = SOURCE + 'watermark_column = "at"\nwatermark_delay = "1 minute"\n'
TABLE = '[sink]\nkind = "parquet"\npath = "table"\npartition_by = ["day"]\n'
CONSOLE = '[sink]\nkind = "console"\n'
WINDOW = "SELECT window.start AS minute, place, count(*) AS n FROM events GROUP BY window(at, '1 minute'), place"


def _wrong(
    folder: Path, *steps: str, sources: str = SOURCE, sink: str = CONSOLE, mode: str = "append", more: str = ""
) -> dict[str, str]:
    """What is wrong of a pipeline with these steps, by what was looked at. `more` are settings of each step."""
    text = f'name = "p"\ncheckpoint = "checkpoint"\noutput_mode = "{mode}"\n{sources}{sink}'
    for number, sql in enumerate(steps):
        text += f'[[steps]]\nname = "s{number}"\nsql = """{sql}"""\n{more}'
    (folder / "p.toml").write_text(text)
    found = check_pipeline(load_pipeline(folder / "p.toml", {}), 1_000, 0)
    return {each.what: each.detail for each in found if each.passed is False and not each.what.startswith("source")}


@pytest.mark.parametrize(
    ("sql", "complaint"),
    [
        ("SELECT id, plce FROM events", "there is no column plce; did you mean place?"),
        ("SELECT id FROM events WHERE xyz > 1", "there is no column xyz; there are key, id, place, at"),
        ("SELECT e.nme FROM events e", "there is no column e.nme; there are"),
        ("SELECT id FROM (SELECT id FROM events) WHERE place = 'x'", "there is no column place; there are id"),
        ("WITH w AS (SELECT id AS n FROM events) SELECT id FROM w", "there is no column id; there are n"),
        ("WITH w AS (SELECT idd FROM events) SELECT * FROM w", "there is no column idd; did you mean id?"),
        ("SELECT id FROM events WHERE id IN (SELECT nid FROM events)", "there is no column nid"),
        ("SELECT id FROM events UNION ALL SELECT offst FROM events", "there is no column offst; did you mean offset?"),
        ("SELECT value FROM events", "there is no column value"),
        ("SELECT _bad_reason FROM events", "there is no column _bad_reason"),
    ],
)
def test_unknown_columns(cluster, tmp_path: Path, sql: str, complaint: str) -> None:
    cluster.holds("a", (0, 1))
    found = _wrong(tmp_path, sql)
    assert complaint in found.pop("step s0")
    assert found == {}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT ID, Events.place, who.name, events.who.name FROM Events",
        "SELECT id AS n, n + 1 AS m FROM events WHERE `at` > current_timestamp AND user IS NOT NULL",
        "SELECT transform(tags, x -> upper(x)) AS tags, key, topic, partition, offset, timestamp FROM events",
        "SELECT e.id FROM events e WHERE EXISTS (SELECT 1 FROM events f WHERE f.id = e.id AND place = 'x')",
        "SELECT id, tag FROM events LATERAL VIEW explode(tags) t AS tag",
        "SELECT t.a FROM (SELECT id, place FROM events) AS t(a, b)",
        "WITH w(a) AS (SELECT id FROM events) SELECT a FROM w",
        "SELECT n FROM (SELECT id AS n FROM events) UNION ALL (SELECT id FROM events)",
        "SELECT * EXCEPT (id) FROM events",
        "SELECT CASE WHEN id = 1 THEN place END AS p FROM events",
        "SELECT a.id FROM events a JOIN events b USING (id)",
    ],
)
def test_what_spark_takes_is_not_refused(cluster, tmp_path: Path, sql: str) -> None:
    cluster.holds("a", (0, 1))
    assert _wrong(tmp_path, sql) == {}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id FROM events WHERE id IN (SELECT cid FROM customers WHERE country = 'CH')",
        "SELECT id FROM events WHERE id NOT IN (SELECT cid FROM customers WHERE country = 'CH')",
        "SELECT id FROM events WHERE EXISTS (SELECT 1 FROM customers WHERE cid = id)",
        "SELECT id, (SELECT max(cid) FROM customers) AS most FROM events",
        "SELECT id FROM events e WHERE EXISTS (SELECT 1 FROM (SELECT cid FROM customers WHERE cid = e.id))",
        "SELECT e.id FROM events e LEFT SEMI JOIN customers c ON e.id = c.cid AND country = 'CH'",
        "SELECT id FROM events LEFT ANTI JOIN customers ON id = customers.cid",
        "SELECT id FROM events LEFT ANTI JOIN (SELECT cid AS c FROM customers) k ON id = k.c",
        "SELECT id FROM events WHERE id IN (SELECT e.id FROM events e LEFT SEMI JOIN customers c ON e.id = c.cid)",
    ],
)
def test_what_a_static_table_is_read_for(cluster, tmp_path: Path, sql: str) -> None:
    cluster.holds("a", (0, 1))
    assert _wrong(tmp_path, sql, sources=SOURCE + _customers(tmp_path)) == {}


@pytest.mark.parametrize(
    ("sql", "column"),
    [
        ("SELECT id FROM events WHERE id IN (SELECT cid FROM customers WHERE contry = 'CH')", "contry"),
        ("SELECT id FROM events e LEFT SEMI JOIN customers c ON e.id = c.cd", "c.cd"),
        ("SELECT id FROM events LEFT ANTI JOIN customers ON id = customer_id", "customer_id"),
    ],
)
def test_unknown_columns_where_a_static_table_is_read(cluster, tmp_path: Path, sql: str, column: str) -> None:
    cluster.holds("a", (0, 1))
    found = _wrong(tmp_path, sql, sources=SOURCE + _customers(tmp_path))
    assert f"there is no column {column}; " in found.pop("step s0")
    assert found == {}


def _customers(folder: Path) -> str:
    parquet.write_table(pyarrow.table({"cid": [1], "country": ["CH"]}), folder / "customers.parquet")
    return f'[tables.customers]\nformat = "parquet"\npath = "{folder / "customers.parquet"}"\n'


@pytest.mark.parametrize(
    ("sql", "name"),
    [
        ("SELECT props['k'] FROM events", "props[k]"),
        ("SELECT tags[0] FROM events", "tags[0]"),
        ("SELECT from_json(place, 'a INT').a FROM events", "from_json(place).a"),
        ("SELECT CAST(tags[0] AS INT) FROM events", "CAST(tags[0] AS INT)"),
    ],
)
def test_names_that_spark_makes_are_left_to_it(cluster, tmp_path: Path, sql: str, name: str) -> None:
    cluster.holds("a", (0, 1))
    sources = SOURCE.replace("id BIGINT", "id BIGINT, props MAP<STRING, STRING>")
    assert _wrong(tmp_path, sql, f"SELECT `{name}` AS n FROM s0", sources=sources) == {}


def test_a_cast_of_a_column_keeps_its_name(cluster, tmp_path: Path) -> None:
    cluster.holds("a", (0, 1))
    found = _wrong(tmp_path, "SELECT CAST(id AS STRING), who.name, place AS p FROM events", "SELECT n FROM s0")
    assert found == {"step s1": "there is no column n; there are id, name, p"}


def test_steps_know_what_the_steps_before_give(cluster, tmp_path: Path) -> None:
    cluster.holds("a", (0, 1))
    assert _wrong(tmp_path, "SELECT id, place AS p FROM events", "SELECT id, place FROM s0") == {
        "step s1": "there is no column place; there are id, p"
    }
    assert _wrong(tmp_path, "SELECT count(*) FROM events", "SELECT `count(1)` FROM s0", mode="complete") == {}


def test_what_spark_looks_up_ignores_case(cluster, tmp_path: Path) -> None:
    cluster.holds("a", (0, 1))
    more = 'watermark_column = "AT"\nwatermark_delay = "1 minute"\ndeduplicate_by = ["Id"]\n'
    for sql in ("SELECT id, at FROM events", "SELECT * FROM events"):
        assert _wrong(tmp_path, sql, more=more) == {}
    assert _wrong(tmp_path, "SELECT id FROM events", more=more) == {
        "step s0": "watermark_column names AT, which the rows lack; they have id"
    }
    found = _wrong(tmp_path, "SELECT id, to_date(at) AS Day FROM events", sink=TABLE)
    assert found == {"sink columns": "partition_by names day, which the rows lack; they have id, Day"}


def test_sinks_name_columns_that_the_rows_have(cluster, tmp_path: Path) -> None:
    cluster.holds("a", (0, 1))
    lacks = "partition_by names day, which the rows lack; they have id, place"
    assert _wrong(tmp_path, "SELECT id, place FROM events", sink=TABLE) == {"sink columns": lacks}
    assert _wrong(tmp_path, "SELECT id, to_date(at) AS day FROM events", sink=TABLE) == {}
    letters = TABLE.replace("sink", "dead_letters").replace('"table"', '"letters"')
    found = _wrong(tmp_path, "SELECT id FROM events", sink=CONSOLE + letters)
    assert found["dead letters columns"].startswith(
        "partition_by names day, which the rows lack; they have source, topic"
    )
    topic = '[sink]\nkind = "topic"\ntopic = "out"\nkey_columns = ["k"]\nvalue_format = "json"\n'
    assert "key_columns names k" in _wrong(tmp_path, "SELECT id FROM events", sink=topic)["sink columns"]


@pytest.mark.parametrize(
    ("steps", "mode", "complaint"),
    [
        ((WINDOW,), "append", "an aggregate with output_mode = append is never final without event time"),
        (("SELECT count(*) AS n FROM events",), "append", "an aggregate with output_mode = append"),
        (("SELECT id, row_number() OVER (ORDER BY at) AS n FROM events",), "append", "functions OVER rows are not"),
        (("SELECT place, count(DISTINCT id) AS n FROM events GROUP BY place",), "update", "DISTINCT in an aggregate"),
        (("SELECT id FROM events ORDER BY id",), "append", "ORDER BY is for streams only behind an aggregate"),
        ((WINDOW, "SELECT sum(n) AS n FROM s0"), "update", "an aggregate of an aggregate needs output_mode = append"),
    ],
)
def test_what_spark_refuses_of_a_stream(
    cluster, tmp_path: Path, steps: tuple[str, ...], mode: str, complaint: str
) -> None:
    cluster.holds("a", (0, 1))
    found = _wrong(tmp_path, *steps, mode=mode)
    assert complaint in found.pop(f"step s{len(steps) - 1}")
    assert found == {}


@pytest.mark.parametrize(
    ("steps", "mode"),
    [
        ((WINDOW,), "append"),
        ((WINDOW,), "update"),
        (("SELECT place, count(*) AS n FROM events GROUP BY place ORDER BY n",), "complete"),
        ((WINDOW, "SELECT place, sum(n) AS n FROM s0 GROUP BY minute, place"), "append"),
        (("SELECT id FROM events WHERE size(tags) > aggregate(tags, 0, (a, x) -> a + 1)",), "append"),
    ],
)
def test_what_spark_takes_of_a_stream(cluster, tmp_path: Path, steps: tuple[str, ...], mode: str) -> None:
    cluster.holds("a", (0, 1))
    assert _wrong(tmp_path, *steps, sources=TIMED, mode=mode) == {}
