"""Looks at a cluster compared: records and bytes in a second, lag and its trend, from log end and committed offsets.

Nothing here asks a broker; `ottla.ops.cluster_look` does.
"""

from __future__ import annotations

from collections import ChainMap, Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from ottla.client.groups import GroupDescription
from ottla.client.model import Node, TopicPartition
from ottla.ops.cluster_status import ClusterStatus, TopicStatus
from ottla.ops.rebalances import RebalanceRecord

MS_A_SECOND = 1000


class BrokerPresence(StrEnum):
    """Whether a broker is there."""

    UP = "up"
    SILENT = "no answer"
    ABSENT = "not there"


class DatedOffset(NamedTuple):
    """An offset, and when it was read, on the monotonic clock."""

    offset: int
    at_ms: float


@dataclass(frozen=True, slots=True)
class GroupLook:
    """A group and its committed offsets, None where its coordinator did not answer; `at_ms` is monotonic."""

    group: GroupDescription
    committed: Mapping[TopicPartition, int] | None
    at_ms: float


@dataclass(frozen=True, slots=True)
class ClusterLook:
    """The answers of a cluster at one moment, `at_ms` of the wall clock.

    `nodes` are all brokers that were seen up to now. `silent` are registered brokers that cannot be reached, `problems`
    all that went wrong, by broker. `ends` are high watermarks. `group_count` counts the groups that were left out, too.
    """

    at_ms: int
    status: ClusterStatus
    nodes: Mapping[int, Node]
    ends: dict[TopicPartition, DatedOffset] = field(default_factory=dict)
    groups: Mapping[str, GroupLook] = field(default_factory=dict)
    group_count: int = 0
    silent: frozenset[int] = frozenset()
    problems: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BrokerRates:
    """A broker; what comes in a second is written to the partitions that it leads. None stands for unknown values."""

    node: Node
    state: BrokerPresence
    is_controller: bool
    leads: int
    replicas: int
    in_sync: int
    records_per_s: float | None
    bytes_per_s: float | None
    size_bytes: int | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class TopicRates:
    """A topic; `size_bytes` are of all its replicas. None stands for unknown values."""

    topic: str
    is_internal: bool
    partitions: int
    replication_factor: int
    under_replicated: int
    offline: int
    records_per_s: float | None
    bytes_per_s: float | None
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class GroupRates:
    """A group; `lag_per_s` is the growth of its lag, negative while it catches up. None stands for unknown values."""

    group: GroupDescription
    lag: int | None
    consumed_per_s: float | None
    lag_per_s: float | None

    @property
    def catch_up_ms(self) -> float | None:
        """How long until it has consumed all, if its lag continues to shrink as now; None where it does not shrink."""
        if self.lag == 0:
            return 0.0
        if self.lag is None or self.lag_per_s is None or self.lag_per_s >= 0:
            return None
        return self.lag / -self.lag_per_s * MS_A_SECOND


class StateChange(NamedTuple):
    """Another state of a group than at the look before, where it was `before`; None for a group that was not there."""

    at_ms: int
    group: GroupDescription
    before: str | None


@dataclass(frozen=True, slots=True)
class ClusterRates:
    """A cluster at its last look, with the rates since earlier ones.

    `rebalances` ended since the look before; None where the cluster keeps no evidence of them. `group_count` counts the
    groups that were left out, too.
    """

    at_ms: int
    cluster_id: str | None
    controller: int | None
    brokers: Sequence[BrokerRates]
    topics: Sequence[TopicRates]
    groups: Sequence[GroupRates]
    group_count: int
    state_changes: Sequence[StateChange]
    rebalances: Sequence[RebalanceRecord] | None


class _Rates(NamedTuple):
    """Records and bytes written in a second, by partition."""

    records: Mapping[TopicPartition, float]
    bytes: Mapping[TopicPartition, float]


def compare(looks: Sequence[ClusterLook], rebalances: Sequence[RebalanceRecord] | None = None) -> ClusterRates:
    """The last of the looks, with the rates since the first of them that has the partition, or the group."""
    now = looks[-1]
    rates = _Rates(_records_per_s(looks), _bytes_per_s(looks))
    topics = {each.name for each in now.status.topics}
    return ClusterRates(
        at_ms=now.at_ms,
        cluster_id=now.status.cluster_id,
        controller=now.status.controller,
        brokers=_brokers(now, rates),
        topics=[_topic(each, rates) for each in now.status.topics],
        groups=[_group(looks, name, topics) for name in sorted(now.groups)],
        group_count=now.group_count,
        state_changes=list(_state_changes(looks[-2], now)) if len(looks) > 1 else [],
        rebalances=rebalances,
    )


def _per_s(change: int, duration_ms: float) -> float | None:
    return change * MS_A_SECOND / duration_ms if duration_ms > 0 else None


def _total(values: Iterable[float | None]) -> float | None:
    """The sum of those that are known, None where none is."""
    known = [each for each in values if each is not None]
    return sum(known) if known else None


def _records_per_s(looks: Sequence[ClusterLook]) -> dict[TopicPartition, float]:
    """By partition. An end that went back is that of another log: its topic was created again, or records were lost."""
    first = ChainMap(*(each.ends for each in looks))
    found: dict[TopicPartition, float] = {}
    for partition, (end, at_ms) in looks[-1].ends.items():
        before = first[partition]
        rate = _per_s(end - before.offset, at_ms - before.at_ms)
        if rate is not None and rate >= 0:
            found[partition] = rate
    return found


def _bytes_per_s(looks: Sequence[ClusterLook]) -> dict[TopicPartition, float]:
    """By partition: growth of the leader's log, without the times in which retention or compaction made it smaller."""
    grown, duration_ms = Counter[TopicPartition](), Counter[TopicPartition]()
    for before, after in pairwise(looks):
        formerly = {(each.partition, each.leader): each.size_bytes for each in before.status.partitions}
        for each in after.status.partitions:
            former, size = formerly.get((each.partition, each.leader)), each.size_bytes
            if former is not None and size is not None and size >= former:
                grown[each.partition] += size - former
                duration_ms[each.partition] += after.at_ms - before.at_ms
    rates = ((partition, _per_s(grown[partition], duration)) for partition, duration in duration_ms.items())
    return {partition: rate for partition, rate in rates if rate is not None}


def _brokers(look: ClusterLook, rates: _Rates) -> list[BrokerRates]:
    """All brokers that were seen, and those that have replicas."""
    status = look.status
    leads, replicas, in_sync = Counter[int](), Counter[int](), Counter[int]()
    led: dict[int, list[TopicPartition]] = defaultdict(list)
    for each in status.partitions:
        leads[each.leader] += 1
        replicas.update(replica.broker for replica in each.replicas)
        in_sync.update(each.isr)
        led[each.leader].append(each.partition)
    known = {each.node.node_id: each for each in status.brokers}

    def row(broker: int) -> BrokerRates:
        registered = known.get(broker)
        state = BrokerPresence.ABSENT if registered is None else BrokerPresence.UP
        return BrokerRates(
            node=look.nodes.get(broker, Node(broker, "", 0)),
            state=BrokerPresence.SILENT if broker in look.silent else state,
            is_controller=broker == status.controller,
            leads=leads[broker],
            replicas=replicas[broker],
            in_sync=in_sync[broker],
            records_per_s=_total(map(rates.records.get, led[broker])),
            bytes_per_s=_total(map(rates.bytes.get, led[broker])),
            size_bytes=registered.size_bytes if registered is not None and registered.log_dirs else None,
            problem=look.problems.get(broker),
        )

    return [row(each) for each in sorted({*look.nodes, *status.absent})]


def _topic(topic: TopicStatus, rates: _Rates) -> TopicRates:
    sizes = [each.size_bytes for partition in topic.partitions for each in partition.replicas]
    return TopicRates(
        topic=topic.name,
        is_internal=topic.is_internal,
        partitions=len(topic.partitions),
        replication_factor=topic.replication_factor,
        under_replicated=sum(each.is_under_replicated for each in topic.partitions),
        offline=sum(each.is_offline for each in topic.partitions),
        records_per_s=_total(rates.records.get(each.partition) for each in topic.partitions),
        bytes_per_s=_total(rates.bytes.get(each.partition) for each in topic.partitions),
        size_bytes=topic.size_bytes if any(each is not None for each in sizes) else None,
    )


def _lags(look: ClusterLook, committed: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    return {each: max(0, look.ends[each].offset - offset) for each, offset in committed.items() if each in look.ends}


def _group(looks: Sequence[ClusterLook], name: str, topics: Set[str]) -> GroupRates:
    """Only partitions that are known at both looks count for the trend; none whose committed offset went back."""
    now = looks[-1].groups[name]
    if now.committed is None:
        return GroupRates(now.group, None, None, None)
    lags = _lags(looks[-1], now.committed)
    # A sum without the partitions of a leader that does not answer would hide their lag.
    is_whole = all(each in lags for each in now.committed if each.topic in topics)
    lag = sum(lags.values()) if lags and is_whole else None
    first = next(each for each in looks if name in each.groups)
    before = first.groups[name]
    passed = {} if before.committed is None else before.committed
    moved = [offset - passed[each] for each, offset in now.committed.items() if each in passed]
    former = _lags(first, passed)
    grown = [each - former[partition] for partition, each in lags.items() if partition in former]
    duration_ms = now.at_ms - before.at_ms
    return GroupRates(
        group=now.group,
        lag=lag,
        consumed_per_s=_per_s(sum(each for each in moved if each > 0), duration_ms) if moved else None,
        lag_per_s=_per_s(sum(grown), duration_ms) if grown else None,
    )


def _state_changes(before: ClusterLook, now: ClusterLook) -> Iterator[StateChange]:
    """Groups that are not there any more are left out: their coordinator may have moved."""
    for name, each in sorted(now.groups.items()):
        former = before.groups.get(name)
        if former is None or former.group.state != each.group.state:
            yield StateChange(now.at_ms, each.group, None if former is None else former.group.state)
