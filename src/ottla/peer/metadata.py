"""Metadata cache of a client: brokers, topics, leaders. Pure; `ottla.peer.cluster` keeps it fresh."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ottla.peer.model import Node, PartitionMetadata, TopicMetadata
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.metadata import MetadataResponse, MetadataResponseTopic

if TYPE_CHECKING:
    from ottla.wire.messages import fetch, produce

NO_NODE = -1
"""In the place of a leader or controller: there is none (`Node.noNode` in Java's client)."""
NO_EPOCH = -1


class Metadata:
    """Brokers of the last response; topics of the last response that had them."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = NO_NODE
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.errors: dict[str, int] = {}
        """Error code by topic, for requested topics without metadata."""
        self.version = 0
        """Grows with every change of a topic: a leader, its epoch, a partition."""
        self._fresh: set[str] = set()

    def update(self, answer: MetadataResponse, *, complete: bool) -> None:
        """Apply a response; `complete` if it covers all topics, so that others are removed."""
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
        """Mark the metadata of these topics (None: all) as stale; they are requested again before use."""
        if topics is None:
            self._fresh.clear()
        else:
            self._fresh.difference_update(topics)

    def is_fresh(self, topic: str) -> bool:
        """Whether there are metadata of the topic that are not stale."""
        return topic in self._fresh

    def are_fresh(self, topics: frozenset[str]) -> bool:
        """Whether `is_fresh` holds for all of them."""
        return self._fresh.issuperset(topics)

    def leader(self, topic: str, partition: int) -> int | None:
        """Node id of the leader, -1 if there is none; None for an unknown partition."""
        known = self.topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            return None
        return known.partitions[partition].leader

    def is_online(self, topic: str, partition: int, node_id: int) -> bool:
        """Whether the broker is known, and its replica of the partition not offline."""
        known = self.topics.get(topic)
        if node_id not in self.nodes or known is None or not 0 <= partition < len(known.partitions):
            return False
        return node_id not in known.partitions[partition].offline_replicas

    def update_nodes(self, endpoints: Sequence[fetch.NodeEndpoint | produce.NodeEndpoint]) -> None:
        """Apply the addresses of leaders that a response names (KIP-951)."""
        for each in endpoints:
            self.nodes[each.node_id] = Node(each.node_id, each.host, each.port, each.rack)

    def update_leader(self, topic: str, partition: int, leader: int, leader_epoch: int) -> None:
        """Apply a new leader that a response names (KIP-951), if its epoch is newer and its address is known."""
        known = self.topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions) or leader not in self.nodes:
            return
        before = known.partitions[partition]
        if leader_epoch > before.leader_epoch:
            partitions = list(known.partitions)
            partitions[partition] = replace(before, leader=leader, leader_epoch=leader_epoch)
            self.topics[topic] = replace(known, partitions=tuple(partitions))
            self.version += 1


def _newest(known: TopicMetadata | None, received: TopicMetadata) -> TopicMetadata:
    """The new metadata, with the known ones of partitions whose leader epoch is newer there.

    The epochs of a topic that was deleted and created again start at 0; its id shows that.
    """
    if known is None or known.topic_id != received.topic_id:
        return received
    epochs = {each.partition: each for each in known.partitions}
    partitions = tuple(
        epochs[each.partition]
        if each.partition in epochs and NO_EPOCH < each.leader_epoch < epochs[each.partition].leader_epoch
        else each
        for each in received.partitions
    )
    return replace(received, partitions=partitions)


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
