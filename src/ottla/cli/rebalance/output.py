"""How the outcome of a simulation is written: tables of text, and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ottla.assign.consumer_protocol import Partitions
from ottla.assign.simulation import Outcome, owners
from ottla.rebalance.notation import aligned, shown

WIDEST_NAME = 36
MOST_MEMBERS = 40
"""Rows of a table of members; of larger groups the first ones are shown, and how many more there are."""
MOST_SQUARES = 48
"""Partitions of one member that are drawn one by one."""
KEPT, GAINED, GIVEN_UP = "■", "▣", "□"


def write_text(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Lines: all assignors side by side, then what each does to every member."""
    yield from _compared(outcomes)
    for outcome in outcomes:
        yield ""
        yield from _members(outcome)
    yield ""
    yield f"{KEPT} kept  {GAINED} gained  {GIVEN_UP} given up"


def to_json(outcome: Outcome) -> dict[str, Any]:
    """All that is known of an outcome."""
    smallest, largest = outcome.spread
    old, new = owners(outcome.before), owners(outcome.after)
    return {
        "assignor": outcome.assignor,
        "protocol": "cooperative" if outcome.cooperative else "eager",
        "settled": outcome.settled,
        "rebalances": len(outcome.rounds),
        "kept": outcome.kept,
        "moved": outcome.moved,
        "taken_over": outcome.taken_over,
        "first_owned": outcome.first_owned,
        "unowned": outcome.unowned,
        "paused": outcome.paused,
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


def _compared(outcomes: Sequence[Outcome]) -> Iterator[str]:
    head = [
        "assignor",
        "protocol",
        "rebalances",
        "kept",
        "moved",
        "taken over",
        "new",
        "nobody's",
        "paused",
        "per member",
    ]
    rows = []
    for outcome in outcomes:
        smallest, largest = outcome.spread
        numbers = (
            outcome.kept,
            outcome.moved,
            outcome.taken_over,
            outcome.first_owned,
            outcome.unowned,
            outcome.paused,
        )
        rebalances = str(len(outcome.rounds)) if outcome.settled else f"more than {len(outcome.rounds)}"
        protocol = "cooperative" if outcome.cooperative else "eager"
        spread = str(smallest) if smallest == largest else f"{smallest} to {largest}"
        rows.append([outcome.assignor, protocol, rebalances, *(f"{number:,}" for number in numbers), spread])
    yield from aligned(head, rows, numbers_from=2)


def _members(outcome: Outcome) -> Iterator[str]:
    yield f"{outcome.assignor}:"
    names = list(dict.fromkeys([*outcome.before, *outcome.after]))
    rows = []
    for name in names[:MOST_MEMBERS]:
        before, after = _pairs(outcome.before.get(name, {})), _pairs(outcome.after.get(name, {}))
        state = "left" if name not in outcome.after else "new" if name not in outcome.before else ""
        if state == "left":
            drawn, owned = GIVEN_UP * min(len(before), MOST_SQUARES), ""
        else:
            drawn = _drawn(len(before & after), len(after - before), len(before - after))
            owned = shown(outcome.after[name])
        rows.append([_cut(name), state, f"{len(before)} → {len(after)}", drawn, owned])
    yield from ("  " + line for line in aligned(["member", "", "partitions", "", "owns"], rows))
    if len(names) > MOST_MEMBERS:
        yield f"  … and {len(names) - MOST_MEMBERS:,} more members (--format json has them all)"


def _drawn(kept: int, gained: int, given_up: int) -> str:
    squares = KEPT * kept + GAINED * gained + GIVEN_UP * given_up
    if len(squares) <= MOST_SQUARES:
        return squares
    share = MOST_SQUARES / len(squares)
    return KEPT * round(kept * share) + GAINED * round(gained * share) + GIVEN_UP * round(given_up * share) + "…"


def _pairs(partitions: Partitions) -> set[tuple[str, int]]:
    return {(topic, index) for topic, indexes in partitions.items() for index in indexes}


def _cut(name: str) -> str:
    return name if len(name) <= WIDEST_NAME else f"{name[: WIDEST_NAME - 1]}…"
