"""Rows, types, partitions and metrics of an Iceberg table, as pyiceberg reads them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, NestedField, StringType, StructType

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.settings.model import TableSinkSettings
from ottla.spark.pipelines.tables.iceberg import IcebergBatchTable
from ottla.spark.pipelines.tables.partition_folders import NULL_VALUE
from support.staged_tables import Lake, iceberg_sink, numbered, stage

pytestmark = pytest.mark.spec("D3")

MOMENT = datetime.fromisoformat("2024-02-29T23:59:59.999999")
EARLY = datetime.fromisoformat("1600-01-01T00:00:00")
TYPES: dict[str, tuple[pyarrow.DataType, list[Any]]] = {
    "i32": (pyarrow.int32(), [-(2**31), None, 2**31 - 1]),
    "i64": (pyarrow.int64(), [-(2**63), None, 2**63 - 1]),
    "f32": (pyarrow.float32(), [1.5, None, -2.5]),
    "f64": (pyarrow.float64(), [-0.0, None, 1e300]),
    "b": (pyarrow.bool_(), [True, None, False]),
    "s": (pyarrow.string(), ["a" * 40, None, "ü" * 40 + "\U0010ffff"]),
    "bin": (pyarrow.binary(), [b"\x00\xff", None, b""]),
    "d": (pyarrow.date32(), [date(1, 1, 1), None, date(9999, 12, 31)]),
    "ts": (pyarrow.timestamp("us", "UTC"), [MOMENT.replace(tzinfo=UTC), None, EARLY.replace(tzinfo=UTC)]),
    "ntz": (pyarrow.timestamp("us"), [MOMENT, None, EARLY]),
    "dec": (pyarrow.decimal128(38, 10), [Decimal("-1234567890123456789012345678.0123456789"), None, Decimal("0.1")]),
    "list": (pyarrow.list_(pyarrow.field("element", pyarrow.int32())), [[1, None], None, []]),
    "map": (pyarrow.map_(pyarrow.string(), pyarrow.int64()), [[("k", 1)], None, []]),
    "struct": (
        pyarrow.struct([("x", pyarrow.int64()), ("y", pyarrow.struct([("z", pyarrow.string())]))]),
        [{"x": 1, "y": {"z": "q"}}, None, {"x": None, "y": None}],
    ),
}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path, "iceberg")


def all_types() -> pyarrow.Table:
    columns: dict[str, Any] = {"id": pyarrow.array([0, 1, 2], pyarrow.int64())}
    columns |= {name: pyarrow.array(values, kind) for name, (kind, values) in TYPES.items()}
    return pyarrow.table(columns)


def read(lake: Lake) -> list[dict[str, Any]]:
    return sorted(lake.rows().to_pylist(), key=lambda row: row["id"])


def test_all_types_come_back_as_they_were(lake: Lake) -> None:
    table = lake.opened()
    rows = all_types()
    assert table.commit(stage(table, 0, rows))
    assert table.commit(stage(table, 1, rows.set_column(0, "id", pyarrow.array([3, 4, 5], pyarrow.int64()))))
    expected = [*rows.to_pylist(), *({**row, "id": row["id"] + 3} for row in rows.to_pylist())]
    decimals = {row["id"]: row["dec"] for row in expected}
    found = read(lake)
    assert {row["id"]: row["dec"] for row in found} == decimals
    assert repr(found) == repr(expected)


def test_readers_leave_files_out(lake: Lake) -> None:
    table = lake.opened(partition_by=("day",))
    for batch_id, day in enumerate(("2024-01-01", "2024-01-02", "2024-01-03")):
        table.commit(stage(table, batch_id, numbered(batch_id, day=day)))
    whole = lake.foreign()
    for filter_, files in (("id >= 0", 3), ("day = '2024-01-02'", 1), ("id >= 20", 1), ("id < 0", 0)):
        assert len(list(whole.scan(row_filter=filter_).plan_files())) == files
    (file,) = [each.file for each in whole.scan(row_filter="id = 25").plan_files()]
    assert (file.record_count, file.value_counts[1], file.null_value_counts[1]) == (10, 10, 0)
    found = whole.scan(row_filter="id >= 15 and id < 22").to_arrow().column("id").to_pylist()
    assert sorted(found) == [*range(15, 22)]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pyarrow.string(), ["a/b", "a=b%20", "ü '\"\\?#", "..", "", " ", "NULL", NULL_VALUE, None]),
        (pyarrow.int64(), [-(2**63), 0, None]),
        (pyarrow.bool_(), [True, False, None]),
        (pyarrow.date32(), [date(1, 1, 1), date(2024, 2, 29), None]),
        (pyarrow.timestamp("us"), [MOMENT, EARLY, None]),
        (pyarrow.timestamp("us", "UTC"), [MOMENT.replace(tzinfo=UTC), EARLY.replace(tzinfo=UTC), None]),
        (pyarrow.decimal128(10, 2), [Decimal("-1.50"), Decimal("1000.00"), None]),
    ],
    ids=str,
)
def test_odd_partition_values(tmp_path: Path, kind: pyarrow.DataType, values: list[Any]) -> None:
    lake = Lake(tmp_path / "with space", "iceberg")
    table = lake.opened(partition_by=("p",))
    rows = pyarrow.table({"id": list(range(len(values))), "p": pyarrow.array(values, kind)})
    for batch_id in range(2):
        assert table.commit(stage(table, batch_id, rows))
    expected = [value for value in values for _ in range(2)]
    assert [row["p"] for row in read(lake)] == expected
    table.compact(4_102_444_800_000)
    assert [row["p"] for row in read(lake)] == expected


def test_new_columns_and_fields_are_added_in_the_same_commit(lake: Lake) -> None:
    table = lake.opened()
    inner = pyarrow.struct([("a", pyarrow.int64())])
    outer = pyarrow.struct([("a", pyarrow.int64()), ("b", pyarrow.timestamp("us"))])
    one = pyarrow.table({"id": [0], "s": pyarrow.array([{"a": 1}], inner)})
    two = pyarrow.table({"n": ["new"], "id": [1], "s": pyarrow.array([{"a": 2, "b": MOMENT}], outer)})
    three = pyarrow.table({"id": [2]})
    for batch_id, rows in enumerate((one, two, three)):
        assert table.commit(stage(table, batch_id, rows))
    assert len(lake.foreign().snapshots()) == 3
    assert read(lake) == [
        {"id": 0, "s": {"a": 1, "b": None}, "n": None},
        {"id": 1, "s": {"a": 2, "b": MOMENT}, "n": "new"},
        {"id": 2, "s": None, "n": None},
    ]


def test_a_table_that_another_made(lake: Lake) -> None:
    table = lake.opened()
    lake_table = table._location.catalog.create_table(
        "lake.rows", Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "day", StringType()))
    )
    lake_table.append(
        numbered(0).cast(pyarrow.schema([pyarrow.field("id", pyarrow.int64(), False), ("day", "string")]))
    )
    assert table.commit(stage(table, 0, numbered(1).append_column("n", pyarrow.array(range(10)))))
    assert lake.ids() == list(range(20))
    assert lake.foreign().schema().find_field("id").required
    with pytest.raises(PipelineError, match="column id may not be null in the table, and has nulls in the batch"):
        table.commit(stage(table, 1, pyarrow.table({"id": pyarrow.array([1, None], pyarrow.int64())})))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": ["text"]}, "column id is string in the batch, and long in .*; cast it to long"),
        ({"id": pyarrow.array([1], pyarrow.int32())}, "column id is int in the batch, and long in "),
        ({"s": [{"a": "x"}]}, r"column s\.a is string in the batch, and long in "),
        ({"s": [1]}, "column s is long in the batch, and struct in "),
        ({"ID": [1]}, "column ID of the batch is named id in "),
        ({"t": pyarrow.array([1], pyarrow.timestamp("ns"))}, r"column t is of type timestamp\[ns\], which an Iceberg"),
    ],
)
def test_columns_that_do_not_fit_are_refused(lake: Lake, columns: dict[str, Any], message: str) -> None:
    table = lake.opened()
    table.commit(stage(table, 0, pyarrow.table({"id": [0], "s": [{"a": 1}]})))
    with pytest.raises(PipelineError, match=message):
        table.commit(stage(table, 1, pyarrow.table(columns)))
    assert len(read(lake)) == 1


def test_settings_that_name_no_table(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "iceberg")
    table = lake.opened(partition_by=("day",))
    table.commit(stage(table, 0, numbered(0)))
    with pytest.raises(PipelineError, match=r"partitioned by identity\(day\), and partition_by is nothing"):
        lake.opened()
    options = iceberg_sink(tmp_path).catalog_options
    for settings, message in (
        ({"catalog": "c"}, "needs catalog and table"),
        ({"catalog": "c", "table": "rows", "catalog_options": options}, "names no namespace"),
        ({"catalog": "c", "table": "a.b", "catalog_options": {"type": "never"}}, "catalog c cannot be opened"),
    ):
        with pytest.raises(PipelineError, match=message):
            IcebergBatchTable(TableSinkSettings(format="iceberg", **settings), "p")  # type: ignore[arg-type]


def test_the_namespace_is_made_by_another_driver_at_the_same_moment(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    real = SqlCatalog.create_namespace_if_not_exists

    def both(self: SqlCatalog, *names: Any) -> None:
        real(self, *names)
        raise OSError("it is there")

    monkeypatch.setattr(SqlCatalog, "create_namespace_if_not_exists", both)
    table = lake.opened()
    assert table.commit(stage(table, 0, numbered(0)))


def test_fields_are_added_beside_those_that_may_not_be_null(lake: Lake) -> None:
    table = lake.opened()
    inner = StructType(NestedField(3, "a", LongType(), required=True))
    items = ListType(5, StructType(NestedField(6, "a", LongType(), required=True)), element_required=True)
    table._location.catalog.create_table(
        "lake.rows",
        Schema(NestedField(1, "id", LongType()), NestedField(2, "s", inner), NestedField(4, "items", items)),
    )
    rows = pyarrow.table({"id": [0], "s": [{"a": 1, "b": 2}], "items": [[{"a": 3, "b": 4}]]})
    assert table.commit(stage(table, 0, rows))
    schema = lake.foreign().schema()
    assert [schema.find_field(name).required for name in ("s.a", "s.b", "items.element", "items.element.a")] == [
        True,
        False,
        True,
        True,
    ]
    assert read(lake) == rows.to_pylist()
