"""`ottla group reset-offsets`, `delete`, `delete-offsets`: what changes a group, refused while members are at work."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.ending import refuse
from ottla.cli.group_session import (
    COMMAND,
    DEFAULT_SERVERS,
    DEFAULT_TIMEOUT_S,
    Json,
    Servers,
    Timeout,
    run,
    told,
    write_json,
)
from ottla.cli.terminal import printable

if TYPE_CHECKING:
    from ottla.peer.cluster import Cluster

GroupIds = Annotated[list[str], typer.Argument(metavar="GROUP...", help="Ids of groups.")]
Topics = Annotated[
    list[str] | None, typer.Option("--topic", "-t", help="A topic (orders), or some partitions of it (orders:0,3).")
]


def reset_offsets(
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
    execute: Annotated[bool, typer.Option("--execute", help="Do it, instead of showing what would be done.")] = False,
    export: Annotated[bool, typer.Option("--export", help="Write the new offsets as CSV instead of a table.")] = False,
    servers: Servers = DEFAULT_SERVERS,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    as_json: Json = False,
) -> None:
    """Set the committed offsets of groups; without --execute nothing is changed and the new offsets are only shown.

    Ends with 0, with 1 where a group has members at work and nothing was done, with 2 where it could not be done.
    """
    from ottla.cli.group_reset import ResetOutput, ResetWish, reset

    wish = ResetWish(
        groups=tuple(dict.fromkeys(groups)),
        topics=tuple(topic or ()),
        all_topics=all_topics,
        flags={"earliest": to_earliest, "latest": to_latest, "current": to_current},
        numbers={"offset": to_offset, "shift": shift_by},
        to_datetime=to_datetime,
        by_duration=by_duration,
        from_file=from_file,
    )
    reset(wish, ResetOutput(execute, export, as_json), servers, timeout_s)


def delete_groups(
    groups: GroupIds,
    servers: Servers = DEFAULT_SERVERS,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    as_json: Json = False,
) -> None:
    """Delete groups that have no members, and all that they have committed.

    Ends with 0, with 1 where one could not be deleted (members, or no such group); the others are deleted all the same.
    """
    from ottla.client.errors import BrokerError
    from ottla.client.groups import Groups
    from ottla.wire.errors import ErrorCode

    async def work(cluster: Cluster) -> int:
        refusals: dict[int, str] = {
            ErrorCode.NON_EMPTY_GROUP: "it has members; stop them first",
            ErrorCode.GROUP_ID_NOT_FOUND: f"there is no such group at {cluster.name}",
        }
        code = 0
        for group in dict.fromkeys(groups):
            done = True
            try:
                await Groups(cluster).delete(group)
            except BrokerError as problem:
                if problem.code not in refusals:
                    raise
                done, code = False, told(f"group {group} is not deleted: {refusals[problem.code]}")
            if as_json:
                write_json({"group": group, "deleted": done})
            elif done:
                sys.stdout.write(f"deleted {printable(group)}\n")
        return code

    run(servers, timeout_s, work)


def delete_offsets(
    group: Annotated[str, typer.Argument(help="The group's id.")],
    topic: Annotated[
        list[str], typer.Option("--topic", "-t", help="A topic (orders), or some partitions of it (orders:0,3).")
    ],
    servers: Servers = DEFAULT_SERVERS,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    as_json: Json = False,
) -> None:
    """Forget what a group has committed for topics that none of its members subscribes to.

    Ends with 0, with 1 where an offset was not deleted; the others are deleted all the same.
    """
    from ottla.cli.group_offset_options import parse_topic
    from ottla.client.errors import InvalidArgumentError
    from ottla.client.group_offsets import GroupOffsets
    from ottla.wire.errors import ErrorCode

    try:
        scope = [parse_topic(each) for each in topic]
    except InvalidArgumentError as problem:
        refuse(COMMAND, str(problem))

    async def work(cluster: Cluster) -> int:
        offsets = GroupOffsets(cluster, group)
        committed = await offsets.fetch_all()
        wanted = [
            each
            for each in sorted(committed)
            if any(each.topic == name and (indexes is None or each.partition in indexes) for name, indexes in scope)
        ]
        if not wanted:
            return told(f"group {group} has committed nothing there at {cluster.name}")
        code = 0
        for partition, error in (await offsets.delete(wanted)).items():
            done = error == ErrorCode.NONE
            if not done:
                code = told(f"the offset of {partition} is not deleted: {_offset_refusal(error)}")
            if as_json:
                offset = committed[partition].offset
                write_json({"group": group, **partition._asdict(), "committed_offset": offset, "deleted": done})
            elif done:
                sys.stdout.write(f"deleted the offset of {partition} ({committed[partition].offset})\n")
        return code

    run(servers, timeout_s, work)


def _offset_refusal(error: int) -> str:
    from ottla.peer.errors import KNOWN_CODES
    from ottla.wire.errors import ErrorCode

    if error == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
        return "members of the group subscribe to that topic; stop them first"
    known = KNOWN_CODES.get(error)
    return f"error code {error}" if known is None else f"{known.message} ({known.name})"
