"""What a client knows of its cluster: brokers, topics, leaders. Pure; `ottla.peer.cluster` keeps it fresh."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ottla.peer.model import Node, PartitionMetadata, TopicMetadata
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.metadata import MetadataResponse, MetadataResponseTopic

NOBODY = -1
NO_EPOCH = -1


class Metadata:
    """The cluster as it was last told; topics are kept until they are told anew."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = NOBODY
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.errors: dict[str, int] = {}
        """Topics asked for that cannot be described, with the error's code."""
        self.version = 0
        """Grows when something else becomes known of a topic: a leader, its epoch, a partition."""
        self._fresh: set[str] = set()

    def update(self, answer: MetadataResponse, *, complete: bool) -> None:
        """Take in an answer; `complete` where it was about all topics, so that others are gone."""
        self.cluster_id = answer.cluster_id
        self.controller_id = answer.controller_id
        self.nodes = {each.node_id: Node(each.node_id, each.host, each.port, each.rack) for each in answer.brokers}
        before = self.topics
        if complete:
            self.topics, self.errors, self._fresh = {}, {}, set()
        for topic in answer.topics:
            name = topic.name or ""
            if topic.error_code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE) and topic.partitions:
                known = before.get(name)
                self.topics[name] = _newest(known, _topic_metadata(name, topic))
                self.version += self.topics[name] != known
                self.errors.pop(name, None)
                self._fresh.add(name)
            else:
                self.topics.pop(name, None)
                self.errors[name] = topic.error_code

    def expire(self, topics: Iterable[str] | None = None) -> None:
        """What is known of these topics (None: of all) may be out of date: ask again before using it."""
        if topics is None:
            self._fresh.clear()
        else:
            self._fresh.difference_update(topics)

    def is_fresh(self, topic: str) -> bool:
        """Whether the topic is known, and known well enough to be used."""
        return topic in self._fresh

    def leader(self, topic: str, partition: int) -> int | None:
        """The node id of the leader, -1 while there is none, None where the partition is not known."""
        known = self.topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            return None
        return known.partitions[partition].leader

    def update_leader(self, topic: str, partition: int, leader: int, leader_epoch: int) -> None:
        """A broker told who leads the partition now (KIP-951); older news than what is known are ignored."""
        known = self.topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            return
        before = known.partitions[partition]
        if leader_epoch > before.leader_epoch:
            partitions = list(known.partitions)
            partitions[partition] = replace(before, leader=leader, leader_epoch=leader_epoch)
            self.topics[topic] = replace(known, partitions=tuple(partitions))
            self.version += 1


def _newest(known: TopicMetadata | None, told: TopicMetadata) -> TopicMetadata:
    """What is told; of partitions of which that is older news, what is known.

    The epochs of a topic that was deleted and made anew begin anew; its id tells.
    """
    if known is None or known.topic_id != told.topic_id:
        return told
    epochs = {each.partition: each for each in known.partitions}
    partitions = tuple(
        epochs[each.partition]
        if each.partition in epochs and NO_EPOCH < each.leader_epoch < epochs[each.partition].leader_epoch
        else each
        for each in told.partitions
    )
    return replace(told, partitions=partitions)


def _topic_metadata(name: str, topic: MetadataResponseTopic) -> TopicMetadata:
    partitions = tuple(
        PartitionMetadata(
            each.partition_index,
            each.leader_id,
            each.leader_epoch,
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
            tuple(each.offline_replicas),
        )
        for each in sorted(topic.partitions, key=lambda each: each.partition_index)
    )
    return TopicMetadata(name, partitions, topic.is_internal, topic.topic_id if topic.topic_id.int else None)
