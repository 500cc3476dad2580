"""How a comparison of designs is written: a table with a column for each, and JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from statistics import median
from typing import Any

from ottla.cli.terminal import Column, Terminal, attributes, numbers
from ottla.rebalance.designs.churn_script import ChurnScript
from ottla.rebalance.designs.comparison import GrowthRow
from ottla.rebalance.designs.results import DesignResult

Figure = Callable[[DesignResult], str]

_GROWTH = ("members", "partitions", "znode reads", "znode writes", "watch events", "requests to the coordinator")


def show_designs(terminal: Terminal, script: ChurnScript, results: Sequence[DesignResult], *, story: bool) -> None:
    """The table of figures, and where wanted what followed each turn in each design."""
    seconds = (script.end_ms - script.begin_ms) / 1000
    terminal.line(
        f"{len(script.members)} members and {script.partitions} partitions at first, {len(script.turns)} turns in "
        f"{seconds:,.0f} s, the same for all"
    )
    terminal.line()
    designs = [numbers(result.design, itemgetter(at)) for at, result in enumerate(results, 1)]
    rows = [[name, *(figure(result) for result in results)] for name, figure in FIGURES]
    terminal.table([Column("", itemgetter(0)), *designs], rows, indent="")
    if story:
        terminal.line()
        terminal.line(
            "seconds until the last change that followed a turn; ! where a partition was not read by one then"
        )
        terminal.table([Column("turn", itemgetter(0)), *designs], _turns(results), indent="")


def show_growth(terminal: Terminal, rows: Sequence[GrowthRow]) -> None:
    """Show the cost of one member that joins or leaves, as the group grows."""
    terminal.line("one member that comes or goes, in groups of other sizes: on average it costs")

    def figure(at: int, row: GrowthRow) -> str:
        return f"{row[at]:,.0f}"

    columns = [numbers(heading, partial(figure, at)) for at, heading in enumerate(_GROWTH)]
    terminal.table(columns, rows, indent="")


def growth_to_json(row: GrowthRow) -> dict[str, Any]:
    """A row of `show_growth`."""
    return {"growth": row._asdict()}


def to_json(result: DesignResult) -> dict[str, Any]:
    """All figures of a design."""
    return {
        "design": result.design,
        "rebalances": result.rebalances,
        "tries": result.tries,
        "tries_without_assignment": result.retries,
        "decisions": result.decisions,
        "decisions_on_differing_views": result.differing_decisions,
        "claims_that_met_another_owner": result.conflicts,
        "rebalances_given_up": result.abandoned,
        "changes_of_unknown_outcome": result.uncertain,
        **attributes(result, "znode_reads", "znode_writes", "watch_events"),
        "requests": dict(result.requests),
        "unread_partition_seconds": result.unread_s,
        "longest_unread_seconds": result.longest_unread_s,
        "doubled_partition_seconds": result.doubled_s,
        "stale_partition_seconds": result.stale_s,
        "stale_offsets_stored": result.stale_offsets_stored,
        "stale_offsets_refused": result.stale_offsets_refused,
        "stale_requests_refused": result.refused,
        "settled": [
            {"turn": str(each.turn), "after_seconds": each.after_ms / 1000, "whole": each.is_whole}
            for each in result.settled
        ],
    }


def _turns(results: Sequence[DesignResult]) -> Iterator[list[str]]:
    for together in zip(*(result.settled for result in results), strict=True):
        yield [str(together[0].turn), *(f"{one.after_ms / 1000:.1f}{'' if one.is_whole else '!'}" for one in together)]


def _settling_s(result: DesignResult) -> list[float]:
    """Of the turns that changed anything."""
    return [each.after_ms / 1000 for each in result.settled if each.after_ms] or [0.0]


def _or_none(count: int) -> str:
    return f"{count:,}" if count else "–"


FIGURES: tuple[tuple[str, Figure], ...] = (
    ("rebalances, counted for each member", lambda one: f"{one.rebalances:,}"),
    ("tries", lambda one: f"{one.tries:,}"),
    ("tries without an assignment", lambda one: f"{one.retries:,}"),
    ("assignments decided", lambda one: _or_none(one.decisions)),
    ("… while another member decided on another view", lambda one: _or_none(one.differing_decisions)),
    ("claims that met another owner", lambda one: _or_none(one.conflicts)),
    ("rebalances abandoned after the last try", lambda one: _or_none(one.abandoned)),
    ("changes of unknown outcome", lambda one: f"{one.uncertain:,}"),
    ("znode reads", lambda one: _or_none(one.znode_reads)),
    ("znode writes", lambda one: _or_none(one.znode_writes)),
    ("watch events", lambda one: _or_none(one.watch_events)),
    ("requests of rebalances to the coordinator", lambda one: _or_none(one.requests_of_rebalances)),
    ("heartbeats to the coordinator", lambda one: _or_none(one.requests["Heartbeat"])),
    ("partition-seconds without a reader", lambda one: f"{one.unread_s:,.0f}"),
    ("longest time that a partition was not read, s", lambda one: f"{one.longest_unread_s:,.1f}"),
    ("partition-seconds that two read", lambda one: f"{one.doubled_s:,.1f}"),
    ("partition-seconds read by members that had lost them", lambda one: f"{one.stale_s:,.1f}"),
    ("offsets of such members, stored", lambda one: _or_none(one.stale_offsets_stored)),
    ("offsets of such members, refused", lambda one: _or_none(one.stale_offsets_refused)),
    ("other requests of such members, refused", lambda one: _or_none(one.refused)),
    ("time to settle, median, s", lambda one: f"{median(_settling_s(one)):,.1f}"),
    ("time to settle, longest, s", lambda one: f"{max(_settling_s(one)):,.1f}"),
    ("turns after which not all was read", lambda one: str(sum(not each.is_whole for each in one.settled))),
)
"""What the rows of the table are called, and what stands in them."""
