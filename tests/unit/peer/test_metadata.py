from __future__ import annotations

import uuid

import pytest

from ottla.peer.metadata import Metadata
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.messages.produce import NodeEndpoint


def topic(name, *leaders, error=0):
    partitions = [
        MetadataResponsePartition(
            partition_index=at, leader_id=leader, leader_epoch=3, replica_nodes=[1], isr_nodes=[1]
        )
        for at, leader in reversed(list(enumerate(leaders)))
    ]
    return MetadataResponseTopic(error_code=error, name=name, partitions=partitions)


def answer(*topics):
    brokers = [MetadataResponseBroker(node_id=1, host="h", port=9092)]
    return MetadataResponse(brokers=brokers, cluster_id="c", controller_id=1, topics=list(topics))


def test_an_answer_is_taken_in():
    metadata = Metadata()
    metadata.update(answer(topic("a", 1, -1)), complete=False)
    assert (metadata.cluster_id, metadata.controller_id, str(metadata.nodes[1])) == ("c", 1, "broker 1 at h:9092")
    assert [each.partition for each in metadata.topics["a"].partitions] == [0, 1]
    assert [metadata.leader("a", at) for at in (0, 1, 2, -1)] == [1, -1, None, None]
    assert metadata.leader("b", 0) is None


def test_news_of_topics_are_counted():
    metadata = Metadata()
    versions = [metadata.version]
    for told in (topic("a", 1), topic("a", 1), topic("a", 2), topic("b", 1)):
        metadata.update(answer(told), complete=False)
        versions.append(metadata.version)
    metadata.update_leader("a", 0, 1, 2)
    versions.append(metadata.version)
    metadata.update_leader("a", 0, 1, 4)
    versions.append(metadata.version)
    assert versions == [0, 1, 1, 2, 3, 3, 4]


def test_a_leader_that_an_error_names_is_taken_over_if_it_is_newer_and_can_be_reached():
    """KIP-951."""
    metadata = Metadata()
    metadata.update(answer(topic("a", 1)), complete=False)
    metadata.update_leader("a", 0, 7, 4)
    assert metadata.leader("a", 0) == 1, "nobody knows where broker 7 is"
    metadata.update_nodes([NodeEndpoint(node_id=7, host="new", port=9099, rack=None)])
    metadata.update_leader("a", 0, 7, 3)
    assert metadata.leader("a", 0) == 1, "not newer"
    metadata.update_leader("a", 0, 7, 4)
    assert metadata.leader("a", 0) == 7
    assert str(metadata.nodes[7]) == "broker 7 at new:9099"
    metadata.update_leader("a", 0, -1, -1)
    metadata.update_leader("a", 3, 7, 9)
    assert metadata.leader("a", 0) == 7


def test_an_answer_about_some_topics_leaves_the_others():
    metadata = Metadata()
    metadata.update(answer(topic("a", 1), topic("b", 1)), complete=False)
    metadata.update(answer(topic("b", 1, 1)), complete=False)
    assert (len(metadata.topics["a"].partitions), len(metadata.topics["b"].partitions)) == (1, 2)
    metadata.update(answer(topic("b", 1)), complete=True)
    assert list(metadata.topics) == ["b"]
    assert not metadata.is_fresh("a")


def test_a_topic_that_is_gone():
    metadata = Metadata()
    metadata.update(answer(topic("a", 1)), complete=False)
    metadata.update(answer(topic("a", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)), complete=False)
    assert metadata.topics == {}
    assert metadata.errors == {"a": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    metadata.update(answer(topic("a", 1)), complete=False)
    assert metadata.errors == {}


def test_expiry():
    metadata = Metadata()
    metadata.update(answer(topic("a", 1), topic("b", 1)), complete=False)
    metadata.expire(["a", "unknown"])
    assert (metadata.is_fresh("a"), metadata.is_fresh("b")) == (False, True)
    assert "a" in metadata.topics, "known, if not well"
    metadata.expire()
    assert not metadata.is_fresh("b")


@pytest.mark.parametrize(("topic_id", "known"), [(1, 3), (2, 2)])
def test_older_news_of_a_leader_count_only_for_a_topic_that_was_made_anew(topic_id, known):
    metadata = Metadata()
    for told_id, epoch in ((1, 3), (topic_id, 2)):
        told = topic("a", 1)
        told.topic_id, told.partitions[0].leader_epoch = uuid.UUID(int=told_id), epoch
        metadata.update(answer(told), complete=False)
    assert metadata.topics["a"].partitions[0].leader_epoch == known
