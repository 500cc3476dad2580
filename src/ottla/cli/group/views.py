"""How groups are shown: as tables, and as JSON objects, one a line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.cli.terminal import Cell, Column, Row, Style, Terminal, count, duration, printable
from ottla.client.groups import EMPTY, GroupDescription, GroupMember
from ottla.client.model import TopicPartition
from ottla.ops.group_lag import GroupLag, PartitionLag
from ottla.ops.offset_reset import PlannedOffset

STABLE = "Stable"
ID_DIGITS_SHOWN = 6

_LIST = (
    Column("GROUP", may_shrink=True),
    Column("STATE"),
    Column("MEMBERS", is_number=True),
    Column("ASSIGNOR", may_shrink=True),
    Column("TYPE"),
    Column("LAG", is_number=True),
    Column("BEHIND", is_number=True),
    Column("COORDINATOR", is_number=True),
)
_MEMBERS = (
    Column("MEMBER", may_shrink=True),
    Column("STATIC ID", may_shrink=True),
    Column("HOST", may_shrink=True),
    Column("PARTITIONS", is_number=True),
    Column("LAG", is_number=True),
    Column("SUBSCRIBED TO", may_shrink=True),
)
_PARTITIONS = (
    Column("TOPIC", may_shrink=True),
    Column("PARTITION", is_number=True),
    Column("COMMITTED", is_number=True),
    Column("END", is_number=True),
    Column("LAG", is_number=True),
    Column("BEHIND", is_number=True),
    Column("MEMBER", may_shrink=True),
    Column("NOTE"),
)
_PLAN = (
    Column("TOPIC", may_shrink=True),
    Column("PARTITION", is_number=True),
    Column("COMMITTED", is_number=True),
    Column("NEW", is_number=True),
    Column("CHANGE", is_number=True),
    Column("LAG THEN", is_number=True),
    Column("NOTE"),
)


_DELETION = (
    Column("GROUP", may_shrink=True),
    Column("STATE"),
    Column("MEMBERS", is_number=True),
    Column("COMMITTED OFFSETS", is_number=True),
)
_COMMITTED = (
    Column("TOPIC", may_shrink=True),
    Column("PARTITION", is_number=True),
    Column("COMMITTED", is_number=True),
)


def member_names(members: Sequence[GroupMember]) -> dict[str, str]:
    """Short names by member id: static id or client id, with the end of the member id where several share it."""
    given = {each.member_id: each.group_instance_id or each.client_id or each.member_id for each in members}
    shared = {name for name, times in Counter(given.values()).items() if times > 1}
    return {
        member_id: f"{name}·{member_id[-ID_DIGITS_SHOWN:]}" if name in shared else name
        for member_id, name in given.items()
    }


def state_style(state: str) -> Style:
    """Green for a stable group, faint for an empty one, yellow for others."""
    return {STABLE: Style.GOOD, EMPTY: Style.FAINT}.get(state, Style.BUSY)


def show_list(terminal: Terminal, groups: Sequence[GroupDescription], lags: dict[str, GroupLag]) -> None:
    """One line for each group."""
    rows: list[Row] = []
    for group in groups:
        lag = lags.get(group.group_id)
        rows.append(
            (
                Cell(group.group_id, Style.NAME),
                Cell(group.state, state_style(group.state)),
                str(len(group.members)),
                group.assignor or "-",
                group.protocol_type or "-",
                "-" if lag is None else str(lag.lag),
                "-" if lag is None else duration(lag.lag_ms),
                str(group.coordinator.node_id),
            )
        )
    if rows:
        terminal.table(_LIST, rows, indent="")
    else:
        terminal.line("no groups")


def list_row(group: GroupDescription, lag: GroupLag | None) -> dict[str, Any]:
    """A group as an object, without its members."""
    row = {**_group_row(group), "member_count": len(group.members)}
    return row if lag is None else row | {"lag": lag.lag, "lag_ms": lag.lag_ms}


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
    lag_of = {each.partition: each for each in lag.partitions}
    if group.members:
        terminal.line()
        terminal.table(_MEMBERS, [_member_cells(each, names, lag_of) for each in _sorted(group.members, names)])
    if lag.partitions:
        owners = {each: names[member.member_id] for member in group.members for each in member.partitions}
        terminal.line()
        terminal.table(_PARTITIONS, [_partition_cells(each, owners) for each in lag.partitions])
    elif not group.members:
        terminal.line("  nothing is committed")


def _sorted(members: Sequence[GroupMember], names: dict[str, str]) -> list[GroupMember]:
    return sorted(members, key=lambda member: (names[member.member_id], member.member_id))


def _member_cells(
    member: GroupMember, names: dict[str, str], lag_of: dict[TopicPartition, PartitionLag]
) -> tuple[str, ...]:
    lags = [lag_of[each].lag for each in member.partitions if each in lag_of]
    known = [each for each in lags if each is not None]
    return (
        names[member.member_id],
        member.group_instance_id or "-",
        member.client_host,
        str(len(member.partitions)),
        str(sum(known)) if known else "-",
        " ".join(member.subscribed_topics) or "-",
    )


def _partition_cells(each: PartitionLag, owners: dict[TopicPartition, str]) -> Row:
    return (
        each.partition.topic,
        str(each.partition.partition),
        _number(each.committed_offset),
        _number(each.log_end_offset),
        Cell(_number(each.lag), Style.BUSY if each.lag else Style.PLAIN),
        Cell(duration(each.lag_ms), Style.BUSY if each.lag else Style.PLAIN),
        owners.get(each.partition, "-"),
        Cell(_note(each), Style.BAD),
    )


def _note(each: PartitionLag) -> str:
    if each.log_end_offset is None:
        return "no such partition, or no leader"
    if each.is_beyond_end:
        return "committed beyond the end"
    return f"{count(each.missed, 'record')} deleted unread" if each.missed else ""


def _signed(value: int | None) -> str:
    return f"{value:+}" if value else _number(value)


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


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
        "lag": lag.lag,
        "lag_ms": lag.lag_ms,
        "committed_at_ms": lag.committed_at_ms,
        "ended_at_ms": lag.ended_at_ms,
        "members": [_member_row(each) for each in group.members],
        "partitions": [_partition_row(each, owners.get(each.partition)) for each in lag.partitions],
    }


def _member_row(member: GroupMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topics": list(member.subscribed_topics),
        "partitions": [each._asdict() for each in member.partitions],
    }


def _partition_row(each: PartitionLag, owner: GroupMember | None) -> dict[str, Any]:
    return {
        **each.partition._asdict(),
        "committed_offset": each.committed_offset,
        "metadata": each.metadata,
        "log_start_offset": each.log_start_offset,
        "log_end_offset": each.log_end_offset,
        "lag": each.lag,
        "lag_ms": each.lag_ms,
        "first_unread_timestamp_ms": each.first_unread_timestamp_ms,
        "deleted_unread": each.missed,
        "beyond_end": each.is_beyond_end,
        "member_id": None if owner is None else owner.member_id,
        "client_id": None if owner is None else owner.client_id,
        "client_host": None if owner is None else owner.client_host,
    }


def show_plan(terminal: Terminal, group: str, plan: Sequence[PlannedOffset]) -> None:
    """Show the new offsets of a group."""
    left = count(sum(each.lag for each in plan), "record")
    terminal.line(f"{terminal.paint(printable(group), Style.NAME)}  {left} to read then")
    rows: list[Row] = []
    for each in plan:
        change = None if each.current_offset is None else each.new_offset - each.current_offset
        rows.append(
            (
                each.partition.topic,
                str(each.partition.partition),
                _number(each.current_offset),
                Cell(str(each.new_offset), Style.NAME),
                Cell(_signed(change), Style.BUSY if change else Style.PLAIN),
                str(each.lag),
                Cell(each.note, Style.BAD),
            )
        )
    terminal.table(_PLAN, rows)
    terminal.line()


def show_deletion(terminal: Terminal, groups: Sequence[GroupDescription], offsets: Mapping[str, int]) -> None:
    """The groups that would be deleted; `offsets` is how many each has committed."""
    rows: list[Row] = [
        (
            Cell(group.group_id, Style.NAME),
            Cell(group.state, state_style(group.state)),
            str(len(group.members)),
            str(offsets[group.group_id]),
        )
        for group in groups
    ]
    terminal.table(_DELETION, rows)


def show_committed(terminal: Terminal, offsets: Mapping[TopicPartition, int]) -> None:
    """The committed offsets that would be deleted."""
    rows: list[Row] = [(each.topic, str(each.partition), str(offset)) for each, offset in offsets.items()]
    terminal.table(_COMMITTED, rows)


def planned_row(group: str, each: PlannedOffset, executed: bool) -> dict[str, Any]:
    """One partition of a plan as an object."""
    return {
        "group": group,
        **each.partition._asdict(),
        "current_offset": each.current_offset,
        "new_offset": each.new_offset,
        "log_start_offset": each.log_start_offset,
        "log_end_offset": each.log_end_offset,
        "lag": each.lag,
        "executed": executed,
        "note": each.note or None,
    }
