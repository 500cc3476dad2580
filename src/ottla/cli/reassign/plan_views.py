"""How a plan is shown: what moves, each batch, and each broker before and after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.cli.reassign.views import brokers
from ottla.cli.terminal import Cell, Column, Row, Style, Terminal, count, data_size, duration
from ottla.ops.planning.batches import Traffic, seconds_at, traffic
from ottla.ops.planning.model import BrokerLoad, PartitionMove, PlannedBroker, ReassignmentPlan

#: Moves and batches that a table shows; --json has all.
SHOWN = 20
_MOVES = (
    Column("TOPIC", may_shrink=True),
    Column("PARTITION", is_number=True),
    Column("FROM"),
    Column("TO"),
    Column("SIZE", is_number=True),
    Column("TIME", is_number=True),
    Column("REPLICAS THEN"),
)
_BATCHES = (
    Column("BATCH", is_number=True),
    Column("PARTITIONS", is_number=True),
    Column("COPIED", is_number=True),
    Column("TIME", is_number=True),
)
_BROKERS = (
    Column("BROKER", is_number=True),
    Column("RACK"),
    Column("SIZE", is_number=True),
    Column("THEN", is_number=True),
    Column("REPLICAS", is_number=True),
    Column("THEN", is_number=True),
    Column("LEADERS", is_number=True),
    Column("THEN", is_number=True),
    Column("SENDS", is_number=True),
    Column("GETS", is_number=True),
    Column("NOTE"),
)


@dataclass(frozen=True, slots=True)
class ShownPlan:
    """A plan with its brokers and batches; `throttle` in bytes per second and broker, None if there is none."""

    made: ReassignmentPlan
    brokers: Mapping[int, PlannedBroker]
    batches: Sequence[Sequence[PartitionMove]]
    throttle: int | None

    def time_ms(self, moves: Sequence[PartitionMove]) -> float | None:
        """How long they take at once; None without a throttle."""
        return None if self.throttle is None else seconds_at(moves, self.throttle) * 1000

    @property
    def whole_ms(self) -> float | None:
        """How long all batches take, one after the other."""
        return None if self.throttle is None else sum(self.time_ms(each) or 0 for each in self.batches)

    @property
    def moving(self) -> list[PartitionMove]:
        """Moves that are shown first: those that copy most."""
        return sorted(self.made.moves, key=lambda each: (-each.moved_bytes, each.topic, each.partition))


def show_plan(terminal: Terminal, shown: ShownPlan) -> None:
    """The moves, the batches, and the brokers."""
    made = shown.made
    if not made.moves:
        terminal.line("nothing has to be moved")
        terminal.line()
    else:
        terminal.line(_summary(shown))
        terminal.line()
        terminal.table(_MOVES, [_move_cells(shown, each) for each in shown.moving[:SHOWN]])
        _show_more(terminal, len(made.moves) - SHOWN)
        terminal.line()
    if len(shown.batches) > 1:
        rows: list[Row] = [
            (str(number), str(len(each)), data_size(_copied(each)), duration(shown.time_ms(each)))
            for number, each in enumerate(shown.batches, 1)
        ]
        terminal.table(_BATCHES, rows[:SHOWN])
        _show_more(terminal, len(rows) - SHOWN)
        terminal.line()
    terminal.table(_BROKERS, [_broker_cells(shown, each, traffic(made.moves)) for each in made.before])


def _show_more(terminal: Terminal, more: int) -> None:
    if more > 0:
        terminal.line(f"  … and {more:,} more")


def _summary(shown: ShownPlan) -> str:
    made = shown.made
    copied = [each for each in made.moves if each.added]
    dropped = [each for each in made.moves if not each.added and each.removed]
    ordered = len(made.moves) - len(copied) - len(dropped)
    facts = [f"{count(len(copied), 'partition')} copied, {data_size(made.moved_bytes)}"] if copied else []
    facts += [f"{count(len(dropped), 'partition')} with fewer replicas"] if dropped else []
    facts += [f"{count(ordered, 'partition')} with another preferred leader only"] if ordered else []
    whole = shown.whole_ms
    facts += [f"{duration(whole)} at {data_size(shown.throttle or 0)} a second"] if whole is not None and copied else []
    if made.crowded_before:
        facts.append(
            f"{count(made.crowded_before, 'partition')} could be spread over more racks, then {made.crowded_after:,}"
        )
    return " · ".join(facts)


def _copied(moves: Sequence[PartitionMove]) -> int:
    return sum(each.moved_bytes for each in moves)


def _move_cells(shown: ShownPlan, each: PartitionMove) -> Row:
    return (
        each.topic,
        str(each.partition),
        "-" if not each.removed else brokers(each.removed),
        "-" if not each.added else brokers(each.added),
        data_size(each.moved_bytes) if each.added else "-",
        duration(shown.time_ms([each])) if each.added else "-",
        brokers(each.after),
    )


def _broker_cells(shown: ShownPlan, broker: int, busy: Mapping[int, Traffic]) -> Row:
    before, then = shown.made.before[broker], shown.made.after[broker]
    known, moved = shown.brokers.get(broker), busy.get(broker, Traffic())
    return (
        Cell(str(broker), Style.NAME),
        "-" if known is None or known.rack is None else known.rack,
        data_size(before.size_bytes),
        data_size(then.size_bytes),
        str(before.replicas),
        str(then.replicas),
        str(before.leaders),
        str(then.leaders),
        data_size(moved.sent) if moved.sent else "-",
        data_size(moved.received) if moved.received else "-",
        _note(shown, broker),
    )


def _note(shown: ShownPlan, broker: int) -> Cell:
    if broker not in shown.brokers:
        return Cell("not there", Style.BAD)
    if broker not in shown.made.brokers:
        return Cell("empty then" if not shown.made.after[broker].replicas else "not empty", Style.BUSY)
    return Cell("")


def plan_rows(shown: ShownPlan) -> Iterator[dict[str, Any]]:
    """The plan, its moves by batch, and the brokers, as objects with their `kind`."""
    made = shown.made
    whole = shown.whole_ms
    yield {
        "kind": "plan",
        "moves": len(made.moves),
        "batches": len(shown.batches),
        "moved_bytes": made.moved_bytes,
        "seconds": None if whole is None else whole / 1000,
        "crowded_partitions_before": made.crowded_before,
        "crowded_partitions_after": made.crowded_after,
        "left": [
            {"topic": topic, "partition": partition, "reason": why.value}
            for (topic, partition), why in made.left.items()
        ],
    }
    for number, moves in enumerate(shown.batches, 1):
        for each in moves:
            yield {
                "kind": "move",
                "batch": number,
                "topic": each.topic,
                "partition": each.partition,
                "replicas": list(each.before),
                "replicas_after": list(each.after),
                "adding": list(each.added),
                "removing": list(each.removed),
                "source": each.source,
                "size_bytes": each.size_bytes,
                "moved_bytes": each.moved_bytes,
            }
    busy = traffic(made.moves)
    for broker, before in made.before.items():
        known, moved = shown.brokers.get(broker), busy.get(broker, Traffic())
        yield {
            "kind": "broker",
            "broker": broker,
            "rack": None if known is None else known.rack,
            "is_registered": known is not None,
            "capacity_bytes": None if known is None else known.capacity_bytes,
            "before": _load_row(before),
            "after": _load_row(made.after[broker]),
            "sent_bytes": moved.sent,
            "received_bytes": moved.received,
        }


def _load_row(load: BrokerLoad) -> dict[str, Any]:
    return {"size_bytes": load.size_bytes, "replicas": load.replicas, "preferred_leaders": load.leaders}
