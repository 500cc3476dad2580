"""How the outcome of a simulated change is written: tables, and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from ottla.assign.consumer_protocol import Partitions
from ottla.assign.simulation import Outcome, owners
from ottla.cli.terminal import Column, Terminal, attributes, numbers
from ottla.rebalance.notation import partitions_text

MOST_MEMBERS = 40
"""Rows of members on a terminal; of a larger group the first ones are shown, and how many more there are."""
MOST_SQUARES = 48
"""Partitions of one member that are drawn one by one."""
RETAINED, GAINED, GIVEN_UP = "■", "▣", "□"

_ASSIGNORS: tuple[Column[Outcome], ...] = (
    Column("assignor", lambda each: each.assignor),
    Column("protocol", lambda each: _protocol(each)),
    numbers("rebalances", lambda each: f"{'' if each.settled else 'more than '}{len(each.rounds)}"),
    numbers("kept", lambda each: f"{each.kept:,}"),
    numbers("moved", lambda each: f"{each.moved:,}"),
    numbers("taken over", lambda each: f"{each.taken_over:,}"),
    numbers("new", lambda each: f"{each.first_owned:,}"),
    numbers("unowned", lambda each: f"{each.unowned:,}"),
    numbers("paused", lambda each: f"{each.paused:,}"),
    numbers("per member", lambda each: " to ".join(str(most) for most in dict.fromkeys(each.spread))),
)
_MEMBERS: tuple[Column[Sequence[str]], ...] = (
    Column("member", itemgetter(0), may_shrink=True),
    Column("", itemgetter(1)),
    Column("partitions", itemgetter(2)),
    Column("", itemgetter(3), may_shrink=True),
    Column("owns", itemgetter(4), may_shrink=True),
)


def show(terminal: Terminal, outcomes: Sequence[Outcome]) -> None:
    """All assignors side by side, then the effect of each on every member."""
    terminal.table(_ASSIGNORS, outcomes, indent="")
    for outcome in outcomes:
        terminal.line()
        _show_members(terminal, outcome)
    terminal.line()
    terminal.line(f"{RETAINED} kept  {GAINED} gained  {GIVEN_UP} revoked")


def to_json(outcome: Outcome) -> dict[str, Any]:
    """All that is known of an outcome."""
    smallest, largest = outcome.spread
    old, new = owners(outcome.before), owners(outcome.after)
    return {
        "assignor": outcome.assignor,
        "protocol": _protocol(outcome),
        "settled": outcome.settled,
        "rebalances": len(outcome.rounds),
        **attributes(outcome, "kept", "moved", "taken_over", "first_owned", "unowned", "paused"),
        "fewest": smallest,
        "most": largest,
        "after": {
            name: {topic: list(indexes) for topic, indexes in partitions.items()}
            for name, partitions in outcome.after.items()
        },
        "moves": [
            {"topic": topic, "partition": index, "from": old.get((topic, index)), "to": new.get((topic, index))}
            for topic, index in sorted(old.keys() | new.keys())
            if old.get((topic, index)) != new.get((topic, index))
        ],
    }


def _protocol(outcome: Outcome) -> str:
    return "cooperative" if outcome.cooperative else "eager"


def _show_members(terminal: Terminal, outcome: Outcome) -> None:
    terminal.line(f"{outcome.assignor}:")
    names = list(dict.fromkeys([*outcome.before, *outcome.after]))
    shown = names if terminal.width is None else names[:MOST_MEMBERS]
    terminal.table(_MEMBERS, [_member_row(outcome, name) for name in shown])
    if len(names) > len(shown):
        terminal.line(f"  … and {len(names) - len(shown):,} more members (a pipe and --json have them all)")


def _member_row(outcome: Outcome, name: str) -> list[str]:
    before, after = _pairs(outcome.before.get(name, {})), _pairs(outcome.after.get(name, {}))
    state = "left" if name not in outcome.after else "new" if name not in outcome.before else ""
    if state == "left":
        drawn, owned = GIVEN_UP * min(len(before), MOST_SQUARES), ""
    else:
        drawn = _drawn(len(before & after), len(after - before), len(before - after))
        owned = partitions_text(outcome.after[name])
    return [name, state, f"{len(before)} → {len(after)}", drawn, owned]


def _drawn(kept: int, gained: int, given_up: int) -> str:
    squares = RETAINED * kept + GAINED * gained + GIVEN_UP * given_up
    if len(squares) <= MOST_SQUARES:
        return squares
    share = MOST_SQUARES / len(squares)
    return RETAINED * round(kept * share) + GAINED * round(gained * share) + GIVEN_UP * round(given_up * share) + "…"


def _pairs(partitions: Partitions) -> set[tuple[str, int]]:
    return {(topic, index) for topic, indexes in partitions.items() for index in indexes}
