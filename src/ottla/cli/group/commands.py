"""The commands of `ottla group`, which work with consumer groups of any Kafka cluster over the wire."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.group import COMMAND
from ottla.cli.options import ClusterOptions, Yes, cluster_command, make_app
from ottla.cli.terminal import Terminal, write_json

if TYPE_CHECKING:
    from ottla.client.groups import GroupDescription
    from ottla.ops.group_lag import GroupLag
    from ottla.peer.cluster import Cluster

LAGS_AT_A_TIME = 16

app = make_app("group", "Show consumer groups, and change their offsets.")


GroupIds = Annotated[list[str], typer.Argument(metavar="GROUP...", help="Ids of groups.")]
Topics = Annotated[
    list[str] | None, typer.Option("--topic", "-t", help="A topic (orders), or some partitions of it (orders:0,3).")
]


class ListedState(StrEnum):
    """The states of groups in Apache Kafka 3.9, those of the consumer protocol (KIP-848) included."""

    STABLE = "Stable"
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    DEAD = "Dead"


@cluster_command(app, "list")
def list_groups(
    shared: ClusterOptions,
    state: Annotated[
        list[ListedState] | None,
        typer.Option("--state", help="Only groups in this state; may be repeated.", case_sensitive=False),
    ] = None,
    lag: Annotated[bool, typer.Option("--lag", help="With the lag of each group (takes longer).")] = False,
) -> None:
    """List groups: state, members, assignor, coordinator."""
    from ottla.cli.group.views import GroupWithLag, list_row, show_list
    from ottla.client.groups import Groups

    async def work(cluster: Cluster) -> int:
        groups = [each for each in await Groups(cluster).list_all() if not state or each.state in state]
        lags = await _lags(cluster, groups) if lag else {}
        listed = [GroupWithLag(each, lags.get(each.group_id)) for each in groups]
        if shared.as_json:
            write_json(*map(list_row, listed))
        else:
            show_list(Terminal.standard_output(), listed)
        return 0

    COMMAND.run_with_cluster(shared, work)


@cluster_command(app)
def describe(
    shared: ClusterOptions,
    groups: Annotated[list[str] | None, typer.Argument(metavar="GROUP...", help="Ids of groups.")] = None,
    all_groups: Annotated[bool, typer.Option("--all-groups", help="All groups of the cluster.")] = False,
) -> None:
    """Show groups: members, committed offsets, lag.

    The lag of each partition is shown in records and in time.

    Ends with 0, with 1 where a group is not there, with 2 where the cluster could not be asked.
    """
    from ottla.cli.group.views import description_row, show_description
    from ottla.client.groups import DEAD, Groups

    if bool(groups) == all_groups:
        COMMAND.fail("name the groups to describe, or give --all-groups")

    async def work(cluster: Cluster) -> int:
        admin = Groups(cluster)
        found = await admin.list_all() if all_groups else await admin.describe_each(list(dict.fromkeys(groups or ())))
        lags = await _lags(cluster, found)
        terminal, code = Terminal.standard_output(), 0
        for at, group in enumerate(found):
            lag = lags[group.group_id]
            if group.state == DEAD and not lag.partitions:
                code = COMMAND.report(f"there is no group {group.group_id} at {cluster.name}")
            elif shared.as_json:
                write_json(description_row(group, lag))
            else:
                if at:
                    terminal.line()
                show_description(terminal, group, lag)
        return code

    COMMAND.run_with_cluster(shared, work)


@cluster_command(app)
def why(
    shared: ClusterOptions,
    group: Annotated[str, typer.Argument(help="The group's id.")],
    last: Annotated[int, typer.Option("--last", "-n", help="How many of its last rebalances.", min=1, max=10_000)] = 5,
    generation: Annotated[int | None, typer.Option(help="Only rebalances that led to this generation.")] = None,
) -> None:
    """Show why a group rebalanced.

    Of each rebalance: cause, member, duration, moved partitions, the pause of each member.

    Reads the evidence that ottla keeps in the topic __ottla_rebalances; Apache Kafka keeps none. Ends with 1 where
    nothing is recorded of the group.
    """
    from ottla.cli.group.why import LEGEND, show_rebalance
    from ottla.cli.terminal import Style
    from ottla.ops.rebalances import RebalanceLog

    async def work(cluster: Cluster) -> int:
        log = RebalanceLog(cluster)
        if not await log.is_there():
            return COMMAND.report(no_evidence(cluster))
        found = await log.last(group, last, generation)
        if not found:
            which = "" if generation is None else f" that led to generation {generation}"
            return COMMAND.report(f"no rebalance of group {group}{which} is recorded at {cluster.name}")
        terminal = Terminal.standard_output()
        for each in found:
            if shared.as_json:
                write_json(each.value)
            else:
                show_rebalance(terminal, each)
                terminal.line()
        if not shared.as_json:
            terminal.line(terminal.paint(LEGEND, Style.HEADING))
        return 0

    COMMAND.run_with_cluster(shared, work)


@cluster_command(app)
def watch(
    shared: ClusterOptions,
    groups: Annotated[list[str] | None, typer.Argument(metavar="[GROUP]...", help="Ids of groups [all].")] = None,
    count: Annotated[
        int | None, typer.Option("--count", help="End after this number of rebalances [continue until Ctrl-C].", min=1)
    ] = None,
    interval_s: Annotated[float, typer.Option("--interval", help="Seconds between two looks.", min=0.05)] = 0.5,
) -> None:
    """Follow groups live.

    Shows each change of state, and each rebalance with its cause and cost as soon as it is over.
    """
    from ottla.cli.group.watch import JsonWatcher, TextWatcher, follow

    async def work(cluster: Cluster) -> int:
        watcher = JsonWatcher(write_json) if shared.as_json else TextWatcher(Terminal.standard_output())
        return await follow(cluster, list(dict.fromkeys(groups or ())), watcher, interval_s, count, COMMAND.report)

    COMMAND.run_with_cluster(shared, work, until_closed=True)


@cluster_command(app, "reset-offsets")
def reset_offsets(
    shared: ClusterOptions,
    groups: GroupIds,
    topic: Topics = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All partitions that the group has committed offsets of.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record that is kept.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Behind the last record.")] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="To what is committed now, the end where nothing is; to export it.")
    ] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", help="To this offset.", min=0)] = None,
    shift_by: Annotated[int | None, typer.Option("--shift-by", help="Records forward, or back (-100).")] = None,
    to_datetime: Annotated[
        str | None, typer.Option("--to-datetime", help="To the first record of 2026-11-21T09:30:00.000 or later, UTC.")
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option("--by-duration", help="To the first record of so long ago: PT30M, P1DT12H.")
    ] = None,
    from_file: Annotated[
        Path | None, typer.Option("--from-file", help="To the offsets in a CSV file, as --export makes it.")
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="Also of groups that do not exist yet: the offsets make them.")
    ] = False,
    yes: Yes = False,
    export: Annotated[bool, typer.Option("--export", help="Write the new offsets as CSV instead of a table.")] = False,
) -> None:
    """Set the committed offsets of groups.

    The new offsets are shown first.

    Ends with 0, with 1 where nothing was done (members at work, no such group, not confirmed), with 2 where it could
    not be done.
    """
    from ottla.cli.group.reset import ResetOptions, ResetOutput, reset

    options = ResetOptions(
        groups=tuple(dict.fromkeys(groups)),
        topics=tuple(topic or ()),
        all_topics=all_topics,
        flags={"earliest": to_earliest, "latest": to_latest, "current": to_current},
        numbers={"offset": to_offset, "shift": shift_by},
        to_datetime=to_datetime,
        by_duration=by_duration,
        from_file=from_file,
    )
    reset(options, ResetOutput(yes, create, export, shared.as_json), shared)


@cluster_command(app, "delete")
def delete_groups(shared: ClusterOptions, groups: GroupIds, yes: Yes = False) -> None:
    """Delete groups without members, and their offsets.

    The groups and offsets are shown first.

    Ends with 0, with 1 where a group was not deleted (members, no such group, not confirmed); the others are deleted
    all the same.
    """
    from ottla.cli.group.deletion import delete_each

    names = list(dict.fromkeys(groups))
    COMMAND.run_with_cluster(shared, lambda cluster: delete_each(cluster, names, yes=yes, as_json=shared.as_json))


@cluster_command(app, "delete-offsets")
def delete_offsets(
    shared: ClusterOptions,
    group: Annotated[str, typer.Argument(help="The group's id.")],
    topic: Annotated[
        list[str], typer.Option("--topic", "-t", help="A topic (orders), or some partitions of it (orders:0,3).")
    ],
    yes: Yes = False,
) -> None:
    """Delete the offsets of a group for some topics.

    No member may subscribe to them. The offsets are shown first.

    Ends with 0, with 1 where an offset was not deleted; the others are deleted all the same.
    """
    from ottla.cli.group.deletion import delete_committed
    from ottla.cli.group.offset_options import parse_topic
    from ottla.client.errors import InvalidArgumentError

    try:
        scope = [parse_topic(each) for each in topic]
    except InvalidArgumentError as problem:
        COMMAND.fail(str(problem))
    COMMAND.run_with_cluster(
        shared, lambda cluster: delete_committed(cluster, group, scope, yes=yes, as_json=shared.as_json)
    )


def no_evidence(cluster: Cluster) -> str:
    """The message where the evidence topic does not exist."""
    from ottla.groups.evidence import EVIDENCE_TOPIC

    return (
        f"there is no topic {EVIDENCE_TOPIC} at {cluster.name}: ottla makes it with the first rebalance of any group, "
        "unless ottla.rebalance.evidence.enable is false; Apache Kafka keeps no evidence of rebalances"
    )


async def _lags(cluster: Cluster, groups: list[GroupDescription]) -> dict[str, GroupLag]:
    from ottla.ops.group_lag import measure_lag

    turns = asyncio.Semaphore(LAGS_AT_A_TIME)

    async def measure(group: GroupDescription) -> GroupLag:
        assigned = [each for member in group.members for each in member.partitions]
        async with turns:
            return await measure_lag(cluster, group.group_id, assigned)

    found = await asyncio.gather(*map(measure, groups))
    return {group.group_id: lag for group, lag in zip(groups, found, strict=True)}
