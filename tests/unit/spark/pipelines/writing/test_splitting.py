"""Rows split by partition values."""

from __future__ import annotations

import datetime
import random
from collections import defaultdict
from decimal import Decimal

import pyarrow
import pytest

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.tables.partition_folders import NULL_VALUE, partition_folder
from ottla.spark.pipelines.writing.splitting import (
    check_partition_columns,
    split,
    values_as_text,
)

pytestmark = pytest.mark.spec("D3")


def test_each_combination_keeps_the_order_of_its_rows() -> None:
    dice = random.Random(3)
    rows = [
        {"at": number, "a": dice.choice(["x", "y", None]), "b": dice.choice([1, 2, None]), "c": dice.random() < 0.5}
        for number in range(1_000)
    ]
    expected = defaultdict(list)
    for row in rows:
        key = tuple(None if row[name] is None else str(row[name]).lower() for name in "abc")
        expected[key].append(row)
    batch = pyarrow.RecordBatch.from_pylist(rows)

    found = {values: part.to_pylist() for values, part in split(batch, ("a", "b", "c"))}

    assert found == expected
    assert len(found) == 18


def test_rows_of_one_folder_and_none_are_passed_on() -> None:
    batch = pyarrow.record_batch({"a": ["x", "x"], "b": [1, 2]})
    assert [(values, part.num_rows) for values, part in split(batch, ("a",))] == [(("x",), 2)]
    assert [(values, part.num_rows) for values, part in split(batch, ())] == [((), 2)]
    assert list(split(batch.slice(0, 0), ("a",))) == []
    assert list(split(batch.slice(0, 0), ())) == []


def test_values_as_text() -> None:
    noon = datetime.datetime(2024, 5, 6, 12, 0, 0, 120, datetime.UTC)
    batch = pyarrow.record_batch(
        {
            "text": ["a/b", None],
            "number": [-3, None],
            "small": pyarrow.array([Decimal("0.00000001"), None], pyarrow.decimal128(10, 8)),
            "flag": [True, None],
            "day": [datetime.date(2024, 5, 6), None],
            "at": pyarrow.array([noon, None], pyarrow.timestamp("us", "UTC")),
        }
    )
    first = ("a/b", "-3", "0.00000001", "true", "2024-05-06", "2024-05-06 12:00:00.000120")
    assert values_as_text(batch, batch.schema.names) == [first, (None,) * 6]


@pytest.mark.parametrize(
    ("columns", "values", "folder"),
    [
        ((), (), ""),
        (("day", "origin"), ("2013-01-01", "JFK"), "day=2013-01-01/origin=JFK"),
        (("a", "b"), (None, ""), f"a={NULL_VALUE}/b={NULL_VALUE}"),
        (("a=b",), ("50%/x:y\n",), "a%3Db=50%25%2Fx%3Ay%0A"),
    ],
)
def test_folders_as_hive_names_them(columns: tuple[str, ...], values: tuple[str | None, ...], folder: str) -> None:
    assert partition_folder(columns, values) == folder


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (("c",), "partition_by names c, which the rows lack; they have a, b"),
        (("b",), "partition_by names b, a double; partition by texts"),
        (("a", "b"), "partition_by names b, a double"),
    ],
)
def test_columns_that_cannot_be_folders(columns: tuple[str, ...], message: str) -> None:
    schema = pyarrow.schema({"a": pyarrow.string(), "b": pyarrow.float64()})
    with pytest.raises(PipelineError, match=message):
        check_partition_columns(schema, columns)


def test_something_is_left_for_the_files() -> None:
    with pytest.raises(PipelineError, match="leave one at least"):
        check_partition_columns(pyarrow.schema({"a": pyarrow.string()}), ("a",))
