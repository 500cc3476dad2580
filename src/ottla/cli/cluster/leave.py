"""`ottla cluster leave`: a broker leaves a cluster for good."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ottla.cli.cluster import COMMAND
from ottla.cli.command import NOT_CONFIRMED, CommandError, confirmed
from ottla.cli.terminal import Cell, Column, Style, Terminal, count
from ottla.client.admin.topics import TopicAdmin
from ottla.client.cluster_leave import (
    EVIDENCE_TOPIC,
    Departure,
    hand_over,
    planned_moves,
    read_departure,
    reassignment_json,
)
from ottla.client.errors import UnknownTopicError
from ottla.peer.cluster import Cluster

#: Partitions that are shown of those that keep a broker.
SHOWN = 20
_HELD = (
    Column("TOPIC", may_shrink=True),
    Column("PARTITION", is_number=True),
    Column("LEADER", is_number=True),
    Column("REPLICAS"),
    Column("ISR"),
    Column("INSTEAD"),
)


@dataclass(frozen=True, slots=True)
class LeaveOptions:
    """The command's options."""

    broker: int
    plan: str | None
    yes: bool


async def leave(cluster: Cluster, options: LeaveOptions) -> int:
    """Do it, or show what keeps the broker; returns the exit code. Raises CommandError, ClientError."""
    departure = await read_departure(cluster, options.broker)
    terminal = Terminal.standard_output()
    for broker in departure.unasked:
        COMMAND.report(f"broker {broker} did not say whether it is one of ottla: the topic {EVIDENCE_TOPIC} stays")
    if departure.held:
        return _show_held(terminal, departure, options.plan)
    if options.plan is not None:
        raise CommandError(f"there is nothing to plan: broker {options.broker} holds no replica that has to be moved")
    if not departure.is_registered and not departure.removes_evidence:
        terminal.line(f"broker {options.broker} is not registered and holds no replicas: it has left the cluster")
        return 0
    terminal.line(f"broker {options.broker} holds no replicas that have to be moved.")
    if departure.removes_evidence:
        terminal.line(f"No other broker is one of ottla: the topic {EVIDENCE_TOPIC} is deleted.")
    if not confirmed(f"Let broker {options.broker} leave?", yes=options.yes):
        return COMMAND.report(NOT_CONFIRMED)
    return await _leave(cluster, terminal, departure)


async def _leave(cluster: Cluster, terminal: Terminal, departure: Departure) -> int:
    broker = departure.broker
    if departure.is_registered:
        remaining = await hand_over(cluster, broker)
        kept = [str(each) for each in remaining if each.topic != EVIDENCE_TOPIC]
        if kept:
            return COMMAND.report(
                f"broker {broker} still leads {', '.join(kept[:SHOWN])}, which nobody else in sync can take over; "
                "bring their other replicas back, then repeat the command"
            )
    if departure.removes_evidence:
        try:
            await TopicAdmin(cluster).delete_topics([EVIDENCE_TOPIC])
            terminal.line(f"the topic {EVIDENCE_TOPIC} is deleted")
        except UnknownTopicError:
            pass  # somebody else was faster
    if (await read_departure(cluster, broker)).held:
        return COMMAND.report(f"broker {broker} was given new replicas meanwhile; repeat the command")
    if departure.is_registered:
        terminal.line(
            f"broker {broker} leads nothing and is elected no more: stop its process now (SIGTERM), and do not start "
            "it again. Its data directories can be removed then"
        )
    else:
        terminal.line(f"broker {broker} has left the cluster")
    return 0


def _show_held(terminal: Terminal, departure: Departure, plan: str | None) -> int:
    moves = planned_moves(departure)
    terminal.line(f"broker {departure.broker} holds {count(len(departure.held), 'replica')}:")
    terminal.line()
    rows = []
    for partition, known in list(departure.held.items())[:SHOWN]:
        replicas = moves[partition]
        rows.append(
            (
                partition.topic,
                str(partition.partition),
                Cell("none", Style.BAD) if known.leader < 0 else str(known.leader),
                ",".join(map(str, known.replicas)),
                ",".join(map(str, known.isr)),
                Cell("no other broker", Style.BAD) if replicas is None else ",".join(map(str, replicas)),
            )
        )
    terminal.table(_HELD, rows)
    if len(departure.held) > SHOWN:
        terminal.line(f"  … and {len(departure.held) - SHOWN} more")
    terminal.line()
    alone, planned = len(departure.alone), sum(replicas is not None for replicas in moves.values())
    if alone:
        terminal.line(f"Of {count(alone, 'partition')} nobody else has the records: they are lost if it is stopped.")
    if plan is not None:
        _write(plan, reassignment_json(moves))
        terminal.line(f"{plan} has the moves of {count(planned, 'partition')} to other brokers.")
    if planned < len(moves):
        terminal.line("Start another broker, so that every replica has a place to go.")
    return COMMAND.report(
        f"broker {departure.broker} cannot leave: its replicas have to live elsewhere first. Move them with "
        "kafka-reassign-partitions.sh --execute --reassignment-json-file FILE (--plan FILE writes the file; a "
        "controller of ottla takes its content as /admin/reassign_partitions in ZooKeeper), or delete the topics; then "
        "repeat the command"
    )


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text)
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}") from error
