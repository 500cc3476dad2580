"""`ottla cluster leave`: a broker leaves a cluster for good."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ottla.cli.cluster import COMMAND
from ottla.cli.command import NOT_CONFIRMED, CommandError, confirmed
from ottla.cli.reassign.plan_files import write_plan
from ottla.cli.terminal import Cell, Column, Style, Terminal, count, numbers, write_json
from ottla.cli.topic.views import leader_cell
from ottla.client.admin.topics import TopicAdmin
from ottla.client.errors import UnknownTopicError
from ottla.client.model import TopicPartition
from ottla.ops.cluster_leave import (
    EVIDENCE_TOPIC,
    Departure,
    PlannedDeparture,
    hand_over,
    plan_departure,
    read_departure,
)
from ottla.ops.planning.model import Left
from ottla.peer.cluster import Cluster
from ottla.peer.model import PartitionMetadata

#: Partitions that are shown of those that keep a broker.
SHOWN = 20


@dataclass(frozen=True, slots=True)
class LeaveOptions:
    """The command's options."""

    broker: int
    plan: str | None
    yes: bool
    as_json: bool


class _View:
    """The command's output: lines for people, or JSON objects."""

    def __init__(self, departure: Departure, as_json: bool) -> None:
        self._departure = departure
        self._as_json = as_json
        self._terminal = Terminal.standard_output()

    def line(self, text: str = "") -> None:
        """A line for people."""
        if not self._as_json:
            self._terminal.line(text)

    def held(self, planned: PlannedDeparture) -> None:
        """Show the broker's partitions, and where each could go."""
        if self._as_json:
            for partition, known in self._departure.held.items():
                instead = planned.moves.get(partition)
                write_json(
                    {
                        "kind": "partition",
                        **partition._asdict(),
                        "leader": None if known.leader < 0 else known.leader,
                        "replicas": list(known.replicas),
                        "isr": list(known.isr),
                        "instead": None if instead is None else list(instead),
                        "problem": planned.left.get(partition),
                    }
                )
            return
        self._terminal.table(_columns(planned), list(self._departure.held.items())[:SHOWN])
        if len(self._departure.held) > SHOWN:
            self._terminal.line(f"  … and {len(self._departure.held) - SHOWN} more")

    def ended(self, state: str) -> None:
        """How it ended: `held`, `may_stop` or `left`."""
        if self._as_json:
            departure = self._departure
            held = len(departure.held)
            write_json({"kind": "broker", "broker": departure.broker, "state": state, "held_partitions": held})


def _columns(planned: PlannedDeparture) -> Sequence[Column[tuple[TopicPartition, PartitionMetadata]]]:
    def instead(partition: TopicPartition) -> str | Cell:
        found = planned.moves.get(partition)
        if found is None:
            return Cell(planned.left.get(partition, "no other broker"), Style.BAD)
        return ",".join(map(str, found))

    return (
        Column("TOPIC", lambda each: each[0].topic, may_shrink=True),
        numbers("PARTITION", lambda each: each[1].partition),
        numbers("LEADER", lambda each: leader_cell(each[1].leader)),
        Column("REPLICAS", lambda each: ",".join(map(str, each[1].replicas))),
        Column("ISR", lambda each: ",".join(map(str, each[1].isr))),
        Column("INSTEAD", lambda each: instead(each[0])),
    )


async def leave(cluster: Cluster, options: LeaveOptions) -> int:
    """Do it, or show what keeps the broker; returns the exit code. Raises CommandError, ClientError."""
    departure = await read_departure(cluster, options.broker)
    view = _View(departure, options.as_json)
    for broker in departure.unasked:
        COMMAND.report(f"broker {broker} did not say whether it is one of ottla: the topic {EVIDENCE_TOPIC} stays")
    if departure.held:
        return await _show_held(cluster, view, departure, options.plan)
    if options.plan is not None:
        raise CommandError(f"there is nothing to plan: broker {options.broker} holds no replica that has to be moved")
    if not departure.is_registered and not departure.removes_evidence:
        view.line(f"broker {options.broker} is not registered and holds no replicas: it has left the cluster")
        view.ended("left")
        return 0
    view.line(f"broker {options.broker} holds no replicas that have to be moved.")
    if departure.removes_evidence:
        view.line(f"No other broker is one of ottla: the topic {EVIDENCE_TOPIC} is deleted.")
    if not confirmed(f"Let broker {options.broker} leave?", yes=options.yes, as_json=options.as_json):
        return COMMAND.report(NOT_CONFIRMED)
    return await _leave(cluster, view, departure)


async def _leave(cluster: Cluster, view: _View, departure: Departure) -> int:
    broker = departure.broker
    if departure.is_registered:
        remaining = await hand_over(cluster, broker)
        kept = [str(each) for each in remaining if each.topic != EVIDENCE_TOPIC]
        if kept:
            return COMMAND.report(
                f"broker {broker} still leads {', '.join(kept[:SHOWN])}, which no other replica in sync can take over; "
                "bring their other replicas back, then repeat the command"
            )
    if departure.removes_evidence:
        try:
            await TopicAdmin(cluster).delete_topics([EVIDENCE_TOPIC])
            view.line(f"the topic {EVIDENCE_TOPIC} is deleted")
        except UnknownTopicError:
            pass  # another client was faster
    if (await read_departure(cluster, broker)).held:
        return COMMAND.report(f"broker {broker} was given new replicas meanwhile; repeat the command")
    if departure.is_registered:
        view.line(
            f"broker {broker} leads nothing and is elected no more: stop its process now (SIGTERM), and do not start "
            "it again. Its data directories can be removed then"
        )
    else:
        view.line(f"broker {broker} has left the cluster")
    view.ended("may_stop" if departure.is_registered else "left")
    return 0


async def _show_held(cluster: Cluster, view: _View, departure: Departure, plan: str | None) -> int:
    planned = await plan_departure(cluster, departure)
    for broker, problem in planned.silent.items():
        COMMAND.report(f"broker {broker} did not say its sizes, those of other replicas are taken: {problem}")
    view.line(f"broker {departure.broker} holds {count(len(departure.held), 'replica')}:")
    view.line()
    view.held(planned)
    view.line()
    alone = len(departure.alone)
    if alone:
        view.line(f"Of {count(alone, 'partition')} no other replica has the records: they are lost if it is stopped.")
    files = write_plan(Path(plan), planned.batches) if plan is not None and planned.batches else []
    if files:
        view.line(f"{', '.join(files)}: the moves of {count(len(planned.moves), 'partition')} to other brokers.")
    if planned.refusal:
        COMMAND.report(planned.refusal)
    if planned.refusal or Left.NO_ROOM.value in planned.left.values():
        view.line("Start another broker, so that every replica has a place to go.")
    view.ended("held")
    command = (
        f"`ottla reassign execute {files[0]}`"
        if files
        else "`ottla reassign execute FILE` (--plan FILE writes the file)"
    )
    return COMMAND.report(
        f"broker {departure.broker} cannot leave: its replicas have to live elsewhere first. Move them with {command}, "
        "or delete the topics; then repeat the command"
    )
