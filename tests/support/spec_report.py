"""The report that says which requirement was shown by which test."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

#: Of several phases' outcomes the worst one counts.
SEVERITY = ("passed", "skipped", "failed")
_ID = re.compile(r"^([A-Z]+)(\d+)$")


@dataclass(slots=True)
class SpecReport:
    """Outcomes of the tests that carry `@pytest.mark.spec(id, …)`, gathered while they run."""

    #: Node id of a test to the requirements it shows.
    requirements: dict[str, tuple[str, ...]] = field(default_factory=dict)
    outcomes: dict[str, str] = field(default_factory=dict)

    def expect(self, test: str, ids: Iterable[str]) -> None:
        """Note that `test` shows the requirements `ids`; ValueError for an id that is none."""
        ids = tuple(ids)
        for requirement in ids:
            if not _ID.match(requirement):
                raise ValueError(f"{test}: spec({requirement!r}): an id is letters and a number, such as 'L4'")
        self.requirements[test] = self.requirements.get(test, ()) + ids

    def record(self, test: str, outcome: str) -> None:
        """Note the outcome of one phase (setup, call, teardown) of `test`."""
        if test in self.requirements:
            worst = max(outcome, self.outcomes.get(test, outcome), key=SEVERITY.index)
            self.outcomes[test] = worst

    def by_requirement(self) -> dict[str, dict[str, str]]:
        """Requirement to its tests that ran and their outcomes, in the order of the ids."""
        rows: dict[str, dict[str, str]] = defaultdict(dict)
        for test, outcome in self.outcomes.items():
            for requirement in self.requirements[test]:
                rows[requirement][test] = outcome
        return dict(sorted(rows.items(), key=lambda row: _order(row[0])))

    def shown(self) -> list[str]:
        """The requirements with at least one test that passed and none that failed."""
        rows = self.by_requirement()
        return [r for r, tests in rows.items() if "passed" in tests.values() and "failed" not in tests.values()]

    def text(self, known: Iterable[str]) -> str:
        """The whole report; `known` are all ids there are, so that those without a test are named too."""
        lines = ["Requirements and the tests that ran for them (made by the test run)", ""]
        rows = self.by_requirement()
        for requirement, tests in rows.items():
            counts = Counter(tests.values())
            lines.append(f"{requirement}: " + ", ".join(f"{counts[o]} {o}" for o in SEVERITY if counts[o]))
            lines += [f"    {outcome:8}{test}" for test, outcome in sorted(tests.items())]
        missing = sorted(set(known) - set(rows), key=_order)
        lines += ["", "Without a test in this run: " + (", ".join(missing) or "none")]
        return "\n".join(lines) + "\n"

    def write(self, path: Path, known: Iterable[str]) -> None:
        """Write the report to `path`, whose folder is made."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.text(known))


def requirement_ids(document: Path) -> list[str]:
    """The ids that docs/requirements.md lists (`- **L1** …`); none where there is no such file."""
    if not document.exists():
        return []
    return re.findall(r"^- \*\*([A-Z]+\d+)\*\*", document.read_text(), flags=re.MULTILINE)


def _order(requirement: str) -> tuple[str, int]:
    match = _ID.match(requirement)
    return (match[1], int(match[2])) if match else (requirement, 0)
