"""The work of `ottla reassign plan`: ask the cluster, make the plan, show it, write the files."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from ottla.cli.command import CommandError
from ottla.cli.reassign import COMMAND
from ottla.cli.reassign.plan_files import write_plan
from ottla.cli.reassign.plan_views import ShownPlan, plan_rows, show_plan
from ottla.cli.terminal import Terminal, count, write_json
from ottla.ops.planned_cluster import PlannedCluster, read_planned_cluster
from ottla.ops.planning.batches import batches
from ottla.ops.planning.model import PlanGoal, PlanRefusal, ReassignmentPlan
from ottla.ops.planning.planner import plan
from ottla.peer.cluster import Cluster

#: Partitions that are named of those that cannot be changed.
NAMED = 10


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The command's options; `topics` are patterns, none for all topics."""

    goal: PlanGoal
    topics: tuple[str, ...]
    at_once: int
    throttle: int | None
    output: str | None
    as_json: bool

    def may_move(self, topic: str) -> bool:
        """Whether partitions of the topic may be moved."""
        return not self.topics or any(fnmatchcase(topic, each) for each in self.topics)

    @property
    def has_goal(self) -> bool:
        """Whether anything is asked for."""
        goal = self.goal
        return bool(goal.even or goal.add or goal.empty or goal.fix_racks or goal.replication_factor)


def broker_ids(option: str, text: str) -> tuple[int, ...]:
    """Broker ids with commas between. Raises CommandError."""
    try:
        return tuple(dict.fromkeys(int(each) for each in text.split(",") if each.strip()))
    except ValueError:
        raise CommandError(f"{option} takes broker ids with commas between them, as in {option} 4,5") from None


async def propose(cluster: Cluster, options: PlanOptions) -> int:
    """Make the plan; returns the exit code. Raises CommandError, ClientError."""
    if not options.has_goal:
        raise CommandError("say what is wanted: --even, --add, --empty, --replication-factor or --racks")
    known = await read_planned_cluster(cluster, options.may_move)
    if options.topics and not any(options.may_move(each.topic) for each in known.partitions):
        raise CommandError(f"no topic is like {' or '.join(options.topics)}: see `ottla topic list`")
    for broker, problem in known.silent.items():
        COMMAND.report(f"broker {broker} did not say its sizes, those of other replicas are taken: {problem}")
    made = plan(known.brokers, known.partitions, options.goal)
    if isinstance(made, PlanRefusal):
        return COMMAND.report(made.message)
    files = _show(known, made, options)
    if files and not options.as_json:
        terminal = Terminal.standard_output()
        terminal.line()
        terminal.line(f"Written: {', '.join(files)}. Carry them out one after the other:")
        throttle = "" if options.throttle is None else f" --throttle {options.throttle}"
        terminal.line(f"  ottla reassign execute {files[0]}{throttle}")
    if not made.left:
        return 0
    return COMMAND.report(_left(made))


def _show(known: PlannedCluster, made: ReassignmentPlan, options: PlanOptions) -> list[str]:
    """Show the plan and write its files; returns their names but for the one that leads back."""
    steps = batches(made, known.brokers, options.at_once)
    shown = ShownPlan(made, {each.id: each for each in known.brokers}, steps, options.throttle)
    if options.as_json:
        write_json(*plan_rows(shown))
    else:
        show_plan(Terminal.standard_output(), shown)
    if options.output is None or not steps:
        return []
    return write_plan(Path(options.output), steps)


def _left(made: ReassignmentPlan) -> str:
    named = [f"{topic}-{partition} ({why.value})" for (topic, partition), why in list(made.left.items())[:NAMED]]
    more = len(made.left) - len(named)
    return (
        f"{count(len(made.left), 'partition')} cannot be changed as asked: {', '.join(named)}"
        f"{f' and {more} more' if more else ''}"
    )
