"""Which topics are shown, and how: as tables, and as JSON objects, one a line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ottla.cli.terminal import (
    PARTITION,
    Cell,
    Column,
    Style,
    Terminal,
    attributes,
    count,
    data_size,
    numbers,
    printable,
)
from ottla.cluster.ids import format_uuid
from ottla.ops.cluster_status import PartitionStatus, ReplicaStatus, TopicStatus

NAME: Column[TopicStatus] = Column(
    "TOPIC", lambda each: Cell(each.name, Style.FAINT if each.is_internal else Style.NAME), may_shrink=True
)
COUNTS: tuple[Column[TopicStatus], ...] = (
    numbers("PARTITIONS", lambda each: len(each.partitions)),
    numbers("REPLICAS", lambda each: each.replication_factor),
)
RECORDS: tuple[Column[TopicStatus], ...] = (
    numbers("RECORDS", lambda each: f"{each.records:,}"),
    numbers("SIZE", lambda each: data_size(each.size_bytes)),
)
HEALTH: Column[TopicStatus] = Column("HEALTH", lambda each: partitions_health(each.partitions))
DELETION: tuple[Column[TopicStatus], ...] = (
    Column("TOPIC", lambda each: Cell(each.name, Style.NAME), may_shrink=True),
    *COUNTS,
    *RECORDS,
)
REPLICAS: tuple[Column[PartitionStatus], ...] = (
    numbers("LEADER", lambda each: leader_cell(each.leader)),
    Column("REPLICAS", lambda each: _ids(replica.broker for replica in each.replicas)),
    Column("ISR", lambda each: _ids(each.isr)),
)
NOTES: tuple[Column[PartitionStatus], ...] = (
    Column("LAG", lambda each: _lag_text(each.replicas, each.leader), may_shrink=True),
    Column("NOTE", lambda each: _partition_note(each)),
)
_PARTITIONS: tuple[Column[PartitionStatus], ...] = (
    PARTITION,
    *REPLICAS,
    numbers("START", lambda each: each.log_start_offset),
    numbers("END", lambda each: each.high_watermark),
    numbers("SIZE", lambda each: None if each.size_bytes is None else data_size(each.size_bytes)),
    *NOTES,
)


@dataclass(frozen=True, slots=True)
class Filters:
    """Which partitions and topics `ottla topic describe` shows, by the options that Kafka's own tool has.

    The options as given; a partition is shown if one of those given fits (`TopicCommand.DescribeOptions`).
    """

    under_replicated: bool = False
    under_min_isr: bool = False
    at_min_isr: bool = False
    offline: bool = False
    with_overrides: bool = False
    exclude_internal: bool = False

    @property
    def only_partitions(self) -> bool:
        """Whether partitions are chosen, so that topics without such a partition are left out."""
        return self.under_replicated or self.under_min_isr or self.at_min_isr or self.offline

    def apply(self, topics: Sequence[TopicStatus]) -> list[TopicStatus]:
        """The topics, with those of their partitions to show."""
        shown = [
            each
            for each in topics
            if not (self.exclude_internal and each.is_internal) and (each.overrides or not self.with_overrides)
        ]
        if not self.only_partitions:
            return shown
        chosen = (replace(each, partitions=tuple(filter(self._fits, each.partitions))) for each in shown)
        return [each for each in chosen if each.partitions]

    def _fits(self, partition: PartitionStatus) -> bool:
        checks: Sequence[tuple[bool, Callable[[], bool]]] = (
            (self.under_replicated, lambda: partition.is_under_replicated),
            (self.under_min_isr, lambda: partition.is_under_min_isr),
            (self.at_min_isr, lambda: partition.is_at_min_isr),
            (self.offline, lambda: partition.is_offline),
        )
        return any(wanted and check() for wanted, check in checks)


#: Faults of a partition, the worst first; one partition has one.
_FAULTS: dict[str, Callable[[PartitionStatus], bool]] = {
    "offline": lambda each: each.is_offline,
    "under min ISR": lambda each: each.is_under_min_isr,
    "refusing records": lambda each: bool(each.refusal),
    "under-replicated": lambda each: each.is_under_replicated,
}


def partitions_health(partitions: Iterable[PartitionStatus]) -> Cell:
    """Count the faults of partitions, in Kafka's words, the worst first; "ok" where there are none."""
    counts = Counter(next((fault for fault, has in _FAULTS.items() if has(each)), "") for each in partitions)
    found = [fault for fault in _FAULTS if counts[fault]]
    if not found:
        return Cell("ok", Style.GOOD)
    style = Style.BUSY if found == ["under-replicated"] else Style.BAD
    return Cell(", ".join(f"{counts[fault]:,} {fault}" for fault in found), style)


def show_list(terminal: Terminal, topics: Sequence[TopicStatus]) -> None:
    """One line for each topic."""
    if topics:
        terminal.table((NAME, *COUNTS, HEALTH), topics, indent="")
    else:
        terminal.line("no topics")


def list_row(topic: TopicStatus) -> dict[str, Any]:
    """A topic as an object, without its partitions."""
    return {
        **_topic_row(topic),
        "offline_partitions": sum(each.is_offline for each in topic.partitions),
        "under_min_isr_partitions": sum(each.is_under_min_isr for each in topic.partitions),
        "refusing_partitions": sum(each.refusal is not None for each in topic.partitions),
        "under_replicated_partitions": sum(each.is_under_replicated for each in topic.partitions),
    }


def show_description(terminal: Terminal, topic: TopicStatus, *, with_partitions: bool = True) -> None:
    """A topic, its settings and its partitions."""
    facts = [count(len(topic.partitions), "partition"), f"replication factor {topic.replication_factor}"]
    if any(each.high_watermark is not None for each in topic.partitions):
        facts += [count(topic.records, "record"), f"{data_size(topic.size_bytes)} with all replicas"]
    facts += [f"id {format_uuid(topic.topic_id)}"] if topic.topic_id else []
    facts += ["internal"] if topic.is_internal else []
    terminal.line(f"{terminal.paint(printable(topic.name), Style.NAME)}  {' · '.join(facts)}")
    for name, value in topic.overrides.items():
        terminal.line(f"  {printable(f'{name}={value}')}")
    if with_partitions:
        terminal.table(_PARTITIONS, topic.partitions)


def description_row(topic: TopicStatus) -> dict[str, Any]:
    """A topic with its settings and partitions as an object."""
    return {
        **_topic_row(topic),
        "topic_id": format_uuid(topic.topic_id) if topic.topic_id else None,
        "configs": topic.overrides,
        "partitions": [partition_row(each) for each in topic.partitions],
    }


def partition_row(each: PartitionStatus) -> dict[str, Any]:
    """A partition as an object; what a broker did not answer is null."""
    return {
        "partition": each.partition.partition,
        "leader": None if each.leader < 0 else each.leader,
        "leader_epoch": each.leader_epoch,
        "replicas": [replica.broker for replica in each.replicas],
        "isr": list(each.isr),
        "adding_replicas": list(each.adding),
        "removing_replicas": list(each.removing),
        **attributes(each, "min_insync_replicas", "log_start_offset", "high_watermark"),
        "offline": each.is_offline,
        "under_min_isr": each.is_under_min_isr,
        "at_min_isr": each.is_at_min_isr,
        "under_replicated": each.is_under_replicated,
        "refusal": each.refusal,
        "replica_states": [_replica_row(replica) for replica in each.replicas],
    }


def _lag_text(replicas: Sequence[ReplicaStatus], leader: int) -> str:
    """Lag of the followers: "-" where all have everything, else of those that do not: `2: 1,500, 3: ?`."""
    behind = [
        f"{each.broker}: {'?' if each.lag is None else f'{each.lag:,}'}"
        for each in replicas
        if each.broker != leader and each.lag != 0
    ]
    return ", ".join(behind) or "-"


def _partition_note(each: PartitionStatus) -> Cell:
    """Note what is unusual about a partition."""
    if each.is_offline:
        return Cell("offline", Style.BAD)
    if each.is_under_min_isr:
        return Cell(f"below min.insync.replicas={each.min_insync_replicas}", Style.BAD)
    if each.refusal is not None:
        return Cell(f"refuses records: {printable(each.refusal)}", Style.BAD)
    if each.is_under_replicated:
        out = [str(replica.broker) for replica in each.replicas if not replica.is_in_sync]
        return Cell(f"not in sync: {', '.join(out)}", Style.BUSY)
    if each.adding or each.removing:
        moves = [f"adding {_ids(each.adding)}"] if each.adding else []
        moves += [f"removing {_ids(each.removing)}"] if each.removing else []
        return Cell(", ".join(moves), Style.BUSY)
    if each.replicas and each.leader != each.replicas[0].broker:
        return Cell(f"preferred leader {each.replicas[0].broker}", Style.FAINT)
    return Cell("")


def _topic_row(topic: TopicStatus) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "is_internal": topic.is_internal,
        "partition_count": len(topic.partitions),
        "replication_factor": topic.replication_factor,
    }


def _replica_row(each: ReplicaStatus) -> dict[str, Any]:
    return {
        "broker": each.broker,
        "in_sync": each.is_in_sync,
        "offline": each.is_offline,
        **attributes(each, "log_end_offset", "lag", "size_bytes"),
    }


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))


def leader_cell(leader: int) -> int | Cell:
    """The leader's id; "none" where there is none."""
    return Cell("none", Style.BAD) if leader < 0 else leader
