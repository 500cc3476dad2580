"""Offsets: their JSON, ranges, limits."""

from __future__ import annotations

import pickle
from itertools import pairwise

import pytest

from ottla.client.model import TopicPartition
from ottla.spark.source.offsets import OffsetJsonError, from_json, parse_assignment, parse_offsets, to_json
from ottla.spark.source.options import SplitOptions
from ottla.spark.source.planning import PartitionRange, limit_offsets, plan_ranges

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@pytest.mark.spec("D1")
def test_offsets_are_json_as_spark_s_kafka_source_writes_it() -> None:
    assert to_json({B0: 7, A1: 5, A0: 23}) == {"a": {"0": 23, "1": 5}, "b": {"0": 7}}
    assert from_json({"a": {"0": 23, "1": 5}, "b": {"0": 7}}) == {A0: 23, A1: 5, B0: 7}


def test_partitions_are_in_the_order_of_their_numbers() -> None:
    many = {TopicPartition("a", number): number for number in reversed(range(12))}
    assert list(to_json(many)["a"]) == [str(number) for number in range(12)]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not JSON"),
        ("[]", "expected"),
        ("{}", "{} names no partition"),
        ('{"a": {}}', "names no partition"),
        ('{"a": 3}', "topic 'a': expected an object"),
        ('{"a": {"x": 3}}', "'x' is not a partition number"),
        ('{"a": {"-1": 3}}', "'-1' is not a partition number"),
        ('{"a": {"0": "3"}}', "a-0: '3' is not a number"),
        ('{"a": {"0": true}}', "a-0: True is not a number"),
        ('{"a": {"0": 1.5}}', "a-0: 1.5 is not a number"),
        ('{"a": {"0": -3}}', "a-0: -3 is not a number of -2 or more"),
    ],
)
def test_malformed_offsets_are_refused_by_name(text: str, complaint: str) -> None:
    with pytest.raises(OffsetJsonError) as refused:
        parse_offsets(text)
    assert complaint in str(refused.value)


def test_earliest_may_be_forbidden() -> None:
    assert parse_offsets('{"a": {"0": -2}}') == {A0: -2}
    with pytest.raises(OffsetJsonError):
        parse_offsets('{"a": {"0": -2}}', lowest=-1)


def test_assignment() -> None:
    assert parse_assignment('{"a": [1, 0], "b": [0]}') == [A1, A0, B0]
    for text in ("{}", "[]", "x", '{"a": 1}', '{"a": []}', '{"a": [-1]}', '{"a": [true]}'):
        with pytest.raises(OffsetJsonError):
            parse_assignment(text)


def test_a_limit_is_shared_in_proportion_to_what_is_there() -> None:
    assert limit_offsets({A0: 0, A1: 0}, {A0: 900, A1: 100}, 100) == {A0: 90, A1: 10}
    assert limit_offsets({A0: 10, A1: 5}, {A0: 910, A1: 105}, 100) == {A0: 100, A1: 15}


def test_a_limit_beyond_what_is_there_takes_all() -> None:
    assert limit_offsets({A0: 0, A1: 0}, {A0: 900, A1: 100}, 1_000) == {A0: 900, A1: 100}


def test_no_partition_with_records_starves() -> None:
    limited = limit_offsets({A0: 0, A1: 0, B0: 4}, {A0: 1_000_000, A1: 1, B0: 4}, 10)
    assert limited == {A0: 9, A1: 1, B0: 4}


def test_a_limited_stream_arrives_at_its_end() -> None:
    end = {A0: 1_003, A1: 17}
    at, batches = {A0: 0, A1: 0}, 0
    while at != end:
        after = limit_offsets(at, end, 100)
        assert all(after[each] >= at[each] for each in at)
        assert 0 < sum(after.values()) - sum(at.values()) <= 101
        at, batches = after, batches + 1
    assert batches == 11


def test_a_partition_that_was_made_anew_ends_where_it_ends() -> None:
    assert limit_offsets({A0: 50, A1: 0}, {A0: 20, A1: 100}, 10) == {A0: 20, A1: 10}
    assert limit_offsets({A0: 50}, {A0: 20}, 10) == {A0: 20}


def test_one_range_per_partition_with_records() -> None:
    ranges = plan_ranges({A0: 0, A1: 5, B0: 2}, {B0: 4, A1: 5, A0: 10})
    assert ranges == [PartitionRange("a", 0, 0, 10), PartitionRange("b", 0, 2, 4)]


@pytest.mark.parametrize("wanted", [2, 3, 5, 10, 400])
def test_more_tasks_split_partitions_without_gap_or_overlap(wanted: int) -> None:
    start, end = {A0: 3, A1: 0}, {A0: 100, A1: 10}
    ranges = plan_ranges(start, end, SplitOptions(wanted))
    assert len(ranges) >= min(wanted, 107)
    for partition in (A0, A1):
        mine = [each for each in ranges if each.partition == partition.partition]
        assert mine[0].start == start[partition]
        assert mine[-1].end == end[partition]
        assert all(before.end == after.start for before, after in pairwise(mine))
        assert all(each.end > each.start for each in mine)


def test_small_partitions_stay_whole_and_large_ones_share_the_tasks() -> None:
    """As Spark's KafkaOffsetRangeCalculator counts: 1 and 1 of 100 records, 2 for the other 98."""
    ranges = plan_ranges({A0: 0, A1: 0, B0: 0}, {A0: 1, A1: 1, B0: 98}, SplitOptions(4))
    assert [(each.topic, each.partition, each.start, each.end) for each in ranges] == [
        ("a", 0, 0, 1),
        ("a", 1, 0, 1),
        ("b", 0, 0, 49),
        ("b", 0, 49, 98),
    ]


def test_no_task_has_more_records_than_allowed() -> None:
    ranges = plan_ranges({A0: 5, A1: 0}, {A0: 25, A1: 3}, SplitOptions(max_records=8))
    assert [(each.partition, each.start, each.end) for each in ranges] == [
        (0, 5, 11),
        (0, 11, 18),
        (0, 18, 25),
        (1, 0, 3),
    ]
    more = plan_ranges({A0: 5, A1: 0}, {A0: 25, A1: 3}, SplitOptions(6, 8))
    assert len(more) >= 6
    assert max(each.size for each in more) <= 7


def test_ranges_are_split_by_the_size_of_their_records() -> None:
    split = SplitOptions(max_bytes=1_000)
    ranges = plan_ranges({A0: 0, A1: 0, B0: 0}, {A0: 30, A1: 3, B0: 5}, split, {A0: 100.0, A1: 5_000.0})
    sizes = {
        partition: [each.size for each in ranges if (each.topic, each.partition) == partition]
        for partition in (A0, A1, B0)
    }
    assert sizes == {A0: [10, 10, 10], A1: [1, 1, 1], B0: [5]}


def test_a_range_travels_to_a_worker() -> None:
    assert pickle.loads(pickle.dumps(PartitionRange("a", 1, 2, 3))) == PartitionRange("a", 1, 2, 3)
