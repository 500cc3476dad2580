"""Transcripts of groups on real brokers: what their lines are. See `player` for the commands.

# spec: G7 — about all scenarios of the file
== what this scenario is about
> a command
  an answer, of whichever broker
  ottla, superseded: an answer that ours alone gives, and the name of the reason
  kafka, superseded: one that Apache Kafka alone gives
  [the state of the group after the step]
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

SIDES = ("ottla", "kafka")
_APART = re.compile(r"(ottla|kafka), (\w+): (.*)")


@dataclass
class Step:
    """A command and the lines that it leads to, as the file has them; `line` is where it stands, from 0."""

    command: str
    line: int
    outcome: list[str] = field(default_factory=list)

    def expected(self, side: str) -> list[str]:
        """What a broker says: the lines of both, and those that only this one has."""
        lines = []
        for text in self.outcome:
            apart = _APART.fullmatch(text)
            if apart is None:
                lines.append(text)
            elif apart[1] == side:
                lines.append(apart[3])
        return lines

    @property
    def reasons(self) -> set[str]:
        """Why the brokers differ here."""
        return {apart[2] for text in self.outcome if (apart := _APART.fullmatch(text))}


@dataclass
class Scenario:
    """One story with a group of its own."""

    path: Path
    title: str
    steps: list[Step] = field(default_factory=list)

    @property
    def name(self) -> str:
        """A name for tests and groups."""
        return f"{self.path.stem}-" + re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")

    @property
    def waits(self) -> bool:
        """Whether it waits for deadlines to pass."""
        return any(step.command.startswith("wait ") for step in self.steps)

    @property
    def spec(self) -> list[str]:
        """The requirements that the file names in its first line: `# spec: G4 G7 — …`."""
        return re.findall(r"[A-Z]\d+", self.path.read_text().splitlines()[0].partition("spec:")[2].partition("—")[0])


def scenarios_of(path: Path) -> list[Scenario]:
    """The scenarios of a file in order."""
    found: list[Scenario] = []
    for number, line in enumerate(path.read_text().splitlines()):
        if line.startswith("== "):
            found.append(Scenario(path, line[3:].strip()))
        elif line.startswith("> "):
            found[-1].steps.append(Step(line[2:].strip(), number))
        elif line.startswith("  "):
            found[-1].steps[-1].outcome.append(line[2:])
        else:
            assert not line or line.startswith("#"), f"{path}:{number + 1}: {line!r} is no line of a transcript"
    return found


def all_scenarios(folder: Path) -> list[Scenario]:
    """Those of all files; first those that wait for deadlines, so that the others pass the time."""
    found = [one for path in sorted(folder.glob("*.txt")) for one in scenarios_of(path)]
    return sorted(found, key=lambda one: not one.waits)


def merged(ours: Sequence[str], theirs: Sequence[str], reasons: set[str]) -> list[str]:
    """The lines of a step as a file has them, those of one broker alone marked; the state comes last."""
    reason = next(iter(reasons), "UNEXPLAINED")
    both = [line for line in theirs if line in ours]
    apart = [f"kafka, {reason}: {line}" for line in theirs if line not in both]
    apart += [f"ottla, {reason}: {line}" for line in ours if line not in both]
    states = [line for line in both if line.startswith("[")]
    return [line for line in both if line not in states] + apart + states


def recorded(path: Path, outcomes: dict[int, list[str]]) -> str:
    """The file with other outcomes, by the lines of their commands; comments stay."""
    lines = []
    for number, line in enumerate(path.read_text().splitlines()):
        if not line.startswith("  "):
            lines.append(line)
        lines += [f"  {shown}" for shown in outcomes.get(number, [])]
    return "\n".join(lines) + "\n"
