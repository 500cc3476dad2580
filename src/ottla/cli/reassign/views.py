"""Tables and JSON of partitions that move."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ottla.cli.terminal import PARTITION, TOPIC, Cell, Column, Style, Terminal, count, data_size, numbers
from ottla.client.admin.model import PartitionReassignment
from ottla.client.model import TopicPartition
from ottla.ops.moves.moving import DirectoryMove, MoveStanding, MoveState, Standing

_STYLES = {
    MoveState.DONE: Style.GOOD,
    MoveState.MOVING: Style.BUSY,
    MoveState.NOT_MOVED: Style.BAD,
    MoveState.GONE: Style.BAD,
}
_UNDER_WAY: tuple[Column[tuple[TopicPartition, PartitionReassignment]], ...] = (
    Column("TOPIC", lambda each: each[0].topic, may_shrink=True),
    numbers("PARTITION", lambda each: each[0].partition),
    Column("REPLICAS", lambda each: brokers(each[1].replicas)),
    Column("ADDING", lambda each: Cell(brokers(each[1].adding_replicas), Style.BUSY)),
    Column("REMOVING", lambda each: Cell(brokers(each[1].removing_replicas), Style.FAINT)),
)
_STANDINGS: tuple[Column[MoveStanding], ...] = (
    TOPIC,
    PARTITION,
    Column("REPLICAS", lambda each: brokers(each.replicas)),
    Column("WANTED", lambda each: brokers(each.wanted)),
    Column("STATE", lambda each: Cell(each.state, _STYLES[each.state])),
)
_DIRECTORIES: tuple[Column[DirectoryMove], ...] = (
    TOPIC,
    PARTITION,
    numbers("BROKER", lambda each: each.broker),
    Column("DIRECTORY", lambda each: each.log_dir or "none", may_shrink=True),
    Column("WANTED", lambda each: each.wanted_log_dir, may_shrink=True),
    Column("STATE", lambda each: Cell(each.state, _STYLES[each.state])),
)


def brokers(ids: Iterable[int]) -> str:
    """Ids of brokers with commas between them; "none" for none."""
    return ",".join(map(str, ids)) or "none"


def under_way_row(partition: TopicPartition, move: PartitionReassignment) -> dict[str, Any]:
    """A move under way, for --json."""
    return {
        **partition._asdict(),
        "replicas": list(move.replicas),
        "adding": list(move.adding_replicas),
        "removing": list(move.removing_replicas),
    }


def show_moves(terminal: Terminal, moves: Mapping[TopicPartition, PartitionReassignment]) -> None:
    """The moves under way."""
    if not moves:
        terminal.line("no partition moves")
        return
    terminal.table(_UNDER_WAY, sorted(moves.items()))


def to_copy(standing: Standing) -> dict[TopicPartition, int | None]:
    """Bytes that each move copies: the size of the leader's log for each replica that is added; None if unknown."""
    sizes = {each.partition: each.size_bytes for each in standing.status.partitions}
    found: dict[TopicPartition, int | None] = {}
    for each in standing.moves:
        added, size = set(each.wanted) - set(each.replicas), sizes.get(each.partition)
        found[each.partition] = None if size is None and added else len(added) * (size or 0)
    return found


def wanted_row(each: MoveStanding, copied: int | None, *, begun: bool) -> dict[str, Any]:
    """A move to be carried out, for --json."""
    return {
        **each.partition._asdict(),
        "now": list(each.replicas),
        "new": list(each.wanted),
        "to_copy_bytes": copied,
        "begun": begun,
    }


def show_wanted(terminal: Terminal, standing: Standing) -> None:
    """The moves to be carried out, and how much they copy."""
    copied = to_copy(standing)
    columns: tuple[Column[MoveStanding], ...] = (
        TOPIC,
        PARTITION,
        Column("NOW", lambda each: brokers(each.replicas)),
        Column("NEW", lambda each: Cell(brokers(each.wanted), _wanted_style(each))),
        numbers("TO COPY", lambda each: _size(copied[each.partition])),
    )
    terminal.table(columns, standing.moves)
    known = sum(size for size in copied.values() if size is not None)
    terminal.line(f"{count(len(standing.moves), 'partition')}, {data_size(known)} to copy")


def show_standing(terminal: Terminal, standing: Standing) -> None:
    """How the moves stand."""
    terminal.table(_STANDINGS, standing.moves)
    if standing.replicas:
        terminal.line()
        terminal.table(_DIRECTORIES, standing.replicas)


def _wanted_style(each: MoveStanding) -> Style:
    return Style.FAINT if each.state is MoveState.DONE else Style.NAME


def _size(size_bytes: int | None) -> str | None:
    return "?" if size_bytes is None else data_size(size_bytes) if size_bytes else None
