"""Rules for topics: names, collisions, counts, assignments, settings. Errors are Apache Kafka's.

Sources: `Topic`, `AdminZkClient` and `ZkAdminManager` of Apache Kafka 3.9. As there, a manual assignment of a new topic
may name brokers that are not registered: such a partition gets a leader when one of its replicas is alive.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.cluster.image import ClusterImage, TopicImage
from ottla.cluster.placement import Assignment, BrokerRack, assign_replicas
from ottla.cluster.refusal import TopicRefusal
from ottla.config.broker import BrokerConfig, ConfigRefusal
from ottla.config.topic import LogConfig
from ottla.wire.errors import ErrorCode

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
REBALANCE_EVIDENCE_TOPIC = "__ottla_rebalances"
INTERNAL_TOPICS = frozenset(
    (GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, "__share_group_state", REBALANCE_EVIDENCE_TOPIC)
)
CLUSTER_METADATA_TOPIC = "__cluster_metadata"

BROKER_DEFAULT = -1
"""As a count of partitions or replicas: use the broker's default (KIP-464)."""
LONGEST_NAME = 249
MOST_PARTITIONS = 100_000
"""Most partitions of one topic: a larger number is probably a mistake, and costs memory."""
LARGEST_ASSIGNMENT = 1_040_000
"""Most bytes that the replicas of a topic may take in its znode: a request to ZooKeeper has less than a mebibyte."""

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+\Z")


class TopicSpec(NamedTuple):
    """A topic as requested. `assignments`, if not empty, are the replicas of each partition."""

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignments: Mapping[int, Sequence[int]] = {}
    configs: Mapping[str, str | None] = {}


class TopicPlan(NamedTuple):
    """A valid new topic: its replica assignment and its log configuration."""

    name: str
    assignment: Assignment
    configs: dict[str, str]
    log_config: LogConfig


class Chance(NamedTuple):
    """The random numbers for a placement, both below the number of brokers."""

    start: int
    shift: int


def is_internal_topic(name: str) -> bool:
    """Whether the topic is internal to the brokers."""
    return name in INTERNAL_TOPICS


def topic_name_problem(name: str) -> str | None:
    """The problem with a topic's name, as Kafka words it after "Topic name is invalid: "; None if it is valid."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > LONGEST_NAME:
        return f"the length of '{name}' is longer than the max allowed length {LONGEST_NAME}"
    if _LEGAL_NAME.match(name) is None:
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def plan_topic(spec: TopicSpec, image: ClusterImage, config: BrokerConfig, chance: Chance) -> TopicPlan | TopicRefusal:
    """Validate a new topic and place its replicas; the checks are in Kafka's order."""
    if spec.name == CLUSTER_METADATA_TOPIC:
        return TopicRefusal(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {spec.name} is prohibited.")
    if spec.name in image.topics:
        return already_exists(spec.name)
    null_configs = [name for name, value in spec.configs.items() if value is None]
    if null_configs:
        return TopicRefusal(
            ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(null_configs)}"
        )
    assignment = _assignment(spec, image, config, chance)
    if isinstance(assignment, TopicRefusal):
        return assignment
    refusal = _check_name(spec.name, image) or _check_assignment(assignment) or _check_size(assignment.values())
    if refusal is not None:
        return refusal
    configs = {name: value for name, value in spec.configs.items() if value is not None}
    log_config = LogConfig.of(config, configs)
    if isinstance(log_config, ConfigRefusal):
        return TopicRefusal(ErrorCode.INVALID_CONFIG, log_config.problems[0])
    return TopicPlan(spec.name, assignment, configs, log_config)


def already_exists(name: str) -> TopicRefusal:
    """The refusal of a topic that exists."""
    return TopicRefusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def _assignment(
    spec: TopicSpec, image: ClusterImage, config: BrokerConfig, chance: Chance
) -> Assignment | TopicRefusal:
    if spec.assignments:
        if spec.partitions != BROKER_DEFAULT or spec.replication_factor != BROKER_DEFAULT:
            return TopicRefusal(
                ErrorCode.INVALID_REQUEST,
                "Both numPartitions or replicationFactor and replicasAssignments were set. "
                "Both cannot be used at the same time.",
            )
        return {partition: tuple(replicas) for partition, replicas in spec.assignments.items()}
    partitions = config.get_int("num.partitions") if spec.partitions == BROKER_DEFAULT else spec.partitions
    factor = spec.replication_factor
    if factor == BROKER_DEFAULT:
        factor = config.get_int("default.replication.factor")
    if partitions > MOST_PARTITIONS:
        return _too_many(partitions)
    return assign_replicas(_racks(image), partitions, factor, start=chance.start, shift=chance.shift)


def _too_many(partitions: int) -> TopicRefusal:
    return TopicRefusal(
        ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions are more than the {MOST_PARTITIONS} a topic may have."
    )


def _racks(image: ClusterImage) -> list[BrokerRack]:
    return [BrokerRack(broker.id, broker.rack) for broker in sorted(image.brokers.values())]


def _check_name(name: str, image: ClusterImage) -> TopicRefusal | None:
    problem = topic_name_problem(name)
    if problem is not None:
        return TopicRefusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
    collisions = [other for other in image.topics_of_metric_name(name) if other != name]
    if collisions:
        return TopicRefusal(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topics: {', '.join(collisions)}",
        )
    return None


def _check_assignment(assignment: Assignment) -> TopicRefusal | None:
    distinct = set(assignment.values())  # partitions share replicas: there are few of them
    if len({len(replicas) for replicas in distinct}) != 1:
        return _bad_assignment("All partitions should have the same number of replicas")
    for replicas in distinct:
        if len(set(replicas)) != len(replicas):
            shown = ", ".join(f"{partition} -> {list(assignment[partition])}" for partition in sorted(assignment))
            return _bad_assignment(f"Duplicate replica assignment found: {shown}")
    if sorted(assignment) != list(range(len(assignment))):
        return _bad_assignment("partitions should be a consecutive 0-based integer sequence")
    for replicas in distinct:
        if not replicas:
            return _bad_assignment("The manual partition assignment includes an empty replica list.")
    return None


def assignment_bytes(replicas: Iterable[tuple[int, ...]]) -> int:
    """Bytes that the replicas of partitions 0 and up take in the topic's znode, each with its number."""
    counts = Counter(replicas)
    partitions = counts.total()
    digits: int = sum(partitions - 10**power for power in range(1, len(str(partitions))))
    lists = sum(count * len(",".join(map(str, brokers))) for brokers, count in counts.items())
    return digits + lists + partitions * len('"0":[],')


def _check_size(replicas: Collection[tuple[int, ...]]) -> TopicRefusal | None:
    """Refuse more replicas than a topic's znode can hold."""
    size = assignment_bytes(replicas)
    if size <= LARGEST_ASSIGNMENT:
        return None
    return TopicRefusal(
        ErrorCode.INVALID_PARTITIONS,
        f"The replicas of {len(replicas)} partitions would take {size} bytes in the topic's znode, and "
        f"{LARGEST_ASSIGNMENT} are the most that ZooKeeper takes. Make several topics of them.",
    )


def _bad_assignment(message: str) -> TopicRefusal:
    return TopicRefusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def plan_partitions(
    name: str, count: int, assignments: Sequence[Sequence[int]] | None, image: ClusterImage
) -> Assignment | TopicRefusal:
    """Replicas of the partitions added to reach `count`; `assignments` gives them explicitly."""
    topic = image.topics.get(name)
    if topic is None:
        return TopicRefusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    existing = len(topic.partitions)
    if count < existing:
        return TopicRefusal(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic currently has {existing} partitions, which is higher than the requested {count}.",
        )
    if count == existing:
        return TopicRefusal(ErrorCode.INVALID_PARTITIONS, f"Topic already has {existing} partitions.")
    if count > MOST_PARTITIONS:
        return _too_many(count)
    if assignments is not None:
        added = _assign_by_hand(topic, count, assignments, image)
    else:
        brokers = _racks(image)
        first_leader = topic.partitions[0].replicas[0]
        start = next((place for place, broker in enumerate(brokers) if broker.id >= first_leader), 0)
        added = assign_replicas(
            brokers, count - existing, topic.replication_factor, start=start, shift=start, first_partition=existing
        )
    if isinstance(added, TopicRefusal):
        return added
    return _check_size([*(known.replicas for known in topic.partitions), *added.values()]) or added


def _assign_by_hand(
    topic: TopicImage, count: int, assignments: Sequence[Sequence[int]], image: ClusterImage
) -> Assignment | TopicRefusal:
    existing = len(topic.partitions)
    named = [broker for replicas in assignments for broker in replicas]
    unknown = [broker for broker in dict.fromkeys(named) if broker not in image.brokers]
    if unknown:
        return _bad_assignment(f"Unknown broker(s) in replica assignment: {', '.join(map(str, unknown))}.")
    if len(assignments) != count - existing:
        return _bad_assignment(
            f"Increasing the number of partitions by {count - existing} but {len(assignments)} assignments provided."
        )
    assignment = {existing + index: tuple(replicas) for index, replicas in enumerate(assignments)}
    for partition, replicas in assignment.items():
        if not replicas:
            return _bad_assignment(f"Cannot have replication factor of 0 for partition id {partition}.")
        if len(set(replicas)) != len(replicas):
            return _bad_assignment(
                f"Duplicate brokers not allowed in replica assignment: {', '.join(map(str, replicas))} "
                f"for partition id {partition}."
            )
    factor = topic.replication_factor
    uneven = [partition for partition, replicas in assignment.items() if len(replicas) != factor]
    if uneven:
        return _bad_assignment(
            f"Inconsistent replication factor between partitions, partition 0 has {factor} while partitions "
            f"[{', '.join(map(str, uneven))}] have replication factors "
            f"[{', '.join(str(len(assignment[partition])) for partition in uneven)}], respectively."
        )
    return assignment


def internal_topic_spec(name: str, config: BrokerConfig, *, is_alone: bool) -> TopicSpec:
    """The specification of an internal topic.

    A broker that has its metadata for itself (`is_alone`) asks for one replica, unless a replication factor is
    configured, so that it works without configuration. Where there may be others the topic has to wait for them, as in
    Apache Kafka: it would keep its one replica when they come.
    """
    if name == GROUP_METADATA_TOPIC:
        return TopicSpec(
            name,
            config.get_int("offsets.topic.num.partitions"),
            _factor(config, "offsets.topic.replication.factor", is_alone),
            configs={
                "compression.type": "producer",
                "cleanup.policy": "compact",
                "segment.bytes": str(config.get_int("offsets.topic.segment.bytes")),
            },
        )
    if name == TRANSACTION_STATE_TOPIC:
        return TopicSpec(
            name,
            config.get_int("transaction.state.log.num.partitions"),
            _factor(config, "transaction.state.log.replication.factor", is_alone),
            configs={
                "unclean.leader.election.enable": "false",
                "compression.type": "uncompressed",
                "cleanup.policy": "compact",
                "min.insync.replicas": str(config.get_int("transaction.state.log.min.isr")),
                "segment.bytes": str(config.get_int("transaction.state.log.segment.bytes")),
            },
        )
    if name == REBALANCE_EVIDENCE_TOPIC:
        return TopicSpec(
            name, 1, _factor(config, "offsets.topic.replication.factor", is_alone), configs={"cleanup.policy": "delete"}
        )
    return TopicSpec(name)


def _factor(config: BrokerConfig, name: str, is_alone: bool) -> int:
    return 1 if is_alone and name not in config.overridden else config.get_int(name)
