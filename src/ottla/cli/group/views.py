"""How groups are shown: as tables, and as JSON objects, one a line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.cli.terminal import (
    PARTITION,
    TOPIC,
    Cell,
    Column,
    Style,
    Terminal,
    attributes,
    count,
    duration,
    numbers,
    printable,
)
from ottla.client.groups import EMPTY, GroupDescription, GroupMember
from ottla.ops.group_lag import GroupLag, PartitionLag
from ottla.ops.offset_reset import PlannedOffset

STABLE = "Stable"
ID_DIGITS_SHOWN = 6


class GroupWithLag(NamedTuple):
    """A group with its lag, None where that was not measured."""

    group: GroupDescription
    lag: GroupLag | None = None


_NAME_AND_STATE: tuple[Column[GroupWithLag], ...] = (
    Column("GROUP", lambda each: Cell(each.group.group_id, Style.NAME), may_shrink=True),
    Column("STATE", lambda each: Cell(each.group.state, state_style(each.group.state))),
    numbers("MEMBERS", lambda each: len(each.group.members)),
)
_LIST: tuple[Column[GroupWithLag], ...] = (
    *_NAME_AND_STATE,
    Column("ASSIGNOR", lambda each: each.group.assignor or None, may_shrink=True),
    Column("TYPE", lambda each: each.group.protocol_type or None),
    numbers("LAG", lambda each: None if each.lag is None else each.lag.lag),
    numbers("BEHIND", lambda each: None if each.lag is None else duration(each.lag.lag_ms)),
    numbers("COORDINATOR", lambda each: each.group.coordinator.node_id),
)
_PLAN: tuple[Column[PlannedOffset], ...] = (
    TOPIC,
    PARTITION,
    numbers("COMMITTED", lambda each: each.current_offset),
    numbers("NEW", lambda each: Cell(str(each.new_offset), Style.NAME)),
    numbers("CHANGE", lambda each: _change(each)),
    numbers("LAG THEN", lambda each: each.lag),
    Column("NOTE", lambda each: Cell(each.note, Style.BAD)),
)


def member_names(members: Sequence[GroupMember]) -> dict[str, str]:
    """Short names by member id: static id or client id, with the end of the member id where several share it."""
    return distinct_names(
        {each.member_id: each.group_instance_id or each.client_id or each.member_id for each in members}
    )


def distinct_names(names: Mapping[str, str], static: Collection[str] = ()) -> dict[str, str]:
    """The names by member id, with the end of that id where several share one, but for `static` members."""
    times = Counter(names.values())
    return {
        member_id: name if times[name] == 1 or member_id in static else f"{name}·{member_id[-ID_DIGITS_SHOWN:]}"
        for member_id, name in names.items()
    }


def state_style(state: str) -> Style:
    """Green for a stable group, faint for an empty one, yellow for others."""
    return {STABLE: Style.GOOD, EMPTY: Style.FAINT}.get(state, Style.BUSY)


def show_list(terminal: Terminal, groups: Sequence[GroupWithLag]) -> None:
    """One line for each group."""
    if groups:
        terminal.table(_LIST, groups, indent="")
    else:
        terminal.line("no groups")


def list_row(listed: GroupWithLag) -> dict[str, Any]:
    """A group as an object, without its members."""
    group, lag = listed
    row = {**_group_row(group), "member_count": len(group.members)}
    return row if lag is None else row | attributes(lag, "lag", "lag_ms")


def show_description(terminal: Terminal, group: GroupDescription, lag: GroupLag) -> None:
    """A group, its members and its partitions."""
    facts = [terminal.paint(group.state, state_style(group.state)), count(len(group.members), "member")]
    facts += [printable(group.assignor)] if group.assignor else []
    facts += [f"coordinated by {group.coordinator}"]
    terminal.line(f"{terminal.paint(printable(group.group_id), Style.NAME)}  {' · '.join(facts)}")
    known = [each for each in lag.partitions if each.lag is not None]
    if known:
        behind = f", {duration(lag.lag_ms)} behind" if lag.lag and lag.lag_ms is not None else ""
        without = sum(each.committed_offset is None for each in lag.partitions)
        rest = f"; nothing is committed in {without:,} more" if without else ""
        terminal.line(f"  lag {count(lag.lag, 'record')} in {count(len(known), 'partition')}{behind}{rest}")
    names = member_names(group.members)
    if group.members:
        terminal.line()
        members = sorted(group.members, key=lambda member: (names[member.member_id], member.member_id))
        terminal.table(_member_columns(names, lag.partitions), members)
    if lag.partitions:
        terminal.line()
        terminal.table(_partition_columns(names, group.members), lag.partitions)
    elif not group.members:
        terminal.line("  nothing is committed")


def _member_columns(names: Mapping[str, str], partitions: Sequence[PartitionLag]) -> Sequence[Column[GroupMember]]:
    lags = {each.partition: each.lag for each in partitions if each.lag is not None}

    def lag(member: GroupMember) -> int | None:
        known = [lags[each] for each in member.partitions if each in lags]
        return sum(known) if known else None

    return (
        Column("MEMBER", lambda each: names[each.member_id], may_shrink=True),
        Column("STATIC ID", lambda each: each.group_instance_id or None, may_shrink=True),
        Column("HOST", lambda each: each.client_host, may_shrink=True),
        numbers("PARTITIONS", lambda each: len(each.partitions)),
        numbers("LAG", lag),
        Column("SUBSCRIBED TO", lambda each: " ".join(each.subscribed_topics) or None, may_shrink=True),
    )


def _partition_columns(names: Mapping[str, str], members: Sequence[GroupMember]) -> Sequence[Column[PartitionLag]]:
    owners = {each: names[member.member_id] for member in members for each in member.partitions}
    return (
        TOPIC,
        PARTITION,
        numbers("COMMITTED", lambda each: each.committed_offset),
        numbers("END", lambda each: each.log_end_offset),
        numbers("LAG", lambda each: _lagging(each, "-" if each.lag is None else str(each.lag))),
        numbers("BEHIND", lambda each: _lagging(each, duration(each.lag_ms))),
        Column("MEMBER", lambda each: owners.get(each.partition), may_shrink=True),
        Column("NOTE", lambda each: Cell(_note(each), Style.BAD)),
    )


def _lagging(each: PartitionLag, text: str) -> Cell:
    return Cell(text, Style.BUSY if each.lag else Style.PLAIN)


def _note(each: PartitionLag) -> str:
    if each.log_end_offset is None:
        return "no such partition, or no leader"
    if each.is_beyond_end:
        return "committed beyond the end"
    return f"{count(each.missed, 'record')} deleted unread" if each.missed else ""


def _change(each: PlannedOffset) -> str | int | Cell | None:
    change = None if each.current_offset is None else each.new_offset - each.current_offset
    return Cell(f"{change:+}", Style.BUSY) if change else change


def _group_row(group: GroupDescription) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "state": group.state,
        "type": group.group_type,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor or None,
        "coordinator": group.coordinator._asdict(),
    }


def description_row(group: GroupDescription, lag: GroupLag) -> dict[str, Any]:
    """All of it as one object."""
    owners = {each: member for member in group.members for each in member.partitions}
    return {
        **_group_row(group),
        **attributes(lag, "lag", "lag_ms", "committed_at_ms", "ended_at_ms"),
        "members": [_member_row(each) for each in group.members],
        "partitions": [_partition_row(each, owners.get(each.partition)) for each in lag.partitions],
    }


def _member_row(member: GroupMember) -> dict[str, Any]:
    return {
        **attributes(member, "member_id", "group_instance_id", "client_id", "client_host"),
        "subscribed_topics": list(member.subscribed_topics),
        "partitions": [each._asdict() for each in member.partitions],
    }


def _partition_row(each: PartitionLag, owner: GroupMember | None) -> dict[str, Any]:
    return {
        **each.partition._asdict(),
        **attributes(each, "committed_offset", "metadata", "log_start_offset", "log_end_offset", "lag", "lag_ms"),
        "first_unread_timestamp_ms": each.first_unread_timestamp_ms,
        "deleted_unread": each.missed,
        "beyond_end": each.is_beyond_end,
        **{name: getattr(owner, name, None) for name in ("member_id", "client_id", "client_host")},
    }


def show_plan(terminal: Terminal, group: str, plan: Sequence[PlannedOffset]) -> None:
    """Show the new offsets of a group."""
    left = count(sum(each.lag for each in plan), "record")
    terminal.line(f"{terminal.paint(printable(group), Style.NAME)}  {left} to read then")
    terminal.table(_PLAN, plan)
    terminal.line()


def show_deletion(terminal: Terminal, groups: Sequence[GroupDescription], offsets: Mapping[str, int]) -> None:
    """The groups that would be deleted; `offsets` is the number that each has committed."""
    committed: Column[GroupWithLag] = numbers("COMMITTED OFFSETS", lambda each: offsets[each.group.group_id])
    terminal.table((*_NAME_AND_STATE, committed), map(GroupWithLag, groups))


def planned_row(group: str, each: PlannedOffset, executed: bool) -> dict[str, Any]:
    """One partition of a plan as an object."""
    return {
        "group": group,
        **each.partition._asdict(),
        **attributes(each, "current_offset", "new_offset", "log_start_offset", "log_end_offset", "lag"),
        "executed": executed,
        "note": each.note or None,
    }
