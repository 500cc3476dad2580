"""Entries that no honest controller sends; what is obeyed is in tests/scenarios/control_requests."""

from __future__ import annotations

from uuid import UUID

from ottla.cluster.control_batches import PartitionEntry
from ottla.cluster.control_requests import STEP_ENTRIES, UNHEARD_PARTITION, updating_topic
from ottla.cluster.image import PartitionImage
from ottla.cluster.topics import MOST_PARTITIONS
from support.steps import result_of

LED = PartitionImage(1, 0, (1,), (1,))


def entry(partition: int, leader: int = 1) -> PartitionEntry:
    return PartitionEntry("t", UUID(int=1), partition, LED._replace(leader=leader), 0)


def test_partitions_that_cannot_be_are_ignored() -> None:
    assert result_of(updating_topic(None, UUID(int=1), [entry(-1), entry(MOST_PARTITIONS)], {})) is None
    topic = result_of(updating_topic(None, UUID(int=1), [entry(2), entry(2**31 - 1)], {"retention.ms": "5"}))
    assert topic is not None
    assert topic.partitions == (UNHEARD_PARTITION, UNHEARD_PARTITION, LED)
    assert topic.configs == {"retention.ms": "5"}


def test_settings_of_a_known_topic_stay() -> None:
    known = result_of(updating_topic(None, UUID(int=1), [entry(0)], {"retention.ms": "5"}))
    again = result_of(updating_topic(known, UUID(int=1), [entry(1)], {}))
    assert again is not None
    assert (again.configs, len(again.partitions)) == ({"retention.ms": "5"}, 2)


def test_deletion_of_an_unknown_topic_changes_nothing() -> None:
    assert result_of(updating_topic(None, UUID(int=1), [entry(0, leader=-2)], {})) is None


def test_internal_topics_are_known_by_their_names() -> None:
    topic = result_of(updating_topic(None, UUID(int=1), [entry(0)._replace(topic="__consumer_offsets")], {}))
    assert topic is not None
    assert topic.is_internal


def test_the_entries_of_a_large_topic_are_looked_at_in_steps() -> None:
    steps = updating_topic(None, UUID(int=1), map(entry, range(3 * STEP_ENTRIES)), {})
    assert [next(steps) for _ in range(3)] == [None] * 3
    topic = result_of(steps)
    assert topic is not None
    assert topic.partitions == (LED,) * (3 * STEP_ENTRIES)
