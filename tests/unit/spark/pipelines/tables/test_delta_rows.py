"""Rows, types, partitions and statistics of a Delta table, as deltalake and pyarrow read them."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow
import pytest

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.tables.delta import DeltaBatchTable
from support.staged_tables import delta_sink, numbered, stage

pytestmark = pytest.mark.spec("D3")


def opened(path: Path, *partition_by: str) -> DeltaBatchTable:
    return DeltaBatchTable(delta_sink(path, partition_by=partition_by), "archive")


def scanned(path: Path) -> list[dict[str, Any]]:
    """The rows by deltalake's own scan, checked to be those by pyarrow, sorted by `id`."""
    table = deltalake.DeltaTable(path)
    rows: pyarrow.Table = pyarrow.table(table.scan())
    by_scan = sorted(rows.to_pylist(), key=lambda row: row["id"])
    by_arrow = sorted(table.to_pyarrow_table().to_pylist(), key=lambda row: row["id"])
    assert repr(by_arrow) == repr(by_scan)
    return by_arrow


def statistics(path: Path) -> list[dict[str, Any]]:
    found = []
    for file in sorted((path / "_delta_log").glob("*.json")):
        for line in file.read_text().splitlines():
            add = json.loads(line).get("add")
            if add:
                found.append(json.loads(add["stats"], parse_float=Decimal))
    return found


MOMENT = datetime.fromisoformat("2024-02-29T23:59:59.999999")
EARLY = datetime.fromisoformat("1600-01-01T00:00:00")
TYPES: dict[str, tuple[pyarrow.DataType, list[Any]]] = {
    "i8": (pyarrow.int8(), [-128, None, 127]),
    "i16": (pyarrow.int16(), [-5, None, 5]),
    "i32": (pyarrow.int32(), [-(2**31), None, 2**31 - 1]),
    "i64": (pyarrow.int64(), [-(2**63), None, 2**63 - 1]),
    "f32": (pyarrow.float32(), [1.5, None, math.inf]),
    "f64": (pyarrow.float64(), [-0.0, None, 1e300]),
    "b": (pyarrow.bool_(), [True, None, False]),
    "s": (pyarrow.string(), ["a" * 40, None, "ü" * 40 + "\U0010ffff"]),
    "bin": (pyarrow.binary(), [b"\x00\xff", None, b""]),
    "d": (pyarrow.date32(), [date(1, 1, 1), None, date(9999, 12, 31)]),
    "ts": (pyarrow.timestamp("us", "UTC"), [MOMENT.replace(tzinfo=UTC), None, datetime(1, 1, 1, tzinfo=UTC)]),
    "ntz": (pyarrow.timestamp("us"), [MOMENT, None, EARLY]),
    "dec": (pyarrow.decimal128(38, 10), [Decimal("-1234567890123456789012345678.0123456789"), None, Decimal("0.1")]),
    "list": (pyarrow.list_(pyarrow.field("element", pyarrow.int32())), [[1, None], None, []]),
    "map": (pyarrow.map_(pyarrow.string(), pyarrow.int64()), [[("k", 1)], None, []]),
    "struct": (
        pyarrow.struct([("x", pyarrow.int64()), ("y", pyarrow.struct([("z", pyarrow.string())]))]),
        [{"x": 1, "y": {"z": "q"}}, None, {"x": None, "y": None}],
    ),
}


def all_types() -> pyarrow.Table:
    columns: dict[str, Any] = {"id": pyarrow.array([0, 1, 2], pyarrow.int64())}
    columns |= {name: pyarrow.array(values, kind) for name, (kind, values) in TYPES.items()}
    return pyarrow.table(columns)


def test_all_types_come_back_as_they_were(tmp_path: Path) -> None:
    table = opened(tmp_path)
    rows = all_types()
    assert table.commit(stage(table, 0, rows))
    assert table.commit(stage(table, 1, rows.set_column(0, "id", pyarrow.array([3, 4, 5], pyarrow.int64()))))
    expected = rows.to_pylist() + [{**row, "id": row["id"] + 3} for row in rows.to_pylist()]
    assert repr(scanned(tmp_path)) == repr(expected)


def test_statistics_say_what_readers_may_leave_out(tmp_path: Path) -> None:
    table = opened(tmp_path)
    table.commit(stage(table, 0, all_types()))
    (found,) = statistics(tmp_path)
    assert found["numRecords"] == 3
    lows, highs, nulls = found["minValues"], found["maxValues"], found["nullCount"]
    assert (lows["i64"], highs["i64"], nulls["i64"]) == (-(2**63), 2**63 - 1, 1)
    assert (lows["ts"], highs["ts"]) == ("0001-01-01T00:00:00.000000Z", "2024-02-29T23:59:59.999999Z")
    assert highs["ntz"] == "2024-02-29T23:59:59.999999"
    assert (lows["d"], highs["d"]) == ("0001-01-01", "9999-12-31")
    assert lows["dec"] == Decimal("-1234567890123456789012345678.0123456789")
    assert lows["s"] == "a" * 32
    assert highs["s"] == "ü" * 31 + "ý"
    assert nulls["struct"] == {"x": 2, "y": {"z": 2}}
    assert lows["struct"] == {"x": 1, "y": {"z": "q"}}
    assert "f64" not in highs, "NaN could be among them"
    assert not {"bin", "b", "list", "map"} & (lows.keys() | highs.keys())


def test_readers_leave_files_out(tmp_path: Path) -> None:
    table = opened(tmp_path, "day")
    for batch_id, day in enumerate(("2024-01-01", "2024-01-02", "2024-01-03")):
        table.commit(stage(table, batch_id, numbered(batch_id, day=day)))
    whole = deltalake.DeltaTable(tmp_path)
    assert len(whole.file_uris()) == 3
    assert len(whole.file_uris(file_pruning_predicate="day = '2024-01-02'")) == 1
    assert len(whole.file_uris(file_pruning_predicate="id >= 20")) == 1
    found = pyarrow.table(whole.scan(predicate="id >= 15 and id < 22")).column("id").to_pylist()
    assert sorted(found) == [*range(15, 22)]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pyarrow.string(), ["a/b", "a=b%20", "ü '\"\\", "..", " ", "NULL", None]),
        (pyarrow.int64(), [-(2**63), 0, None]),
        (pyarrow.bool_(), [True, False, None]),
        (pyarrow.date32(), [date(1, 1, 1), date(2024, 2, 29), None]),
        (pyarrow.timestamp("us"), [MOMENT, EARLY, None]),
        (pyarrow.timestamp("us", "UTC"), [MOMENT.replace(tzinfo=UTC), datetime(1900, 1, 1, tzinfo=UTC), None]),
    ],
    ids=str,
)
def test_odd_partition_values(tmp_path: Path, kind: pyarrow.DataType, values: list[Any]) -> None:
    path = tmp_path / "with space % ü"
    table = opened(path, "p")
    rows = pyarrow.table({"id": list(range(len(values))), "p": pyarrow.array(values, kind)})
    for batch_id in range(3):
        assert table.commit(stage(table, batch_id, rows))
    expected = [value for value in values for _ in range(3)]
    assert [row["p"] for row in scanned(path)] == expected
    assert DeltaBatchTable(delta_sink(path.as_uri(), partition_by=("p",)), "archive").last_commit() is not None
    whole = deltalake.DeltaTable(path)
    whole.optimize.compact()
    assert [row["p"] for row in scanned(path)] == expected


def test_an_empty_text_is_null_as_a_partition(tmp_path: Path) -> None:
    table = opened(tmp_path, "p")
    table.commit(stage(table, 0, pyarrow.table({"id": [1], "p": [""]})))
    assert scanned(tmp_path) == [{"id": 1, "p": None}]


def test_decimals_are_no_partition_columns(tmp_path: Path) -> None:
    table = opened(tmp_path, "p")
    rows = pyarrow.table({"id": [1], "p": pyarrow.array([Decimal("-1.50")], pyarrow.decimal128(10, 2))})
    with pytest.raises(PipelineError, match=r"partition column p is of type decimal128\(10, 2\).*cast it"):
        table.commit(stage(table, 0, rows))


def test_partition_columns_of_columns_and_files_at_once(tmp_path: Path) -> None:
    table = opened(tmp_path, "day", "hour")
    rows = pyarrow.table({"id": [0, 1, 2, 3], "hour": [1, 1, 2, 2], "day": ["x", "y", "x", "x"]})
    assert table.commit(stage(table, 0, rows, files=2))
    assert scanned(tmp_path) == rows.to_pylist()


def test_new_columns_and_fields_are_added(tmp_path: Path) -> None:
    table = opened(tmp_path)
    inner = pyarrow.struct([("a", pyarrow.int64())])
    outer = pyarrow.struct([("a", pyarrow.int64()), ("b", pyarrow.timestamp("us"))])
    one = pyarrow.table({"id": [0], "s": pyarrow.array([{"a": 1}], inner)})
    two = pyarrow.table({"n": ["new"], "id": [1], "s": pyarrow.array([{"a": 2, "b": MOMENT}], outer)})
    three = pyarrow.table({"id": [2]})
    for batch_id, rows in enumerate((one, two, three)):
        assert table.commit(stage(table, batch_id, rows))
    assert scanned(tmp_path) == [
        {"id": 0, "s": {"a": 1, "b": None}, "n": None},
        {"id": 1, "s": {"a": 2, "b": MOMENT}, "n": "new"},
        {"id": 2, "s": None, "n": None},
    ]
    assert table.last_commit().batch_id == 2  # type: ignore[union-attr]


def test_a_table_that_another_made_is_grown_too(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path, pyarrow.table({"id": [0]}))
    table = opened(tmp_path)
    assert table.commit(stage(table, 0, pyarrow.table({"id": [1], "n": [1.5]})))
    assert scanned(tmp_path) == [{"id": 0, "n": None}, {"id": 1, "n": 1.5}]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": ["text"]}, "column id is string in the batch, and long in .*; cast it to long"),
        ({"id": pyarrow.array([1], pyarrow.int32())}, "column id is integer in the batch, and long in "),
        ({"s": [{"a": "x"}]}, r"column s\.a is string in the batch, and long in "),
        ({"s": [1]}, "column s is long in the batch, and struct in "),
        ({"ID": [1]}, "column ID of the batch is named id in "),
        ({"t": pyarrow.array([1], pyarrow.timestamp("ns"))}, r"column t is of type timestamp\[ns\], which a Delta"),
        ({"t": [{"u": pyarrow.scalar(1, pyarrow.uint8())}]}, r"column t\.u is of type uint8, which a Delta"),
    ],
)
def test_columns_that_do_not_fit_are_refused(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    table = opened(tmp_path)
    table.commit(stage(table, 0, pyarrow.table({"id": [0], "s": [{"a": 1}]})))
    if "t" in columns and isinstance(columns["t"], list):
        columns = {"t": pyarrow.array([{"u": 1}], pyarrow.struct([("u", pyarrow.uint8())]))}
    with pytest.raises(PipelineError, match=message):
        table.commit(stage(table, 1, pyarrow.table(columns)))
    assert len(scanned(tmp_path)) == 1


def test_nulls_in_a_column_that_may_not_be_null(tmp_path: Path) -> None:
    schema = pyarrow.schema([pyarrow.field("id", pyarrow.int64(), nullable=False), ("day", pyarrow.string())])
    deltalake.DeltaTable.create(tmp_path, deltalake.Schema.from_arrow(schema))
    table = opened(tmp_path)
    assert table.commit(stage(table, 0, numbered(0)))
    for rows in ({"id": pyarrow.array([1, None], pyarrow.int64())}, {"day": ["x"]}):
        with pytest.raises(PipelineError, match="column id may not be null in the table, and has nulls in the batch"):
            table.commit(stage(table, 1, pyarrow.table(rows)))
    assert len(scanned(tmp_path)) == 10


def test_columns_are_added_beside_those_that_may_not_be_null(tmp_path: Path) -> None:
    inner = [pyarrow.field("a", pyarrow.int64(), nullable=False)]
    items = pyarrow.list_(pyarrow.field("element", pyarrow.struct(inner), nullable=False))
    schema = pyarrow.schema(
        [pyarrow.field("id", pyarrow.int64(), nullable=False), ("s", pyarrow.struct(inner)), ("items", items)]
    )
    deltalake.DeltaTable.create(tmp_path, deltalake.Schema.from_arrow(schema))
    table = opened(tmp_path)
    grown = {"id": [0], "n": ["new"], "s": [{"a": 1, "b": 2}], "items": [[{"a": 3, "b": 4}]]}
    assert table.commit(stage(table, 0, pyarrow.table(grown)))
    assert scanned(tmp_path) == [{"id": 0, "s": {"a": 1, "b": 2}, "items": [{"a": 3, "b": 4}], "n": "new"}]
    a, b = pyarrow.field("a", pyarrow.int64(), nullable=False), pyarrow.field("b", pyarrow.int64())
    wanted = pyarrow.schema(
        [
            pyarrow.field("id", pyarrow.int64(), nullable=False),
            ("s", pyarrow.struct([a, b])),
            ("items", pyarrow.list_(pyarrow.field("element", pyarrow.struct([a, b]), nullable=False))),
            ("n", pyarrow.string()),
        ]
    )
    assert deltalake.DeltaTable(tmp_path).schema() == deltalake.Schema.from_arrow(wanted)


def test_nulls_beside_a_new_column_are_refused_before_the_table_changes(tmp_path: Path) -> None:
    schema = pyarrow.schema([pyarrow.field("id", pyarrow.int64(), nullable=False)])
    deltalake.DeltaTable.create(tmp_path, deltalake.Schema.from_arrow(schema))
    table = opened(tmp_path)
    for rows in ({"id": pyarrow.array([1, None], pyarrow.int64()), "n": [1, 2]}, {"n": [1]}):
        with pytest.raises(PipelineError, match="column id may not be null in the table, and has nulls in the batch"):
            table.commit(stage(table, 0, pyarrow.table(rows)))
    assert deltalake.DeltaTable(tmp_path).version() == 0
