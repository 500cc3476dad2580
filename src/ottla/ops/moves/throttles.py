"""Throttles of moves: which settings kafka-reassign-partitions gives brokers and topics, and takes away again.

Source: `ReassignPartitionsCommand` of Apache Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.client.admin.model import ConfigOperation, ConfigResource, PartitionReassignment
from ottla.client.model import TopicPartition

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LOG_DIR_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"

Changes = dict[ConfigResource, list[ConfigOperation]]


class Flow(NamedTuple):
    """From which brokers a partition's records are copied to which."""

    sources: frozenset[int]
    destinations: frozenset[int]


def flows(
    under_way: Mapping[TopicPartition, PartitionReassignment],
    wanted: Mapping[TopicPartition, Sequence[int]],
    now: Mapping[TopicPartition, Sequence[int]],
) -> dict[TopicPartition, Flow]:
    """The flow of each partition when the wanted moves run beside those under way. `now` are the present replicas."""
    found = {}
    for partition, move in under_way.items():
        adding = frozenset(move.adding_replicas)
        found[partition] = Flow(frozenset(move.replicas) - adding, adding)
    for partition, replicas in wanted.items():
        known = under_way.get(partition)
        sources = found[partition].sources if known is not None else frozenset(now.get(partition, ()))
        found[partition] = Flow(sources, frozenset(replicas) - sources)
    return found


def interbroker(copied: Mapping[TopicPartition, Flow], bytes_per_s: int, live: Collection[int]) -> Changes:
    """The settings that throttle these copies: the replicas by topic, the rate by broker.

    Only `live` brokers get a rate: one that is not there, and whose replicas are moved away, cannot be asked for it,
    and copies nothing.
    """
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    brokers: set[int] = set()
    for (topic, index), flow in copied.items():
        leaders.setdefault(topic, []).extend(f"{index}:{broker}" for broker in flow.sources)
        followers.setdefault(topic, []).extend(f"{index}:{broker}" for broker in flow.destinations)
        brokers |= flow.sources | flow.destinations
    changes: Changes = {}
    for topic in leaders:
        changes[ConfigResource.topic(topic)] = [
            ConfigOperation("set", name, ",".join(sorted(replicas)))
            for name, replicas in ((LEADER_REPLICAS, leaders[topic]), (FOLLOWER_REPLICAS, followers[topic]))
            if replicas
        ]
    for broker in sorted(brokers.intersection(live)):
        changes[ConfigResource.broker(broker)] = [
            ConfigOperation("set", name, str(bytes_per_s)) for name in (LEADER_RATE, FOLLOWER_RATE)
        ]
    return changes


def log_dirs(brokers: Iterable[int], bytes_per_s: int) -> Changes:
    """The settings that throttle moves between log directories."""
    operation = ConfigOperation("set", LOG_DIR_RATE, str(bytes_per_s))
    return {ConfigResource.broker(broker): [operation] for broker in sorted(set(brokers))}


def cleared(brokers: Iterable[int], topics: Iterable[str]) -> Changes:
    """The changes that remove all throttles from brokers and topics."""
    rates = [ConfigOperation("delete", name) for name in (LEADER_RATE, FOLLOWER_RATE, LOG_DIR_RATE)]
    replicas = [ConfigOperation("delete", name) for name in (LEADER_REPLICAS, FOLLOWER_REPLICAS)]
    changes: Changes = {ConfigResource.broker(broker): rates for broker in sorted(set(brokers))}
    changes.update({ConfigResource.topic(topic): replicas for topic in sorted(set(topics))})
    return changes
