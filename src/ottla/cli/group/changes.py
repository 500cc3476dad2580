"""`ottla group reset-offsets`, `delete`, `delete-offsets`: changes of a group, refused while members are at work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.group import COMMAND
from ottla.cli.options import (
    ClusterOptions,
    Yes,
)

GroupIds = Annotated[list[str], typer.Argument(metavar="GROUP...", help="Ids of groups.")]
Topics = Annotated[
    list[str] | None, typer.Option("--topic", "-t", help="A topic (orders), or some partitions of it (orders:0,3).")
]


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
    shift_by: Annotated[int | None, typer.Option("--shift-by", help="So many records forward, or back (-100).")] = None,
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


def delete_groups(shared: ClusterOptions, groups: GroupIds, yes: Yes = False) -> None:
    """Delete groups without members, and their offsets.

    The groups and offsets are shown first.

    Ends with 0, with 1 where a group was not deleted (members, no such group, not confirmed); the others are deleted
    all the same.
    """
    from ottla.cli.group.deletion import delete_each

    names = list(dict.fromkeys(groups))
    COMMAND.run_with_cluster(shared, lambda cluster: delete_each(cluster, names, yes=yes, as_json=shared.as_json))


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
