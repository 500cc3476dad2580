"""Sources: their options, and whose an entry of Spark's log is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.spark.pipelines.errors import PipelineError, PipelineSettingsError
from ottla.spark.pipelines.queries.inspection import BatchRange, later_of
from ottla.spark.pipelines.queries.sources import by_source, check_one_source_per_topic, read_options
from ottla.spark.pipelines.settings.model import SourceSettings

ORDERS = SourceSettings(name="orders", bootstrap_servers="b:9092", group_id="g", topics=("a", "b"))
OTHERS = SourceSettings(name="others", bootstrap_servers="b:9092", group_id="g", topic_pattern="^x")


def test_options_are_those_of_the_format() -> None:
    options = read_options(
        replace(ORDERS, value_format="json", max_offsets_per_trigger=5, options={"kafka.client.id": "me"}),
        schema="id BIGINT",
        starting="latest",
    )
    assert options == {
        "kafka.bootstrap.servers": "b:9092",
        "kafka.group.id": "g",
        "kafka.client.id": "me",
        "subscribe": "a,b",
        "startingOffsets": "latest",
        "maxOffsetsPerTrigger": "5",
        "valueFormat": "json",
        "valueSchema": "id BIGINT",
        "badValueColumn": "",
        "badReasonColumn": "_bad_reason",
    }
    assert read_options(OTHERS, schema=None, starting="earliest")["subscribePattern"] == "^x"


def test_an_option_that_is_a_setting_is_refused() -> None:
    given = replace(ORDERS, options={"Subscribe": "c"})
    with pytest.raises(PipelineSettingsError, match="source orders: option Subscribe is set by topics; use that"):
        read_options(given, schema=None, starting="earliest")


def test_entries_of_the_log_belong_to_the_source_of_their_topics() -> None:
    found = by_source((ORDERS, OTHERS), ({"x1": {0: 1}}, None, {"a": {0: 2}, "b": {0: 3}}))
    assert found == {"others": {"x1": {0: 1}}, "orders": {"a": {0: 2}, "b": {0: 3}}}
    with pytest.raises(PipelineError, match="topics c in the checkpoint are selected by no source"):
        by_source((ORDERS, OTHERS), ({"c": {0: 1}},))
    with pytest.raises(PipelineError, match="selected by orders and others"):
        by_source((ORDERS, replace(OTHERS, topic_pattern="a")), ({"a": {0: 1}},))


def test_two_sources_of_one_topic_are_refused() -> None:
    check_one_source_per_topic((ORDERS, OTHERS))
    with pytest.raises(PipelineSettingsError, match="sources orders and again both read topic b"):
        check_one_source_per_topic((ORDERS, replace(ORDERS, name="again", topics=("b",))))


def test_a_batch_covers_what_its_offsets_say() -> None:
    batch = BatchRange({"t": {0: 5, 1: 7}}, {"t": {0: 5, 1: 9, 2: 3, 3: 0}})
    assert batch.ranges() == {"t": {"1": (7, 9), "2": (-2, 3)}}
    assert later_of({"t": {0: 5}}, {"t": {0: 3, 1: 4}, "u": {0: 1}}) == {"t": {0: 5, 1: 4}, "u": {0: 1}}
