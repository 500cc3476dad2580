"""The ranges of a batch, planned from both of its ends where the batch runs."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.spark.errors import DataLossError
from ottla.spark.pipelines.writing.ranges import RangesReader, plan_batch
from ottla.spark.source.options import ReadOptions, parse_read_options
from ottla.spark.source.planning import PartitionRange

pytestmark = pytest.mark.spec("D3")


def _options(**given: str) -> ReadOptions:
    options = {"kafka.bootstrap.servers": "fake:1", "subscribe": "t", "startingOffsets": "earliest"}
    return parse_read_options(options | given, streaming=True)


def test_a_later_batch_begins_where_the_one_before_ended(cluster: Any) -> None:
    cluster.holds("t", (0, 100), (0, 100), (0, 100))
    start, end = {"t": {0: 10, 1: 20, 2: 30}}, {"t": {0: 40, 1: 20, 2: 31}}
    assert plan_batch(_options(), start, end) == [PartitionRange("t", 0, 10, 40), PartitionRange("t", 2, 30, 31)]
    assert cluster.clients == 0


def test_the_first_batch_begins_where_the_query_does(cluster: Any) -> None:
    """What retention has deleted before is no loss; nor is it where the start is named."""
    cluster.holds("t", (7, 100), (0, 100))
    end = {"t": {0: 50, 1: 50}}
    assert plan_batch(_options(), None, end) == [PartitionRange("t", 0, 7, 50), PartitionRange("t", 1, 0, 50)]
    named = _options(startingOffsets='{"t": {"0": 20, "1": 30}}')
    assert plan_batch(named, None, end) == [PartitionRange("t", 0, 20, 50), PartitionRange("t", 1, 30, 50)]


def test_a_partition_that_appeared_is_read_from_its_beginning(cluster: Any) -> None:
    cluster.holds("t", (0, 100), (0, 100))
    assert plan_batch(_options(), {"t": {0: 5}}, {"t": {0: 5, 1: 9}}) == [PartitionRange("t", 1, 0, 9)]


def test_deleted_records_are_refused_or_left_out_as_the_options_say(cluster: Any) -> None:
    cluster.holds("t", (15, 100))
    start, end = {"t": {0: 10}}, {"t": {0: 40}}
    with pytest.raises(DataLossError, match="t-0 wanted 10, has 15"):
        plan_batch(_options(), start, end)
    assert plan_batch(_options(failOnDataLoss="false"), start, end) == [PartitionRange("t", 0, 10, 40)]
    assert cluster.clients == 0


@pytest.mark.parametrize("given", [{}, {"minPartitions": "5"}, {"maxRecordsPerPartition": "7"}])
def test_it_is_what_spark_plans(cluster: Any, given: dict[str, str]) -> None:
    cluster.holds("t", (0, 100), (0, 100))
    planned = RangesReader(_options(**given)).partitions({"t": {"0": 3, "1": 0}}, {"t": {"0": 60, "1": 33}})
    assert plan_batch(_options(**given), {"t": {0: 3, 1: 0}}, {"t": {0: 60, 1: 33}}) == planned


def test_a_batch_without_an_end_has_no_ranges(cluster: Any) -> None:
    cluster.holds("t", (0, 100))
    assert plan_batch(_options(), {}, {}) == []
