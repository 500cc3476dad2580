"""Tables and JSON of partitions that move."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ottla.cli.terminal import Cell, Column, Row, Style, Terminal, count, data_size
from ottla.client.admin.model import PartitionReassignment
from ottla.client.model import TopicPartition
from ottla.ops.cluster_status import ClusterStatus
from ottla.ops.moves.moving import DirectoryMove, MoveStanding, MoveState, Standing

_PARTITION = (Column("TOPIC", may_shrink=True), Column("PARTITION", is_number=True))
_UNDER_WAY = (*_PARTITION, Column("REPLICAS"), Column("ADDING"), Column("REMOVING"))
_WANTED = (*_PARTITION, Column("NOW"), Column("NEW"), Column("TO COPY", is_number=True))
_STANDINGS = (*_PARTITION, Column("REPLICAS"), Column("WANTED"), Column("STATE"))
_DIRECTORIES = (
    *_PARTITION,
    Column("BROKER", is_number=True),
    Column("DIRECTORY", may_shrink=True),
    Column("WANTED", may_shrink=True),
    Column("STATE"),
)
_STYLES = {
    MoveState.DONE: Style.GOOD,
    MoveState.MOVING: Style.BUSY,
    MoveState.NOT_MOVED: Style.BAD,
    MoveState.GONE: Style.BAD,
}


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
    rows = [
        (
            partition.topic,
            str(partition.partition),
            brokers(move.replicas),
            Cell(brokers(move.adding_replicas), Style.BUSY),
            Cell(brokers(move.removing_replicas), Style.FAINT),
        )
        for partition, move in sorted(moves.items())
    ]
    terminal.table(_UNDER_WAY, rows)


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
    rows = []
    for each in standing.moves:
        size = copied[each.partition]
        rows.append(
            (
                each.partition.topic,
                str(each.partition.partition),
                brokers(each.replicas),
                Cell(brokers(each.wanted), Style.FAINT if each.state is MoveState.DONE else Style.NAME),
                "?" if size is None else data_size(size) if size else "-",
            )
        )
    terminal.table(_WANTED, rows)
    known = sum(size for size in copied.values() if size is not None)
    terminal.line(f"{count(len(standing.moves), 'partition')}, {data_size(known)} to copy")


def show_standing(terminal: Terminal, standing: Standing) -> None:
    """How the moves stand."""
    rows: list[Row] = [
        (
            each.partition.topic,
            str(each.partition.partition),
            brokers(each.replicas),
            brokers(each.wanted),
            Cell(each.state, _STYLES[each.state]),
        )
        for each in standing.moves
    ]
    terminal.table(_STANDINGS, rows)
    if standing.replicas:
        terminal.line()
        terminal.table(_DIRECTORIES, [_directory_cells(each) for each in standing.replicas])


def _directory_cells(each: DirectoryMove) -> Row:
    return (
        each.partition.topic,
        str(each.partition.partition),
        str(each.broker),
        each.log_dir or "none",
        each.wanted_log_dir,
        Cell(each.state, _STYLES[each.state]),
    )


def unasked(status: ClusterStatus) -> Sequence[str]:
    """Report brokers that did not answer."""
    return [f"broker {each.node.node_id} did not answer: {each.problem}" for each in status.brokers if each.problem]
