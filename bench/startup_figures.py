"""The tables of bench/startup.py: a column for each contestant."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from report import number, table


@dataclass(frozen=True)
class Goal:
    """What a contestant's figure has to be at most: so much, or this many times another one's in the same row."""

    contestant: str
    limit: float
    times: str | None = None

    def __str__(self) -> str:
        return f"{self.contestant} ≤ {self.limit:g}{f' × {self.times}' if self.times else ''}"


@dataclass
class Row:
    """One figure of all contestants."""

    goals: tuple[Goal, ...] = ()
    values: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def median(self, contestant: str) -> float:
        """NaN where it was not measured."""
        return statistics.median(self.values[contestant]) if self.values.get(contestant) else float("nan")

    def met(self, goal: Goal) -> bool | None:
        """Whether the goal was met; None where one of its figures is missing."""
        value = self.median(goal.contestant)
        limit = goal.limit * (self.median(goal.times) if goal.times else 1.0)
        return None if value != value or limit != limit else value <= limit


class StartupFigures:
    """Tables with a column for each contestant that has a figure in them."""

    def __init__(self, contestants: tuple[str, ...]) -> None:
        self.legend = "A dash: not measured, or there is no such thing."
        self._contestants = contestants
        self._tables: dict[str, dict[str, Row]] = {}

    def add(self, title: str, what: str, contestant: str, value: float, *goals: Goal) -> None:
        """One measurement; `goals` are the row's, told with its first one."""
        row = self._tables.setdefault(title, {}).setdefault(what, Row())
        row.goals = row.goals or goals
        row.values[contestant].append(value)

    def goals(self) -> tuple[int, int]:
        """How many goals there are, and how many were met."""
        verdicts = [row.met(goal) for rows in self._tables.values() for row in rows.values() for goal in row.goals]
        judged = [verdict for verdict in verdicts if verdict is not None]
        return len(judged), sum(judged)

    def tables(self) -> Iterable[str]:
        """A Markdown table for each title."""
        for title, rows in self._tables.items():
            shown = [each for each in self._contestants if any(each in row.values for row in rows.values())]
            lines = []
            for what, row in rows.items():
                verdicts = [(goal, row.met(goal)) for goal in row.goals]
                goals = "; ".join(f"{goal}: {_VERDICTS[verdict]}" for goal, verdict in verdicts)
                lines.append([what, *(number(row.median(each)) for each in shown), goals])
            yield table([title, *shown, "goals"], lines)


_VERDICTS = {True: "met", False: "NOT met", None: "not measured"}
