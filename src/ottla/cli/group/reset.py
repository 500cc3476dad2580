"""How offsets are reset: the options, the plan for every group, its confirmation, the commit."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NoReturn

from ottla.cli.command import NOT_CONFIRMED, confirmed
from ottla.cli.group import COMMAND
from ottla.cli.group.offset_options import parse_datetime, parse_duration_ms, parse_topic
from ottla.cli.group.views import planned_row, show_plan
from ottla.cli.options import ClusterOptions
from ottla.cli.terminal import Terminal, count, write_json
from ottla.client.admin.topics import TopicAdmin
from ottla.client.errors import BrokerError, InvalidArgumentError
from ottla.client.group_offsets import MEMBERS_IN_CHARGE, GroupOffsets
from ottla.client.groups import DEAD, GroupDescription, Groups
from ottla.client.model import TopicPartition
from ottla.config.settings import nearest_name
from ottla.env.clock import SystemClock
from ottla.ops.offset_reset import MOST_OFFSET, PlannedOffset, Reset, Target, csv_lines, plan_reset, read_csv
from ottla.peer.cluster import Cluster

MOST_LINES = 1_000_000
"""Limit on the lines of a file with offsets."""

Scope = Sequence[tuple[str, tuple[int, ...] | None]]


@dataclass(frozen=True, slots=True)
class ResetOptions:
    """The command's options as given; `flags` and `numbers` are those of targets, by their names."""

    groups: tuple[str, ...]
    topics: tuple[str, ...]
    all_topics: bool
    flags: Mapping[str, bool]
    numbers: Mapping[str, int | None]
    to_datetime: str | None
    by_duration: str | None
    from_file: Path | None


@dataclass(frozen=True, slots=True)
class ResetOutput:
    """Whether the plan is carried out without asking (`yes`), also for groups to `create`, and how it is shown."""

    yes: bool
    create: bool
    export: bool
    as_json: bool


def reset(options: ResetOptions, output: ResetOutput, cluster_options: ClusterOptions) -> NoReturn:
    """Show the new offsets, commit them if confirmed, and end the process."""
    try:
        scope = [parse_topic(each) for each in options.topics]
        targets = _targets(options)
    except InvalidArgumentError as problem:
        COMMAND.fail(str(problem))

    async def work(cluster: Cluster) -> int:
        plans = await _plans(cluster, targets, scope)
        if not output.create and (unknown := await _unknown(cluster, list(plans))):
            return max(map(COMMAND.report, unknown))
        if output.yes and (refused := await _commit(cluster, plans)):
            return refused
        if not output.yes:
            await _warn_of_members(cluster, plans)
        _show_plans(plans, output)
        return 0 if output.export else await _settle(cluster, plans, output)

    COMMAND.run_with_cluster(cluster_options, work)


async def _settle(cluster: Cluster, plans: dict[str, list[PlannedOffset]], output: ResetOutput) -> int:
    """Below the plans: ask if need be, and say what was done; returns the exit code."""
    if not output.yes:
        question = f"Commit these offsets of {count(len(plans), 'group')}?"
        if not confirmed(question, yes=False, as_json=output.as_json):
            return COMMAND.report(NOT_CONFIRMED)
        if refused := await _commit(cluster, plans):
            return refused
    if not output.as_json:
        Terminal.standard_output().line("these offsets are committed")
    return 0


def _targets(options: ResetOptions) -> dict[str, Reset]:
    """The target of each group's offsets. InvalidArgumentError where the options do not settle it."""
    resets = [Reset(Target(name)) for name, wanted in options.flags.items() if wanted]
    resets += [Reset(Target(name), value) for name, value in options.numbers.items() if value is not None]
    if options.to_datetime is not None:
        resets.append(Reset(Target.TIMESTAMP, parse_datetime(options.to_datetime)))
    if options.by_duration is not None:
        ago_ms = parse_duration_ms(options.by_duration)
        resets.append(Reset(Target.TIMESTAMP, max(0, SystemClock().now_ms() - ago_ms)))
    if len(resets) + (options.from_file is not None) != 1:
        raise InvalidArgumentError("say where to, once: one of --to-…, --shift-by, --by-duration, --from-file")
    if options.from_file is None and bool(options.topics) == options.all_topics:
        raise InvalidArgumentError("say of which partitions: --topic orders, --topic orders:0,3, or --all-topics")
    if options.from_file is not None:
        if options.topics or options.all_topics:
            raise InvalidArgumentError("--from-file names the partitions itself; leave --topic and --all-topics out")
        return _from_file(options.from_file, options.groups)
    if abs(resets[0].value) > MOST_OFFSET:
        raise InvalidArgumentError(f"{resets[0].value} is not an offset: the largest is {MOST_OFFSET}")
    return dict.fromkeys(options.groups, resets[0])


def _from_file(path: Path, groups: Sequence[str]) -> dict[str, Reset]:
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            found = read_csv(islice(lines, MOST_LINES), groups)
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8"
        raise InvalidArgumentError(f"--from-file: {path} cannot be read: {reason}") from problem
    except InvalidArgumentError as problem:
        raise InvalidArgumentError(f"--from-file: {path}: {problem}") from problem
    empty = [group for group, offsets in found.items() if not offsets]
    if empty:
        raise InvalidArgumentError(f"--from-file: {path} has no offsets of group {empty[0]}")
    return {group: Reset(Target.OFFSET, offsets=offsets) for group, offsets in found.items()}


async def _plans(cluster: Cluster, targets: Mapping[str, Reset], scope: Scope) -> dict[str, list[PlannedOffset]]:
    """The plan of each group. Nothing is changed before all of them are made."""
    plans = {}
    for group, target in targets.items():
        if target.offsets is not None:
            partitions = list(target.offsets)
        else:
            partitions = await (_in_scope(cluster, scope) if scope else _committed(cluster, group))
        if not partitions:
            raise InvalidArgumentError(
                f"group {group} has committed nothing, so --all-topics is nothing; name topics with --topic"
            )
        plans[group] = await plan_reset(cluster, group, partitions, target)
    return plans


async def _in_scope(cluster: Cluster, scope: Scope) -> list[TopicPartition]:
    described = await TopicAdmin(cluster).describe_topics(list(dict.fromkeys(topic for topic, _ in scope)))
    partitions = []
    for topic, indexes in scope:
        known = [each.partition for each in described[topic].partitions]
        partitions += [TopicPartition(topic, index) for index in (known if indexes is None else indexes)]
    return partitions


async def _committed(cluster: Cluster, group: str) -> list[TopicPartition]:
    """The partitions with committed offsets, without those whose topics are gone: they have no offsets to go to."""
    partitions = list(await GroupOffsets(cluster, group).fetch_all())
    topics = list(dict.fromkeys(each.topic for each in partitions))
    metadata = await cluster.retry("looking up topics", lambda: cluster.refresh(topics))
    gone = [each for each in partitions if metadata.leader(*each) is None]
    if gone:
        COMMAND.report(f"{', '.join(map(str, gone))} of group {group} left out: there is no such partition any more")
    return [each for each in partitions if metadata.leader(*each) is not None]


async def _unknown(cluster: Cluster, groups: Sequence[str]) -> list[str]:
    """Messages about the groups that do not exist: committing offsets would create them."""
    dead = [each.group_id for each in await Groups(cluster).describe_each(groups) if each.state == DEAD]
    absent = [each for each in dead if not await GroupOffsets(cluster, each).fetch_all()]
    if not absent:
        return []
    known = [each.group_id for each in await Groups(cluster).list_all()]
    near = {each: nearest_name(each, known) for each in absent}
    return [
        f"there is no group {each} at {cluster.name}{f' (is it {near[each]}?)' if near[each] else ''}; "
        "--create makes it, with these offsets"
        for each in absent
    ]


async def _active(cluster: Cluster, groups: Sequence[str]) -> list[GroupDescription]:
    return [each for each in await Groups(cluster).describe_each(groups) if each.is_active]


async def _warn_of_members(cluster: Cluster, plans: dict[str, list[PlannedOffset]]) -> None:
    for group in await _active(cluster, list(plans)):
        COMMAND.report(f"warning: {_busy(group)}; the change will be refused until they have stopped")


async def _commit(cluster: Cluster, plans: dict[str, list[PlannedOffset]]) -> int:
    for group in await _active(cluster, list(plans)):
        return COMMAND.report(f"nothing is changed: {_busy(group)}; stop them first")
    for name, plan in plans.items():
        try:
            await GroupOffsets(cluster, name).commit({each.partition: each.new_offset for each in plan})
        except BrokerError as problem:  # a member has joined since
            if problem.code not in MEMBERS_IN_CHARGE:
                raise
            return COMMAND.report(str(problem))
    return 0


def _busy(group: GroupDescription) -> str:
    return f"group {group.group_id} has {count(len(group.members), 'member')} at work (it is {group.state})"


def _show_plans(plans: dict[str, list[PlannedOffset]], output: ResetOutput) -> None:
    if output.export:
        sys.stdout.writelines(f"{line}\n" for line in csv_lines(plans))
    elif output.as_json:
        for group, plan in plans.items():
            write_json(*(planned_row(group, each, output.yes) for each in plan))
    else:
        terminal = Terminal.standard_output()
        for group, plan in plans.items():
            show_plan(terminal, group, plan)
