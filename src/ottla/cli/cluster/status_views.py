"""How the state of a cluster is shown: as tables, and as JSON objects, one a line."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any

from ottla.cli.log.output import instant
from ottla.cli.terminal import PARTITION, TOPIC, Cell, Column, Style, Terminal, count, data_size, numbers, printable
from ottla.cli.topic.views import (
    COUNTS,
    HEALTH,
    NAME,
    NOTES,
    RECORDS,
    REPLICAS,
    list_row,
    partition_row,
    partitions_health,
)
from ottla.ops.cluster_status import BrokerRow, ClusterStatus, LossStatus, TopicStatus
from ottla.wire.lost_records import UNKNOWN, LostRecords

_BROKERS: tuple[Column[BrokerRow], ...] = (
    numbers("BROKER", lambda each: Cell(str(each.broker), Style.NAME)),
    Column("ADDRESS", lambda each: each.host and f"{each.host}:{each.port}"),
    Column("RACK", lambda each: each.rack or None),
    numbers("LEADS", lambda each: each.leads),
    numbers("REPLICAS", lambda each: each.replicas),
    numbers("IN SYNC", lambda each: _in_sync(each)),
    numbers("SIZE", lambda each: None if each.size_bytes is None else data_size(each.size_bytes)),
    numbers("FREE", lambda each: _least_free(each)),
    Column("NOTE", lambda each: _broker_note(each)),
)
_TOPICS: tuple[Column[TopicStatus], ...] = (
    NAME,
    *COUNTS,
    *RECORDS,
    numbers("LAG", lambda each: _most_lag(each)),
    HEALTH,
)
_LOSSES: tuple[Column[LossStatus], ...] = (
    TOPIC,
    PARTITION,
    numbers("BROKER", lambda each: each.broker),
    Column("OFFSETS", lambda each: _loss_texts(each.report)[0]),
    Column("EPOCHS", lambda each: _loss_texts(each.report)[1]),
    Column("WHEN", lambda each: instant(each.report.at_ms)),
    Column("LOST RECORDS", lambda each: Cell(_loss_texts(each.report)[2], Style.BAD), may_shrink=True),
)


def show_status(terminal: Terminal, status: ClusterStatus) -> None:
    """Brokers, topics, and the partitions that something is wrong with."""
    health = cluster_health(status, [each for each in status.brokers if each.problem])
    controller = "no controller" if status.controller is None else f"controller {status.controller}"
    facts = [
        count(len(status.brokers), "broker"),
        terminal.paint(controller, Style.BAD if status.controller is None else Style.PLAIN),
        count(len(status.topics), "topic"),
        count(len(status.partitions), "partition"),
        terminal.paint(health.text, health.style),
    ]
    name = f"cluster {printable(status.cluster_id or 'without an id')}"
    terminal.line(f"{terminal.paint(name, Style.NAME)}  {' · '.join(facts)}")
    terminal.line()
    show_brokers(terminal, status)
    if status.topics:
        terminal.line()
        terminal.table(_TOPICS, status.topics)
    problems = [each for each in status.partitions if not each.is_well]
    if problems:
        terminal.line()
        terminal.table((TOPIC, PARTITION, *REPLICAS, *NOTES), problems)
    if status.losses:
        terminal.line()
        terminal.table(_LOSSES, status.losses)


def cluster_health(status: ClusterStatus, silent: Sized) -> Cell:
    """Name the faults of brokers and partitions; "ok" where there are none.

    A broker that has just died stays registered until its session expires: until then its partitions look healthy.
    """
    failed = sum(len(each.failed_log_dirs) for each in status.brokers)
    found = [f"{len(silent)} broker{' does' if len(silent) == 1 else 's do'} not answer"] if len(silent) else []
    found += [f"{failed} failed log director{'y' if failed == 1 else 'ies'}"] if failed else []
    of_partitions = partitions_health(status.partitions)
    if not found:
        return of_partitions
    return Cell(", ".join([*found, *([] if of_partitions.style is Style.GOOD else [of_partitions.text])]), Style.BAD)


def show_brokers(terminal: Terminal, status: ClusterStatus, only: int | None = None) -> None:
    """The brokers, those that are not there among them; or one of them alone."""
    ids = [*status.registered, *status.absent] if only is None else [only]
    terminal.table(_BROKERS, map(status.broker_row, ids))


def broker_row(status: ClusterStatus, broker: int) -> dict[str, Any]:
    """A broker as an object."""
    return {"kind": "broker", **status.broker_row(broker)._asdict()}


def status_rows(status: ClusterStatus) -> Iterator[dict[str, Any]]:
    """The cluster, each broker and each topic with its partitions, as objects with their `kind`."""
    yield {
        "kind": "cluster",
        "cluster_id": status.cluster_id,
        "controller": status.controller,
        "brokers": status.registered,
        "absent_brokers": status.absent,
        "topic_count": len(status.topics),
        "partition_count": len(status.partitions),
        "offline_partitions": sum(each.is_offline for each in status.partitions),
        "under_min_isr_partitions": sum(each.is_under_min_isr for each in status.partitions),
        "under_replicated_partitions": sum(each.is_under_replicated for each in status.partitions),
    }
    yield from (broker_row(status, each) for each in status.registered)
    for topic in status.topics:
        yield {
            "kind": "topic",
            **list_row(topic),
            "size_bytes": topic.size_bytes,
            "partitions": [partition_row(each) for each in topic.partitions],
        }
    for loss in status.losses:
        yield _loss_row(loss)


def _in_sync(row: BrokerRow) -> Cell:
    return Cell(str(row.in_sync), Style.BUSY if row.host and row.in_sync < row.replicas else Style.PLAIN)


def _broker_note(row: BrokerRow) -> str | Cell:
    if row.host is None:
        return Cell("not there", Style.BAD)
    if row.problem:
        return Cell("no answer", Style.BAD)
    failed = [str(each["path"]) for each in row.log_dirs if each["error"] is not None]
    return Cell(f"failed: {', '.join(failed)}", Style.BAD) if failed else "controller" if row.is_controller else ""


def _least_free(row: BrokerRow) -> str | None:
    usable = [each["usable_bytes"] for each in row.log_dirs if each["usable_bytes"] >= 0]
    return data_size(min(usable)) if usable else None


def _most_lag(topic: TopicStatus) -> str | None:
    lag = max((each.lag for each in topic.partitions if each.lag is not None), default=None)
    return None if lag is None else f"{lag:,}"


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


def _loss_texts(report: LostRecords) -> tuple[str, str, str]:
    """Its offsets, its epochs, and what happened."""
    if report.is_election:
        note = "elected without being in sync: what others had is lost"
        if report.was_committed:
            note += f", at least {report.committed_end - report.start:,} committed"
        return f"from {report.start}", str(report.leader_epoch), note
    note = f"{report.end - report.start:,} removed for leader {report.leader} in epoch {report.leader_epoch}"
    if report.was_committed:
        note += f", {min(report.committed_end, report.end) - report.start:,} were committed"
    return f"{report.start}-{report.end - 1}", ",".join(map(str, report.epochs)) or "-", note
