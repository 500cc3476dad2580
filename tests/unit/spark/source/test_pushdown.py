"""Filters on partitions, offsets and times that say what need not be read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from ottla.client.model import TopicPartition
from ottla.spark.source import batch
from ottla.spark.source.batch import BatchReader, FilteringBatchReader, batch_reader
from ottla.spark.source.options import parse_read_options
from ottla.spark.source.planning import PartitionRange
from ottla.spark.source.pushdown import Pushdown, push_filters

OPTIONS = parse_read_options({"kafka.bootstrap.servers": "h:1", "subscribe": "a,b"}, streaming=False)
OFFSET, PARTITION, TOPIC, TIME = ("offset",), ("partition",), ("topic",), ("timestamp",)


def _planned(cluster, *filters: Filter) -> tuple[list[PartitionRange], list[Filter]]:
    reader = FilteringBatchReader(OPTIONS)
    left = list(reader.pushFilters(list(filters)))
    return [each for each in reader.partitions() if isinstance(each, PartitionRange)], left


@pytest.fixture(autouse=True)
def _topics(cluster) -> None:
    cluster.holds("a", (0, 100), (10, 50))
    cluster.holds("b", (0, 30))


@pytest.mark.spec("D1")
@pytest.mark.parametrize(
    ("filters", "ranges"),
    [
        ([EqualTo(PARTITION, 1)], [("a", 1, 10, 50)]),
        ([In(PARTITION, (0, 7))], [("a", 0, 0, 100), ("b", 0, 0, 30)]),
        ([Not(EqualTo(PARTITION, 0))], [("a", 1, 10, 50)]),
        ([EqualTo(TOPIC, "b")], [("b", 0, 0, 30)]),
        ([Not(In(TOPIC, ("a", "c")))], [("b", 0, 0, 30)]),
        ([GreaterThan(OFFSET, 40)], [("a", 0, 41, 100), ("a", 1, 41, 50)]),
        ([GreaterThanOrEqual(OFFSET, 40), LessThan(OFFSET, 45)], [("a", 0, 40, 45), ("a", 1, 40, 45)]),
        ([LessThanOrEqual(OFFSET, 10), EqualTo(TOPIC, "a")], [("a", 0, 0, 11), ("a", 1, 10, 11)]),
        ([EqualTo(OFFSET, 29)], [("a", 0, 29, 30), ("a", 1, 29, 30), ("b", 0, 29, 30)]),
        ([EqualNullSafe(OFFSET, 99)], [("a", 0, 99, 100)]),
        ([In(OFFSET, (48, 49, 50))], [("a", 0, 48, 51), ("a", 1, 48, 50)]),
        ([LessThan(OFFSET, 0)], []),
        ([IsNotNull(OFFSET), EqualTo(TOPIC, "none")], []),
    ],
)
def test_what_filters_leave_is_exactly_what_is_read(cluster, filters, ranges) -> None:
    planned, left = _planned(cluster, *filters)
    assert [(each.topic, each.partition, each.start, each.end) for each in planned] == ranges
    assert left == [], "Spark need not look again"


@pytest.mark.parametrize(
    "filter",
    [
        IsNotNull(("key",)),
        IsNull(OFFSET),
        Not(IsNotNull(OFFSET)),
        Not(EqualTo(OFFSET, 5)),
        EqualTo(PARTITION, None),
        Not(In(PARTITION, (1, None))),
        EqualTo(("value",), b"x"),
        EqualTo(("headers", "offset"), 5),
        StringStartsWith(TOPIC, "a"),
        LessThan(TIME, datetime(2026, 1, 1, tzinfo=UTC)),
        GreaterThan(TIME, datetime(2026, 1, 1)),  # noqa: DTZ001 - as a TIMESTAMP_NTZ comes
        GreaterThan(OFFSET, "5"),
    ],
)
def test_other_filters_are_spark_s(cluster, filter) -> None:
    planned, left = _planned(cluster, filter)
    assert left == [filter]
    assert len(planned) == 3


def test_scattered_offsets_are_bounded_and_left_to_spark(cluster) -> None:
    wanted = In(OFFSET, (20, 40))
    planned, left = _planned(cluster, wanted)
    assert [(each.start, each.end) for each in planned] == [(20, 41), (20, 41), (20, 30)]
    assert left == [wanted]


def test_records_before_the_first_late_enough_are_not_read(cluster) -> None:
    """Records need not be in the order of their times, so Spark filters what is read."""
    cluster.times = {TopicPartition("a", 0): 70, TopicPartition("a", 1): 5}
    since = GreaterThanOrEqual(TIME, datetime(2026, 1, 1, tzinfo=UTC))
    planned, left = _planned(cluster, since)
    assert [(each.topic, each.partition, each.start, each.end) for each in planned] == [
        ("a", 0, 70, 100),
        ("a", 1, 10, 50),
    ]
    assert left == [since]


@pytest.mark.parametrize(
    ("filter", "ms"),
    [
        (GreaterThanOrEqual(TIME, datetime(1970, 1, 1, 0, 0, 1, 500, tzinfo=UTC)), 1_001),
        (GreaterThan(TIME, datetime(1970, 1, 1, 0, 0, 1, 500, tzinfo=UTC)), 1_001),
        (GreaterThanOrEqual(TIME, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)), 1_000),
        (GreaterThan(TIME, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)), 1_001),
        (EqualTo(TIME, datetime(1970, 1, 1, 1, 0, 2, tzinfo=timezone(timedelta(hours=1)))), 2_000),
        (GreaterThan(TIME, datetime(1960, 1, 1, tzinfo=UTC)), 0),
    ],
)
def test_times_are_milliseconds_rounded_up(filter, ms) -> None:
    pushdown = Pushdown()
    push_filters([filter], pushdown)
    assert pushdown.timestamp_ms == ms


def test_lost_records_that_no_filter_wants_are_no_loss(cluster) -> None:
    options = parse_read_options(
        {"kafka.bootstrap.servers": "h:1", "subscribe": "a", "startingOffsets": '{"a": {"0": 0, "1": 3}}'},
        streaming=False,
    )
    reader = FilteringBatchReader(options)
    reader.pushFilters([GreaterThan(OFFSET, 20)])
    assert len(reader.partitions()) == 2


def test_filters_are_taken_only_where_spark_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its other worker refuses a reader that takes filters while their pushdown is disabled."""
    assert type(batch_reader(OPTIONS)) is BatchReader
    monkeypatch.setitem(batch.sys.modules, "pyspark.sql.worker.data_source_pushdown_filters", object())
    assert type(batch_reader(OPTIONS)) is FilteringBatchReader
