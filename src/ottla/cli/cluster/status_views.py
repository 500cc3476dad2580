"""How the state of a cluster is shown: as tables, and as JSON objects, one a line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Sized
from typing import Any

from ottla.cli.log.output import instant
from ottla.cli.terminal import Cell, Column, Row, Style, Terminal, count, data_size, printable
from ottla.cli.topic.views import health, lag_text, list_row, partition_note, partition_row
from ottla.ops.cluster_status import BrokerStatus, ClusterStatus, LossStatus, PartitionStatus, TopicStatus
from ottla.wire.lost_records import UNKNOWN

_BROKERS = (
    Column("BROKER", is_number=True),
    Column("ADDRESS"),
    Column("RACK"),
    Column("LEADS", is_number=True),
    Column("REPLICAS", is_number=True),
    Column("IN SYNC", is_number=True),
    Column("SIZE", is_number=True),
    Column("FREE", is_number=True),
    Column("NOTE"),
)
_TOPICS = (
    Column("TOPIC", may_shrink=True),
    Column("PARTITIONS", is_number=True),
    Column("REPLICAS", is_number=True),
    Column("RECORDS", is_number=True),
    Column("SIZE", is_number=True),
    Column("LAG", is_number=True),
    Column("HEALTH"),
)
_PROBLEMS = (
    Column("TOPIC", may_shrink=True),
    Column("PARTITION", is_number=True),
    Column("LEADER", is_number=True),
    Column("REPLICAS"),
    Column("ISR"),
    Column("LAG", may_shrink=True),
    Column("NOTE"),
)
_LOSSES = (
    Column("TOPIC", may_shrink=True),
    Column("PARTITION", is_number=True),
    Column("BROKER", is_number=True),
    Column("OFFSETS"),
    Column("EPOCHS"),
    Column("WHEN"),
    Column("LOST RECORDS", may_shrink=True),
)


def show_status(terminal: Terminal, status: ClusterStatus) -> None:
    """Brokers, topics, and the partitions that something is wrong with."""
    controller = "no controller" if status.controller is None else f"controller {status.controller}"
    facts = [
        count(len(status.brokers), "broker"),
        terminal.paint(controller, Style.BAD if status.controller is None else Style.PLAIN),
        count(len(status.topics), "topic"),
        count(len(status.partitions), "partition"),
        _painted(terminal, cluster_health(status, [each for each in status.brokers if each.problem])),
    ]
    name = f"cluster {printable(status.cluster_id or 'without an id')}"
    terminal.line(f"{terminal.paint(name, Style.NAME)}  {' · '.join(facts)}")
    terminal.line()
    show_brokers(terminal, status)
    if status.topics:
        terminal.line()
        terminal.table(_TOPICS, [_topic_cells(each) for each in status.topics])
    problems = [each for each in status.partitions if not each.is_well]
    if problems:
        terminal.line()
        terminal.table(_PROBLEMS, [_problem_cells(each) for each in problems])
    if status.losses:
        terminal.line()
        terminal.table(_LOSSES, [_loss_cells(each) for each in status.losses])


def cluster_health(status: ClusterStatus, silent: Sized) -> Cell:
    """Name the faults of brokers and partitions; "ok" where there are none.

    A broker that has just died stays registered until its session expires: until then its partitions look healthy.
    """
    failed = sum(len(each.failed_log_dirs) for each in status.brokers)
    found = [f"{len(silent)} broker{' does' if len(silent) == 1 else 's do'} not answer"] if len(silent) else []
    found += [f"{failed} failed log director{'y' if failed == 1 else 'ies'}"] if failed else []
    of_partitions = health(status.partitions)
    if not found:
        return of_partitions
    return Cell(", ".join([*found, *([] if of_partitions.style is Style.GOOD else [of_partitions.text])]), Style.BAD)


def show_brokers(terminal: Terminal, status: ClusterStatus, only: int | None = None) -> None:
    """The brokers, those that are not there among them; or one of them alone."""
    brokers = [each for each in status.brokers if only in (None, each.node.node_id)]
    terminal.table(
        _BROKERS, [_broker_cells(status, each) for each in brokers] + (_absent(status) if only is None else [])
    )


def broker_rows(status: ClusterStatus) -> Iterator[dict[str, Any]]:
    """Each broker as an object."""
    for broker in status.brokers:
        yield _broker_row(status, broker)


def status_rows(status: ClusterStatus) -> Iterator[dict[str, Any]]:
    """The cluster, each broker and each topic with its partitions, as objects with their `kind`."""
    yield {
        "kind": "cluster",
        "cluster_id": status.cluster_id,
        "controller": status.controller,
        "brokers": [each.node.node_id for each in status.brokers],
        "absent_brokers": status.absent,
        "topic_count": len(status.topics),
        "partition_count": len(status.partitions),
        "offline_partitions": sum(each.is_offline for each in status.partitions),
        "under_min_isr_partitions": sum(each.is_under_min_isr for each in status.partitions),
        "under_replicated_partitions": sum(each.is_under_replicated for each in status.partitions),
    }
    yield from broker_rows(status)
    for topic in status.topics:
        yield {
            "kind": "topic",
            **list_row(topic),
            "size_bytes": topic.size_bytes,
            "partitions": [partition_row(each) for each in topic.partitions],
        }
    for loss in status.losses:
        yield _loss_row(loss)


def _painted(terminal: Terminal, cell: Cell) -> str:
    return terminal.paint(cell.text, cell.style)


def _broker_row(status: ClusterStatus, broker: BrokerStatus) -> dict[str, Any]:
    counts = _counts(status, broker.node.node_id)
    return {
        "kind": "broker",
        "broker": broker.node.node_id,
        "host": broker.node.host,
        "port": broker.node.port,
        "rack": broker.node.rack,
        "is_controller": broker.node.node_id == status.controller,
        "leads": counts["leads"],
        "replicas": counts["replicas"],
        "in_sync": counts["in sync"],
        "size_bytes": None if broker.problem else broker.size_bytes,
        "log_dirs": [
            {"path": each.path, "total_bytes": each.total_bytes, "usable_bytes": each.usable_bytes, "error": each.error}
            for each in broker.log_dirs.values()
        ],
        "problem": broker.problem,
    }


def _counts(status: ClusterStatus, broker: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for partition in status.partitions:
        counts["leads"] += partition.leader == broker
        for replica in partition.replicas:
            if replica.broker == broker:
                counts["replicas"] += 1
                counts["in sync"] += replica.is_in_sync
    return counts


def _broker_cells(status: ClusterStatus, broker: BrokerStatus) -> Row:
    counts = _counts(status, broker.node.node_id)
    usable = [each.usable_bytes for each in broker.log_dirs.values() if each.usable_bytes >= 0]
    return (
        Cell(str(broker.node.node_id), Style.NAME),
        f"{broker.node.host}:{broker.node.port}",
        broker.node.rack or "-",
        str(counts["leads"]),
        str(counts["replicas"]),
        Cell(str(counts["in sync"]), Style.BUSY if counts["in sync"] < counts["replicas"] else Style.PLAIN),
        "-" if broker.problem else data_size(broker.size_bytes),
        data_size(min(usable)) if usable else "-",
        _broker_note(status, broker),
    )


def _broker_note(status: ClusterStatus, broker: BrokerStatus) -> Cell:
    if broker.problem:
        return Cell("no answer", Style.BAD)
    if broker.failed_log_dirs:
        return Cell(f"failed: {', '.join(broker.failed_log_dirs)}", Style.BAD)
    return Cell("controller" if broker.node.node_id == status.controller else "")


def _absent(status: ClusterStatus) -> list[Row]:
    """Brokers that have replicas and are not registered."""
    rows: list[Row] = []
    for broker in status.absent:
        counts = _counts(status, broker)
        numbers = (str(counts["leads"]), str(counts["replicas"]), str(counts["in sync"]))
        rows.append((Cell(str(broker), Style.NAME), "-", "-", *numbers, "-", "-", Cell("not there", Style.BAD)))
    return rows


def _topic_cells(topic: TopicStatus) -> Sequence[str | Cell]:
    lag = max((each.lag for each in topic.partitions if each.lag is not None), default=None)
    return (
        Cell(topic.name, Style.FAINT if topic.is_internal else Style.NAME),
        str(len(topic.partitions)),
        str(topic.replication_factor),
        f"{topic.records:,}",
        data_size(topic.size_bytes),
        "-" if lag is None else f"{lag:,}",
        health(topic.partitions),
    )


def _problem_cells(each: PartitionStatus) -> Row:
    return (
        each.partition.topic,
        str(each.partition.partition),
        Cell("none", Style.BAD) if each.leader < 0 else str(each.leader),
        ",".join(str(replica.broker) for replica in each.replicas),
        ",".join(map(str, each.isr)),
        lag_text(each.replicas, each.leader),
        partition_note(each),
    )


def _loss_row(loss: LossStatus) -> dict[str, Any]:
    partition, broker, report = loss
    return {
        "kind": "lost_records",
        **partition._asdict(),
        "broker": broker,
        "is_unclean_election": report.is_election,
        "first_offset": report.start,
        "end_offset": None if report.end == UNKNOWN else report.end,
        "committed_end_offset": None if report.committed_end == UNKNOWN else report.committed_end,
        "leader_epochs": list(report.epochs),
        "leader": report.leader,
        "leader_epoch": report.leader_epoch,
        "at_ms": report.at_ms,
    }


def _loss_cells(loss: LossStatus) -> Row:
    partition, broker, report = loss
    if report.is_election:
        offsets = f"from {report.start}"
        epochs = str(report.leader_epoch)
        note = "elected without being in sync: what others had is lost"
        if report.was_committed:
            note += f", at least {report.committed_end - report.start:,} committed"
    else:
        offsets = f"{report.start}-{report.end - 1}"
        epochs = ",".join(map(str, report.epochs)) or "-"
        note = f"{report.end - report.start:,} removed for leader {report.leader} in epoch {report.leader_epoch}"
        if report.was_committed:
            note += f", {min(report.committed_end, report.end) - report.start:,} were committed"
    return (
        partition.topic,
        str(partition.partition),
        str(broker),
        offsets,
        epochs,
        instant(report.at_ms),
        Cell(note, Style.BAD),
    )
