"""The table of figures, for the screen and for RESULTS.md."""

from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from contestants import APACHE, OTTLA

RESULTS = Path(__file__).with_name("RESULTS.md")
RESULTS_HEAD = "# Results\n\nEach section on a benchmark was written by the program it names, run with `--write`.\n"


@dataclass(frozen=True)
class Goal:
    """What ottla's figure divided by the other's has to be, or (`absolute`) ottla's figure itself."""

    limit: float
    at_least: bool
    absolute: bool = False

    def met(self, value: float) -> bool:
        """Whether `value` reaches it."""
        return value >= self.limit if self.at_least else value <= self.limit

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.limit:g}{' (ottla)' if self.absolute else ''}"


AT_LEAST_EQUAL = Goal(1.0, at_least=True)
AT_MOST_EQUAL = Goal(1.0, at_least=False)
HALF = Goal(0.5, at_least=False)
QUARTER = Goal(0.25, at_least=False)
EIGHTH = Goal(0.125, at_least=False)


@dataclass
class Row:
    """One figure of both servers, measured several times."""

    what: str
    unit: str
    goal: Goal | None = None
    other: str = APACHE
    values: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def median(self, name: str) -> float:
        """Of a server's measurements, NaN where it has none."""
        return statistics.median(self.values[name]) if self.values[name] else float("nan")

    @property
    def ratio(self) -> float:
        """Ottla's median divided by the other's."""
        apache = self.median(self.other)
        return self.median(OTTLA) / apache if apache else float("nan")

    @property
    def verdict(self) -> str:
        """Whether the goal was met, empty without a goal."""
        if self.goal is None:
            return ""
        value = self.median(OTTLA) if self.goal.absolute else self.ratio
        return "met" if self.goal.met(value) else "NOT met"

    def cells(self) -> list[str]:
        """The row of the table."""
        shown = [f"{self.what}, {self.unit}", *(number(self.median(name)) for name in (self.other, OTTLA))]
        ratio = "–" if math.isnan(self.ratio) else f"{self.ratio:.2f}"
        return [*shown, ratio, str(self.goal or ""), self.verdict]


class Figures:
    """All rows in their order, grouped under titles; `other` is whom ottla is compared with."""

    def __init__(self, other: str = APACHE) -> None:
        self.legend = f"Ratio is {OTTLA} / {other}."
        self._other = other
        self._groups: dict[str, dict[str, Row]] = {}

    def add(
        self,
        group: str,
        what: str,
        unit: str,
        name: str,
        value: float,
        goal: Goal | None = None,
        *,
        other: str | None = None,
    ) -> None:
        """Take one measurement of one server. `other` is whom ottla is compared with in this group alone."""
        rows = self._groups.setdefault(group, {})
        key = f"{what}, {unit}"
        row = rows.setdefault(key, Row(what, unit, goal, other or self._other))
        row.values[name].append(value)

    def goals(self) -> tuple[int, int]:
        """How many goals there are, and how many were met."""
        rows = [row for rows in self._groups.values() for row in rows.values() if row.goal is not None]
        return len(rows), sum(row.verdict == "met" for row in rows)

    def tables(self) -> Iterable[str]:
        """A Markdown table for each group, readable as it is."""
        for group, rows in self._groups.items():
            head = [group, next(iter(rows.values())).other, OTTLA, "ratio", "goal", ""]
            yield table(head, [row.cells() for row in rows.values()])


def number(value: float) -> str:
    """As many digits as one reads."""
    if math.isnan(value):
        return "–"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; its first column is text, the others are figures."""
    """A Markdown table, readable as it is."""
    widths = [max(len(line[column]) for line in (head, *rows)) for column in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        first, *others = (
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return f"| {' | '.join((first, *others))} |"

    rule = "|".join(
        "-" * (width + 2) if column == 0 else "-" * (width + 1) + ":" for column, width in enumerate(widths)
    )
    return "\n".join((line(head), f"|{rule}|", *map(line, rows)))


def write_section(title: str, text: str, path: Path = RESULTS) -> None:
    """Put a section into RESULTS.md, in the place of the one with the same title."""
    old = path.read_text(encoding="utf-8") if path.exists() else RESULTS_HEAD
    section = f"## {title}\n\n{text.strip()}\n"
    pattern = re.compile(rf"^## {re.escape(title)}$.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    if pattern.search(old):
        new = pattern.sub(lambda _: section + "\n", old)
    else:
        new = f"{old.rstrip()}\n\n{section}"
    path.write_text(new.rstrip() + "\n", encoding="utf-8")
