"""Tables and JSON of partitions that move."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ottla.cli.terminal import Cell, Column, Style, Terminal
from ottla.client.admin.model import PartitionReassignment
from ottla.client.model import TopicPartition

_MOVES = (
    Column("TOPIC", may_shrink=True),
    Column("PARTITION", is_number=True),
    Column("REPLICAS"),
    Column("ADDING"),
    Column("REMOVING"),
)


def brokers(ids: Iterable[int]) -> str:
    """Ids of brokers with commas between them; "none" for none."""
    return ",".join(map(str, ids)) or "none"


def move_row(partition: TopicPartition, move: PartitionReassignment) -> dict[str, Any]:
    """A move under way, for --json."""
    return {
        "topic": partition.topic,
        "partition": partition.partition,
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
    terminal.table(_MOVES, rows)
