"""How groups and committed offsets are deleted: shown, confirmed, then deleted one by one."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from ottla.cli.command import NOT_CONFIRMED, confirmed
from ottla.cli.group import COMMAND
from ottla.cli.group.views import show_deletion
from ottla.cli.terminal import Column, Terminal, count, numbers, printable, write_json
from ottla.client.errors import BrokerError
from ottla.client.group_offsets import CommittedOffset, GroupOffsets
from ottla.client.groups import DEAD, Groups
from ottla.client.model import TopicPartition
from ottla.peer.cluster import Cluster
from ottla.peer.errors import KNOWN_CODES
from ottla.wire.errors import ErrorCode

Scope = Sequence[tuple[str, tuple[int, ...] | None]]

_COMMITTED: tuple[Column[tuple[TopicPartition, CommittedOffset]], ...] = (
    Column("TOPIC", lambda each: each[0].topic, may_shrink=True),
    numbers("PARTITION", lambda each: each[0].partition),
    numbers("COMMITTED", lambda each: each[1].offset),
)


async def delete_each(cluster: Cluster, names: Sequence[str], *, yes: bool, as_json: bool) -> int:
    """Delete those of the groups that can be deleted; returns the exit code."""
    if not yes and not await _confirm_groups(cluster, names, as_json=as_json):
        return COMMAND.report(NOT_CONFIRMED)
    refusals: dict[int, str] = {
        ErrorCode.NON_EMPTY_GROUP: "it has members; stop them first",
        ErrorCode.GROUP_ID_NOT_FOUND: f"there is no such group at {cluster.name}",
    }
    code = 0
    for name in names:
        done = True
        try:
            await Groups(cluster).delete(name)
        except BrokerError as problem:
            if problem.code not in refusals:
                raise
            done, code = False, COMMAND.report(f"group {name} is not deleted: {refusals[problem.code]}")
        if as_json:
            write_json({"group": name, "deleted": done})
        elif done:
            sys.stdout.write(f"deleted {printable(name)}\n")
    return code


async def _confirm_groups(cluster: Cluster, names: Sequence[str], *, as_json: bool) -> bool:
    """Show the groups; whether to continue. Where none of them exists there is nothing to confirm."""
    found = [each for each in await Groups(cluster).describe_each(names) if each.state != DEAD]
    committed = {each.group_id: await GroupOffsets(cluster, each.group_id).fetch_all() for each in found}
    if as_json:
        write_json(*({"group": name, "deleted": False} for name in names))
        return False
    if not found:
        return True
    show_deletion(Terminal.standard_output(), found, {name: len(offsets) for name, offsets in committed.items()})
    return confirmed(f"Delete {count(len(found), 'group')}?", yes=False)


async def delete_committed(cluster: Cluster, group: str, scope: Scope, *, yes: bool, as_json: bool) -> int:
    """Delete the committed offsets of the topics, or partitions of them, in `scope`; returns the exit code."""
    offsets = GroupOffsets(cluster, group)
    found = sorted((await offsets.fetch_all()).items())
    committed = {partition: offset for partition, offset in found if _is_in_scope(partition, scope)}
    if not committed:
        return COMMAND.report(f"group {group} has committed nothing there at {cluster.name}")
    if not yes and not _confirm_offsets(group, committed, as_json=as_json):
        return COMMAND.report(NOT_CONFIRMED)
    code = 0
    for partition, error in (await offsets.delete(list(committed))).items():
        done = error == ErrorCode.NONE
        if not done:
            code = COMMAND.report(f"the offset of {partition} is not deleted: {_refusal(error)}")
        if as_json:
            _write_offset(group, partition, committed[partition], deleted=done)
        elif done:
            sys.stdout.write(f"deleted the offset of {partition} ({committed[partition].offset})\n")
    return code


def _is_in_scope(partition: TopicPartition, scope: Scope) -> bool:
    return any(
        partition.topic == topic and (indexes is None or partition.partition in indexes) for topic, indexes in scope
    )


def _confirm_offsets(group: str, committed: Mapping[TopicPartition, CommittedOffset], *, as_json: bool) -> bool:
    if as_json:
        for partition, offset in committed.items():
            _write_offset(group, partition, offset, deleted=False)
        return False
    Terminal.standard_output().table(_COMMITTED, committed.items())
    return confirmed(f"Delete {count(len(committed), 'committed offset')} of group {group}?", yes=False)


def _write_offset(group: str, partition: TopicPartition, committed: CommittedOffset, *, deleted: bool) -> None:
    write_json({"group": group, **partition._asdict(), "committed_offset": committed.offset, "deleted": deleted})


def _refusal(error: int) -> str:
    if error == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
        return "members of the group subscribe to that topic; stop them first"
    known = KNOWN_CODES.get(error)
    return f"error code {error}" if known is None else f"{known.message} ({known.name})"
