"""What a task of the fast path does, without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.dataset
import pytest

from ottla.spark.decoding.options import parse_decoding_options
from ottla.spark.pipelines.queries.inspection import Inspection
from ottla.spark.pipelines.tables.contract import Staging
from ottla.spark.pipelines.tables.partition_folders import NULL_VALUE
from ottla.spark.pipelines.writing.direct import DirectSelection, DirectTask, RecordRefusals, into_tasks
from ottla.spark.pipelines.writing.plan import SqlRules, plan_steps
from ottla.spark.pipelines.writing.refusals import PartitionRule
from ottla.spark.source.options import parse_read_options
from ottla.spark.source.planning import PartitionRange

pytestmark = pytest.mark.spec("D3")

OPTIONS = {
    "kafka.bootstrap.servers": "fake:1",
    "subscribe": "t",
    "valueFormat": "json",
    "valueSchema": "id BIGINT, place STRING",
    "badValueColumn": "",
    "badReasonColumn": "_bad",
    "columns": "id,place,_bad,offset,timestamp",
    "rowsPerBatch": "10",
}
VIEW = pyarrow.schema(
    {
        "id": pyarrow.int64(),
        "place": pyarrow.string(),
        "offset": pyarrow.int64(),
        "timestamp": pyarrow.timestamp("us", "UTC"),
    }
)
REASON = f"partition column place: the text {NULL_VALUE} stands for null in the names of partitions"
NUMBERS = pyarrow.record_batch({"id": pyarrow.array([0], pyarrow.int64())})


def _values(count: int) -> list[bytes]:
    return [
        b"no JSON" if number % 10 == 9 else json.dumps({"id": number, "place": f"p{number % 2}"}).encode()
        for number in range(count)
    ]


def _task(folder: Path, work: list[list[PartitionRange]], sql: str) -> DirectTask:
    plan = plan_steps("events", VIEW, [("rows", sql)], SqlRules(ansi=True, utc=True))
    assert plan is not None
    selection = DirectSelection("_bad", plan.views["events"]["timestamp"], plan.conditions)
    schema = pyarrow.schema({"id": pyarrow.int64(), "place": pyarrow.string(), "offset": pyarrow.int64()})
    staging = Staging(folder.as_uri(), {}, ("place",), "zstd")
    return DirectTask(parse_read_options(OPTIONS, streaming=True), selection, schema, staging, work)


def test_a_task_writes_its_ranges_and_reports(cluster: Any, tmp_path: Path) -> None:
    cluster.holds("t", (0, 100))
    cluster.values = _values(100)
    work = [[PartitionRange("t", 0, 0, 30), PartitionRange("t", 0, 50, 100)], [PartitionRange("t", 0, 30, 50)]]
    task = _task(tmp_path, work, "SELECT id, place, offset FROM events WHERE id <> 4")
    reports = [row for batch in task.run(iter([NUMBERS])) for row in batch.to_pylist()]

    *files, rest = reports
    assert (rest["refused_rows"], rest["refusal"]) == (0, None)
    assert rest["path"] is None
    assert rest["bad_records"] == 8
    assert rest["latest_event_ms"] == 98, "the time of a record that parses"
    assert sorted(each["partition"] for each in files) == [["p0"], ["p1"]]
    table = pyarrow.dataset.dataset(tmp_path, partitioning="hive").to_table()
    wanted = [each for each in (*range(30), *range(50, 100)) if each % 10 != 9 and each != 4]
    assert sorted(table["id"].to_pylist()) == sorted(table["offset"].to_pylist()) == wanted


def test_a_condition_that_keeps_nothing_writes_no_file(cluster: Any, tmp_path: Path) -> None:
    cluster.holds("t", (0, 20))
    cluster.values = _values(20)
    task = _task(
        tmp_path, [[PartitionRange("t", 0, 0, 20)]], "SELECT id, place, offset FROM events WHERE place IS NULL"
    )
    (report,) = (row for batch in task.run(iter([NUMBERS])) for row in batch.to_pylist())
    assert report["path"] is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("sizes", "cores", "tasks"),
    [
        ([], 2, []),
        ([10, 20, 30], 2, [60]),
        ([100_000, 100_000], 2, [100_000, 100_000]),
        # One partition is shared, too.
        ([200_000], 2, [100_000, 100_000]),
        # Not three tasks on two cores, of which one has nothing to do at the end.
        ([50_001] * 4, 2, [100_002, 100_002]),
        ([125_000] * 4, 2, [250_000] * 2),
        ([125_001] * 4, 2, [125_001] * 4),
        ([500_000, 1, 100_000], 2, [150_000, 150_000, 150_000, 150_001]),
        ([500_000, 1, 100_000], 1, [200_000, 200_000, 200_001]),
        ([350_000], 8, [87_500] * 4),
        ([1_000_000], 8, [125_000] * 8),
        ([1_000_000] * 3, 8, [187_500] * 16),
        # Of a session that does not say how many cores it has.
        ([350_000], None, [87_500] * 4),
        ([1_000_000], None, [100_000] * 10),
    ],
)
def test_few_records_go_to_one_task_and_many_are_shared_evenly(
    sizes: list[int], cores: int | None, tasks: list[int]
) -> None:
    ranges = [PartitionRange("t", number, 7, 7 + size) for number, size in enumerate(sizes)]
    work = into_tasks(ranges, cores)
    assert sorted(sum(each.size for each in part) for part in work) == tasks

    parts = [each for part in work for each in part]
    assert all(each.size > 0 for each in parts)
    assert len(parts) <= max(0, len(ranges) + len(work) - 1)
    for whole in ranges:
        mine = [each for each in parts if each.partition == whole.partition]
        cuts = [mine[0].start, *(each.end for each in mine)]
        assert cuts == [whole.start, *(each.start for each in mine[1:]), whole.end], "each offset is read once"


def test_a_task_has_one_connection_for_all_its_ranges(cluster: Any, tmp_path: Path) -> None:
    cluster.holds("t", *[(0, 20)] * 5)
    cluster.values = _values(20)
    work = [[PartitionRange("t", number, 0, 20) for number in range(5)]]
    task = _task(tmp_path, work, "SELECT id, place, offset FROM events")
    *files, _ = (row for batch in task.run(iter([NUMBERS])) for row in batch.to_pylist())
    assert sum(each["rows"] for each in files) == 5 * 18
    connections = [each for each in cluster.settings if "bootstrap_servers" in each]
    assert (len(connections), cluster.clients) == (1, 0)


LATE = 253_402_300_800_000_000
"""The first microsecond of the year 10000."""


def test_records_whose_rows_no_partition_can_hold_are_left_out_and_found_again(cluster: Any, tmp_path: Path) -> None:
    cluster.holds("t", (0, 20))
    cluster.values = [
        json.dumps({"id": number, "place": NULL_VALUE if number % 5 == 0 else f"p{number % 2}"}).encode()
        for number in range(20)
    ]
    cluster.values[3] = b"no JSON"
    sql = "SELECT id, place, offset FROM events WHERE id <> 5"
    task = _task(tmp_path, [[PartitionRange("t", 0, 0, 20)]], sql)
    *files, rest = (row for batch in task.run(iter([NUMBERS])) for row in batch.to_pylist())
    assert (rest["bad_records"], rest["refused_rows"], rest["refusal"]) == (1, 3, REASON)
    assert sum(each["rows"] for each in files) == 15
    assert sorted(each.name for each in tmp_path.iterdir()) == ["place=p0", "place=p1"]

    refusals = RecordRefusals(task._selection.conditions, PartitionRule(("place",)))
    inspection = Inspection("events", parse_decoding_options(OPTIONS), new_fields=False, refusals=refusals)
    records = pyarrow.record_batch(
        {
            "topic": ["t"] * 20,
            "partition": pyarrow.array([0] * 20, pyarrow.int32()),
            "offset": pyarrow.array(range(20), pyarrow.int64()),
            "timestamp": pyarrow.array(range(20), pyarrow.timestamp("us", "Asia/Kolkata")),
            "key": pyarrow.nulls(20, pyarrow.binary()),
            "value": cluster.values,
        }
    )
    found = [row for batch in inspection.run(iter([records])) for row in batch.to_pylist()]
    assert [(each["offset"], each["value"]) for each in found] == [(at, cluster.values[at]) for at in (0, 3, 10, 15)]
    assert [each["reason"] for each in found if each["offset"] != 3] == [REASON] * 3


def test_letters_of_times_as_records_have_them_need_no_decoding() -> None:
    sql = "SELECT offset, CAST(timestamp AS DATE) AS day FROM events"
    view = pyarrow.schema(
        {"value": pyarrow.binary(), "offset": pyarrow.int64(), "timestamp": VIEW.field("timestamp").type}
    )
    plan = plan_steps("events", view, [("rows", sql)], SqlRules(ansi=True, utc=True))
    assert plan is not None
    inspection = Inspection(
        "events", None, new_fields=False, refusals=RecordRefusals(plan.conditions, PartitionRule(("day",)))
    )
    records = pyarrow.record_batch(
        {
            "topic": ["t"] * 3,
            "partition": pyarrow.array([0] * 3, pyarrow.int32()),
            "offset": pyarrow.array(range(3), pyarrow.int64()),
            "timestamp": pyarrow.array([0, LATE, LATE - 1], pyarrow.timestamp("us", "UTC")),
            "key": pyarrow.nulls(3, pyarrow.binary()),
            "value": [b"a", b"b", b"c"],
        }
    )
    found = [row for batch in inspection.run(iter([records])) for row in batch.drop_columns("timestamp").to_pylist()]
    reason = "partition column day: a date outside of the years 1 to 9999"
    assert [(each["offset"], each["value"], each["reason"]) for each in found] == [(1, b"b", reason)]
