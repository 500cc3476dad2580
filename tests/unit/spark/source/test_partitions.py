"""Which partitions are read, from where to where."""

from __future__ import annotations

import logging

import pytest

from ottla.client.errors import UnknownTopicError
from ottla.client.model import TopicPartition
from ottla.spark.errors import DataLossError, OptionError
from ottla.spark.source.options import ReadOptions, parse_read_options
from ottla.spark.source.partitions import (
    check_retained,
    ending_offsets,
    selected_partitions,
    starting_offsets,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def _options(streaming: bool = True, **extra: str) -> ReadOptions:
    named = {name.replace("__", "."): value for name, value in extra.items()}
    if not {"subscribe", "subscribePattern", "assign"} & set(named):
        named["subscribe"] = "a"
    return parse_read_options({"kafka.bootstrap.servers": "h:1"} | named, streaming=streaming)


@pytest.fixture(autouse=True)
def _topics(cluster) -> None:
    cluster.holds("a", (5, 10), (0, 20))
    cluster.holds("b", (0, 3))


def _select(cluster, options: ReadOptions) -> list[TopicPartition]:
    return list(selected_partitions(cluster.connect(), options.selection))


def test_partitions_of_topics_of_a_pattern_and_assigned(cluster) -> None:
    assert _select(cluster, _options(subscribe="b,a")) == [A0, A1, B0]
    assert _select(cluster, _options(subscribePattern="[ab]")) == [A0, A1, B0]
    assert _select(cluster, _options(subscribePattern="x.*")) == []
    cluster.holds("orders-b", (0, 3))
    assert [each.topic for each in _select(cluster, _options(subscribePattern="b"))] == ["b", "orders-b"], "anywhere"
    assert [each.topic for each in _select(cluster, _options(subscribePattern="^b$"))] == ["b"]
    assert _select(cluster, _options(assign='{"b": [0], "a": [1]}')) == [A1, B0]


def test_what_does_not_exist_is_named(cluster) -> None:
    with pytest.raises(UnknownTopicError, match="topic x does not exist"):
        _select(cluster, _options(subscribe="x"))
    with pytest.raises(OptionError, match="topic a has no partition 7; it has 0, 1"):
        _select(cluster, _options(assign='{"a": [7]}'))


def test_words_and_numbers_start_a_read(cluster) -> None:
    client = cluster.connect()
    assert starting_offsets(client, [A0, A1], _options(startingOffsets="earliest")) == {A0: 5, A1: 0}
    assert starting_offsets(client, [A0, A1], _options(startingOffsets="latest")) == {A0: 10, A1: 20}
    mixed = _options(startingOffsets='{"a": {"0": -2, "1": 7}}')
    assert starting_offsets(client, [A0, A1], mixed) == {A0: 5, A1: 7}
    ends = _options(streaming=False, endingOffsets='{"a": {"0": 8, "1": -1}}')
    assert ending_offsets(client, [A0, A1], ends) == {A0: 8, A1: 20}


def test_offsets_must_name_the_partitions_that_are_read(cluster) -> None:
    client = cluster.connect()
    with pytest.raises(OptionError, match="leave out a-1"):
        starting_offsets(client, [A0, A1], _options(startingOffsets='{"a": {"0": 5}}'))
    with pytest.raises(OptionError, match="name b-0, which the query does not read"):
        starting_offsets(client, [A0], _options(startingOffsets='{"a": {"0": 5}, "b": {"0": 1}}'))


def test_a_time_starts_a_read_where_it_can(cluster) -> None:
    client = cluster.connect()
    cluster.times = {A0: 7}
    assert starting_offsets(client, [A0], _options(startingTimestamp="1000")) == {A0: 7}
    with pytest.raises(OptionError, match="no record at or after the starting timestamp in a-1"):
        starting_offsets(client, [A0, A1], _options(startingTimestamp="1000"))
    lenient = _options(startingTimestamp="1000", startingOffsetsByTimestampStrategy="latest")
    assert starting_offsets(client, [A0, A1], lenient) == {A0: 7, A1: 20}
    each = _options(startingOffsetsByTimestamp='{"a": {"0": 1000}}')
    assert starting_offsets(client, [A0], each) == {A0: 7}


def test_a_time_ends_a_read(cluster) -> None:
    cluster.times = {A0: 7}
    options = _options(streaming=False, endingTimestamp="1000")
    assert ending_offsets(cluster.connect(), [A0, A1], options) == {A0: 7, A1: 20}


def test_lost_records_stop_a_read_or_are_reported(cluster, caplog: pytest.LogCaptureFixture) -> None:
    client = cluster.connect()
    check_retained(client, {A0: 5, A1: 0}, fail=True)
    with pytest.raises(DataLossError, match="a-0 wanted 3, has 5"):
        check_retained(client, {A0: 3, A1: 0}, fail=True)
    with caplog.at_level(logging.WARNING):
        check_retained(client, {A0: 3}, fail=False)
    assert "a-0 wanted 3, has 5" in caplog.text


def test_a_read_starts_where_its_group_committed(cluster) -> None:
    client = cluster.connect()
    client.commit("g", {A0: 7})
    committed = {"startingOffsets": "committed", "kafka__group__id": "g"}
    assert starting_offsets(client, [A0, A1], _options(**committed)) == {A0: 7, A1: 20}
    earliest = _options(**committed, kafka__auto__offset__reset="earliest")
    assert starting_offsets(client, [A0, A1], earliest) == {A0: 7, A1: 0}
    none = _options(**committed, kafka__auto__offset__reset="none")
    assert starting_offsets(client, [A0], none) == {A0: 7}
    with pytest.raises(OptionError, match="group g has no committed offset for a-1"):
        starting_offsets(client, [A0, A1], none)


def test_an_end_that_is_not_there_is_a_loss(cluster) -> None:
    ends = {"streaming": False, "endingOffsets": '{"a": {"0": 11, "1": 20}}'}
    with pytest.raises(DataLossError, match="a-0 up to 11, ends at 10"):
        ending_offsets(cluster.connect(), [A0, A1], _options(**ends))
    assert ending_offsets(cluster.connect(), [A0, A1], _options(**ends, failOnDataLoss="false")) == {A0: 10, A1: 20}


def test_times_per_partition_are_asked_for_together(cluster) -> None:
    cluster.times = {A0: 7, A1: 9}
    options = _options(startingOffsetsByTimestamp='{"a": {"0": 1000, "1": 1000}}')
    assert starting_offsets(cluster.connect(), [A0, A1], options) == {A0: 7, A1: 9}
    assert cluster.calls == 1


def test_a_time_within_an_open_transaction_starts_where_that_begins(cluster) -> None:
    cluster.times, cluster.stable = {A0: 9}, {A0: 8}
    options = _options(startingTimestamp="1000", kafka__isolation__level="read_committed")
    assert starting_offsets(cluster.connect(), [A0], options) == {A0: 8}
