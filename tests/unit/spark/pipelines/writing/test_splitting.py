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
from ottla.spark.pipelines.writing.refusals import PartitionRule, RefusedRows
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

    found = {values: part.to_pylist() for values, part in split(batch, PartitionRule(("a", "b", "c")))}

    assert found == expected
    assert len(found) == 18


def test_rows_of_one_folder_and_none_are_passed_on() -> None:
    batch = pyarrow.record_batch({"a": ["x", "x"], "b": [1, 2]})
    assert [(values, part.num_rows) for values, part in split(batch, PartitionRule(("a",)))] == [(("x",), 2)]
    assert [(values, part.num_rows) for values, part in split(batch, PartitionRule(()))] == [((), 2)]
    assert list(split(batch.slice(0, 0), PartitionRule(("a",)))) == []
    assert list(split(batch.slice(0, 0), PartitionRule(()))) == []


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


DAY_10000 = (datetime.date(9999, 12, 31) - datetime.date(1970, 1, 1)).days + 1
DAY_0 = (datetime.date(1, 1, 1) - datetime.date(1970, 1, 1)).days - 1
DAY_US = 86_400_000_000
DAYS = [DAY_10000, DAY_10000 - 1, DAY_0, DAY_0 + 1, None, 2**31 - 1]
TIMES = [DAY_10000 * DAY_US, DAY_10000 * DAY_US - 1, (DAY_0 + 1) * DAY_US - 1, (DAY_0 + 1) * DAY_US, None, 2**63 - 1]


@pytest.mark.parametrize(
    ("numbers", "kind", "what"),
    [
        (DAYS, pyarrow.date32(), "date"),
        (TIMES, pyarrow.timestamp("us", "UTC"), "time"),
        (TIMES, pyarrow.timestamp("us"), "time"),
    ],
    ids=str,
)
def test_times_that_have_no_text_name_no_partition(
    numbers: list[int | None], kind: pyarrow.DataType, what: str
) -> None:
    plain = pyarrow.int32() if pyarrow.types.is_date32(kind) else pyarrow.int64()
    batch = pyarrow.record_batch({"p": pyarrow.array(numbers, plain).cast(kind), "n": list(range(6))})
    refused = RefusedRows()
    found = {values: part.column("n").to_pylist() for values, part in split(batch, PartitionRule(("p",)), refused)}
    assert sorted(found.values()) == [[1], [3], [4]]
    assert refused == RefusedRows(3, f"partition column p: a {what} outside of the years 1 to 9999")
    with pytest.raises(PipelineError, match="outside of the years 1 to 9999"):
        list(split(batch, PartitionRule(("p",))))


def test_texts_that_name_no_partition() -> None:
    texts = pyarrow.array([b"a", b"\xff", b"x" * 255, NULL_VALUE.encode(), b"", None]).cast(
        pyarrow.string(), safe=False
    )
    batch = pyarrow.record_batch({"p": texts, "n": list(range(6))})
    reasons = [
        None,
        "partition column p: its bytes are no UTF-8",
        f"partition column p: the value {'x' * 40!r}… is too long for the name of a folder (257 of 255 bytes); "
        "partition by another column, or by part of it",
        f"partition column p: the text {NULL_VALUE} stands for null in the names of partitions",
        None,
        None,
    ]
    assert PartitionRule(("n", "p")).refusals(batch) == reasons
    assert PartitionRule(("p",), as_text=False).refusals(batch) == [*reasons[:3], None, None, None]
    found = [values for values, _ in split(batch, PartitionRule(("n", "p")), RefusedRows())]
    assert found == [("0", "a"), ("4", ""), ("5", None)]
