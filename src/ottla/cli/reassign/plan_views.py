"""How a plan is shown: what moves, each batch, and each broker before and after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.cli.reassign.views import brokers
from ottla.cli.terminal import Cell, Column, Style, Terminal, attributes, count, data_size, duration, numbers
from ottla.ops.planning.batches import Traffic, seconds_at, traffic
from ottla.ops.planning.model import BrokerLoad, PartitionMove, PlannedBroker, ReassignmentPlan

#: Moves and batches that a table shows; --json has all.
SHOWN = 20


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
        terminal.table(_move_columns(shown), shown.moving[:SHOWN])
        _show_more(terminal, len(made.moves) - SHOWN)
        terminal.line()
    if len(shown.batches) > 1:
        batches: tuple[Column[tuple[int, Sequence[PartitionMove]]], ...] = (
            numbers("BATCH", lambda each: each[0]),
            numbers("PARTITIONS", lambda each: len(each[1])),
            numbers("COPIED", lambda each: data_size(sum(move.moved_bytes for move in each[1]))),
            numbers("TIME", lambda each: duration(shown.time_ms(each[1]))),
        )
        terminal.table(batches, list(enumerate(shown.batches, 1))[:SHOWN])
        _show_more(terminal, len(shown.batches) - SHOWN)
        terminal.line()
    terminal.table(_broker_columns(shown), list(made.before))


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


def _move_columns(shown: ShownPlan) -> Sequence[Column[PartitionMove]]:
    return (
        Column("TOPIC", lambda each: each.topic, may_shrink=True),
        numbers("PARTITION", lambda each: each.partition),
        Column("FROM", lambda each: brokers(each.removed) if each.removed else None),
        Column("TO", lambda each: brokers(each.added) if each.added else None),
        numbers("SIZE", lambda each: data_size(each.moved_bytes) if each.added else None),
        numbers("TIME", lambda each: duration(shown.time_ms([each])) if each.added else None),
        Column("REPLICAS THEN", lambda each: brokers(each.after)),
    )


def _broker_columns(shown: ShownPlan) -> Sequence[Column[int]]:
    before, then, known = shown.made.before, shown.made.after, shown.brokers
    busy = traffic(shown.made.moves)
    return (
        numbers("BROKER", lambda broker: Cell(str(broker), Style.NAME)),
        Column("RACK", lambda broker: known[broker].rack if broker in known else None),
        numbers("SIZE", lambda broker: data_size(before[broker].size_bytes)),
        numbers("THEN", lambda broker: data_size(then[broker].size_bytes)),
        numbers("REPLICAS", lambda broker: before[broker].replicas),
        numbers("THEN", lambda broker: then[broker].replicas),
        numbers("LEADERS", lambda broker: before[broker].leaders),
        numbers("THEN", lambda broker: then[broker].leaders),
        numbers("SENDS", lambda broker: _size(busy.get(broker, Traffic()).sent)),
        numbers("GETS", lambda broker: _size(busy.get(broker, Traffic()).received)),
        Column("NOTE", lambda broker: _note(shown, broker)),
    )


def _size(size_bytes: int) -> str | None:
    return data_size(size_bytes) if size_bytes else None


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
                **attributes(each, "source", "size_bytes", "moved_bytes"),
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
    return {**attributes(load, "size_bytes", "replicas"), "preferred_leaders": load.leaders}
