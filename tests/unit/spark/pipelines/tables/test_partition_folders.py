"""Names of partition folders, as pyarrow and Spark read them."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import dataset

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.tables.opening import open_table
from ottla.spark.pipelines.tables.parquet.names import DataFileName
from ottla.spark.pipelines.tables.parquet.times import is_passed
from ottla.spark.pipelines.tables.partition_folders import NULL_VALUE, partition_folder, partition_values
from support.staged_batches import settings, stage

pytestmark = pytest.mark.spec("D3")

#: Text whose name as a folder has at most 255 bytes, whatever has to be escaped.
values = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@pytest.mark.slow
@given(st.lists(st.one_of(st.none(), values), min_size=1, max_size=3))
def test_pyarrow_reads_what_was_written(written: list[str | None]) -> None:
    columns = [f"c{number}" for number in range(len(written))]
    folder = partition_folder(columns, written)
    schema = pyarrow.schema([(column, pyarrow.string()) for column in columns])
    parsed = dataset.get_partition_keys(dataset.partitioning(schema, flavor="hive").parse(f"{folder}/part.parquet"))
    # Hive has one name for null and for empty text; text that is this name means null, too.
    expected = [None if value in ("", NULL_VALUE) else value for value in written]
    assert [parsed.get(column) for column in columns] == expected
    assert list(partition_values(folder).values()) == expected


@given(values)
def test_a_value_is_one_name_that_every_file_system_takes(value: str) -> None:
    folder = partition_folder(["c"], [value])
    assert "/" not in folder
    assert "\x00" not in folder
    assert len(folder.encode()) <= 255
    assert folder.startswith("c=")


def test_what_spark_writes() -> None:
    """As `ExternalCatalogUtils.escapePathName` has them."""
    escaped = {
        "a/b": "a%2Fb",
        "50%": "50%25",
        "a=b": "a%3Db",
        "x:y": "x%3Ay",
        "[1]{2": "%5B1%5D%7B2",
        "'\"*?\\^#": "%27%22%2A%3F%5C%5E%23",
        "\n\x7f": "%0A%7F",
        "ü 日 .}+&": "ü 日 .}+&",
        "..": "..",
        "": NULL_VALUE,
        None: NULL_VALUE,
    }
    assert {value: partition_folder(["c"], [value]) for value in escaped} == {
        value: f"c={name}" for value, name in escaped.items()
    }


@pytest.mark.parametrize("value", ["x" * 300, "é" * 127, "/" * 90])
def test_a_value_too_long_for_a_name_is_told(value: str) -> None:
    with pytest.raises(PipelineError, match=r"partition column c: the value .* is too long .*partition by another"):
        partition_folder(["c"], [value])


def test_what_is_no_text_is_told() -> None:
    with pytest.raises(PipelineError, match="is not valid text"):
        partition_folder(["c"], ["\ud800"])


HOSTILE = ["a/b", "../..", "..", ".", "", None, "ü\u202e日", "x=y", "%2F", " ", "\n", "_x", ".x", "C:\\x", "__HIVE"]


@pytest.mark.slow
def test_hostile_values_in_a_table(tmp_path: Path) -> None:
    sink = settings(str(tmp_path / "table"))
    table = open_table(sink, "archive")
    table.recover()
    assert table.commit(stage(table, 0, {value: [number] for number, value in enumerate(HOSTILE)}))
    schema = pyarrow.schema([("day", pyarrow.string())])
    found = dataset.dataset(tmp_path / "table", partitioning=dataset.partitioning(schema, flavor="hive")).to_table()
    by_offset = dict(zip(found["offset"].to_pylist(), found["day"].to_pylist(), strict=True))
    assert by_offset == {number: value or None for number, value in enumerate(HOSTILE)}
    assert [each.name for each in tmp_path.iterdir()] == ["table"]


@pytest.mark.slow
def test_a_value_too_long_commits_nothing(tmp_path: Path) -> None:
    table = open_table(settings(str(tmp_path)), "archive")
    table.recover()
    with pytest.raises(PipelineError, match="too long"):
        table.commit(stage(table, 0, {"a": [0], "x" * 300: [1]}))
    assert table.last_commit() is None
    assert not list(tmp_path.glob("day=*"))


def test_names_of_files_sort_as_they_were_committed() -> None:
    names = [
        DataFileName(2, 10, table="0123abcd"),
        DataFileName(10, 0, table="0123abcd"),
        DataFileName(10, 3, 1, 0, table="0123abcd"),
        DataFileName(10, 3, 1, 1, table="0123abcd"),
        DataFileName(11, 0, table="0123abcd"),
    ]
    assert [DataFileName.parse(str(name)) for name in names] == names
    assert sorted(names) == names
    assert sorted(map(str, names)) == [str(name) for name in names]
    assert DataFileName.parse("part-0.parquet") is None


MIDNIGHT_MS = 1_356_998_400_000  # the beginning of 2013-01-01 in UTC
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("of", "hours"),
    [
        ({"day": "2012-12-31"}, 12),
        ({"hour": "2012-12-31 05:00:00"}, 12),
        ({"hour": "2012-12-31T05"}, 12),
        ({"carrier": "AA", "day": "2012-12-31"}, 12),
        ({"day": "2012-12-31", "later": "2100-01-01"}, 12),
        ({"year": "2012"}, 12),
        ({"Year": "2012", "Month": "12"}, 12),
        ({"year": "2012", "month": "12", "day": "31"}, 12),
        ({"year": "2013", "month": "1", "day": "1"}, 36),
    ],
)
def test_a_folder_is_passed_when_its_day_has_ended_everywhere(of: dict[str, str], hours: int) -> None:
    assert is_passed(of, MIDNIGHT_MS + hours * HOUR_MS)
    assert not is_passed(of, MIDNIGHT_MS + hours * HOUR_MS - 1)


@pytest.mark.parametrize(
    "of",
    [
        {"carrier": "AA"},
        {"day": None},
        {"day": "2012-02-31"},
        {"day": "9999-12-31"},
        {"year": "many"},
        {"year": "2012", "month": "13"},
        {"month": "1", "day": "1"},
        {"n": "20120101"},
        {},
    ],
)
def test_without_a_time_no_folder_is_passed(of: dict[str, str | None]) -> None:
    assert not is_passed(of, MIDNIGHT_MS * 3)
    assert not is_passed(of, 1 << 62)
