"""JSON decoded in the task beside Spark's own `from_json`, on seeded documents; each difference is a documented one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest

from ottla.spark.decoding import decoder, parse_decoding_options
from support.json_documents import FLAT_DDL, MAPS_DDL, Documents
from support.plain_columns import plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LENIENT = re.compile(rb"[:,\[]\s*(-?Inf|-NaN)\b")
TIMES_OF_DAY = (b"12:34:56",)


@pytest.fixture
def zoned(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, whose time zone the test may set."""
    before = spark.conf.get("spark.sql.session.timeZone")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", before)


def from_json(spark: SparkSession, documents: list[bytes], ddl: str, time_zone: str) -> dict[str, list[Any]]:
    """Columns of Spark's from_json (PERMISSIVE), and `bad`: whether it found the record corrupt."""
    from pyspark.sql import functions

    spark.conf.set("spark.sql.session.timeZone", time_zone)
    numbered = pyarrow.table({"n": list(range(len(documents))), "value": pyarrow.array(documents, pyarrow.binary())})
    parsed = functions.from_json(functions.col("value").cast("string"), f"{ddl}, _corrupt_record STRING")
    rows = spark.createDataFrame(numbered).select("n", parsed.alias("row")).toArrow().sort_by("n")
    struct = rows.column("row").combine_chunks()
    names = [struct.type.field(index).name for index in range(struct.type.num_fields)]
    columns = dict(zip(names, struct.flatten(), strict=True))
    # What is bad may be no UTF-8, in a column of texts.
    bad = columns.pop("_corrupt_record").is_valid().to_pylist()
    return {"bad": bad} | {name: plain(column) for name, column in columns.items()}


def decoded(documents: list[bytes], ddl: str, time_zone: str) -> dict[str, list[Any]]:
    """The same by ours."""
    options = {"valueFormat": "json", "valueSchema": ddl, "valueTimeZone": time_zone, "badValueColumn": ""}
    made = decoder(parse_decoding_options(options))
    columns = made.decode(pyarrow.array(documents, pyarrow.binary()))
    return dict(zip(made.fields.names, map(plain, columns), strict=True))


def unexplained(documents: list[bytes], spark: dict[str, list[Any]], ours: dict[str, list[Any]]) -> list[str]:
    """Documents with a difference that docs/spark.md does not name."""
    names = [name for name in ours if name != "_bad_reason"]
    found = []
    for row, document in enumerate(documents):
        different = [
            name for name in names if without_signed_zero(spark[name][row]) != without_signed_zero(ours[name][row])
        ]
        reason = ours["_bad_reason"][row] or ""
        bad_there = spark["bad"][row]
        if bad_there == bool(reason) and not different:
            continue
        if bad_there and LENIENT.search(document):
            continue  # pyarrow's reader takes them, too
        if different == ["ts"] and ours["ts"][row] is None and any(text in document for text in TIMES_OF_DAY):
            continue  # Spark takes a time of day for one of today
        if bad_there and reason.startswith("not JSON") and all(ours[name][row] is None for name in names):
            continue  # of broken text Spark keeps what its parser had read, and at times what comes after
        if bad_there and reason.startswith("column bin: ") and all(spark[name][row] is None for name in names):
            continue  # after some texts that are no base64 Spark's parser has lost its place
        found.append(f"{document!r}: {[(name, spark[name][row], ours[name][row]) for name in different]} {reason}")
    return found


def without_signed_zero(value: Any) -> Any:
    """Spark reads -0 as a double without its sign, and 0 and -0 are equal."""
    if isinstance(value, list | tuple):
        return [without_signed_zero(each) for each in value]
    if isinstance(value, dict):
        return {name: without_signed_zero(each) for name, each in value.items()}
    return "0.0" if value == "-0.0" else value


@pytest.mark.spec("D1")
@pytest.mark.parametrize(
    ("seed", "count"), [pytest.param(1, 1_000, id="1000"), pytest.param(17, 10_000, id="10000", marks=pytest.mark.long)]
)
def test_json_is_what_from_json_reads(zoned: SparkSession, seed: int, count: int) -> None:
    documents = Documents(seed).take(count)
    for ddl, time_zone in ((MAPS_DDL, "UTC"), (FLAT_DDL, "America/New_York")):
        spark, ours = from_json(zoned, documents, ddl, time_zone), decoded(documents, ddl, time_zone)
        assert unexplained(documents, spark, ours) == []
        differing = sum(
            any(spark[name][row] != ours[name][row] for name in ours if name != "_bad_reason") for row in range(count)
        )
        # The explained ones are rare, so that no explanation covers up for what is wrong.
        assert differing < count * 0.02
        assert sum(reason is not None for reason in ours["_bad_reason"]) > count / 10
