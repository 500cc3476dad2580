"""A script of events in a consumer group: written once, played on several designs."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Action(StrEnum):
    """Events that can happen to a group."""

    START = "start"
    LEAVE = "leave"
    #: The process ends, and its connections with it.
    DIE = "die"
    #: The process is paused, as by a long garbage collection.
    FREEZE = "freeze"
    #: The member cannot reach ZooKeeper or the coordinator; it continues to read from brokers.
    CUT = "cut"
    #: The topic gets more partitions.
    GROW = "grow"
    #: A broker fails, and returns after a while; it is not the one that leads the partitions.
    BROKER = "broker"


@dataclass(frozen=True, slots=True)
class Turn:
    """One event: of `member`, if it concerns one; lasting `for_ms`; adding `by` partitions."""

    at_ms: int
    action: Action
    member: str = ""
    for_ms: int = 0
    by: int = 0

    def __str__(self) -> str:
        """As text: `12.0 s: freeze m3 for 9.1 s`."""
        length = f" for {self.for_ms / 1000:.1f} s" if self.for_ms else ""
        return f"{self.at_ms / 1000:.1f} s: {self.action}{f' {self.member}' if self.member else ''}{length}" + (
            f" by {self.by}" if self.by else ""
        )


@dataclass(frozen=True, slots=True)
class ChurnScript:
    """`members` start at once; the events begin once they have settled. Times in milliseconds from the start."""

    members: tuple[str, ...]
    partitions: int
    turns: tuple[Turn, ...]
    #: The earliest time of the first event; what happens before is not counted.
    begin_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class ScriptPlan:
    """Parameters of a script. Times in milliseconds, from and to."""

    members: int = 8
    partitions: int = 32
    turns: int = 20
    #: Between two events: usually long enough for either design to settle.
    interval_ms: tuple[int, int] = (25_000, 35_000)
    begin_ms: int = 60_000
    #: Pauses and cuts are shorter or longer than a session timeout: they may go unnoticed, or lead to a rebalance.
    away_ms: tuple[int, int] = (2_000, 20_000)
    most_partitions_added: int = 4


#: Relative frequency of each event.
WEIGHTS: Mapping[Action, int] = {
    Action.START: 6,
    Action.LEAVE: 4,
    Action.DIE: 3,
    Action.FREEZE: 3,
    Action.CUT: 2,
    Action.GROW: 1,
    Action.BROKER: 1,
}


def make_script(seed: int, plan: ScriptPlan, weights: Mapping[Action, int] = WEIGHTS) -> ChurnScript:
    """Generate the script of this seed. At least one member is always alive, and at most twice the first number."""
    chance = random.Random(seed)
    living = [f"m{number}" for number in range(1, plan.members + 1)]
    members, started, at_ms = tuple(living), plan.members, plan.begin_ms
    turns: list[Turn] = []
    while len(turns) < plan.turns:
        (action,) = chance.choices(list(weights), list(weights.values()))
        if (action is Action.START and len(living) >= 2 * plan.members) or (
            action in (Action.LEAVE, Action.DIE) and len(living) == 1
        ):
            continue
        member, for_ms, by = "", 0, 0
        if action is Action.START:
            started += 1
            member = f"m{started}"
            living.append(member)
        elif action is Action.GROW:
            by = chance.randint(1, plan.most_partitions_added)
        elif action is not Action.BROKER:
            member = chance.choice(living)
        if action in (Action.LEAVE, Action.DIE):
            living.remove(member)
        if action in (Action.FREEZE, Action.CUT, Action.BROKER):
            for_ms = chance.randint(*plan.away_ms)
        turns.append(Turn(at_ms, action, member, for_ms, by))
        at_ms += chance.randint(*plan.interval_ms)
    return ChurnScript(members, plan.partitions, tuple(turns), plan.begin_ms, at_ms)
