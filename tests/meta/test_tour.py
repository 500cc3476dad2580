"""The tour (docs/tour): its index, and a page for each requirement of the log, clients, groups and the cluster."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.spec_report import requirement_ids

PROJECT = Path(__file__).resolve().parents[2]
TOUR = PROJECT / "docs" / "tour"
PAGES = sorted(TOUR.glob("[0-9][0-9]-*.md"))
PAGE_COUNT = 18
TWO_SCREENS_LINES = 100
#: Requirements of these letters have a page of the tour.
LETTERS = "LPCAGZR"
#: What ottla does not have yet: transactions, and the protocols of Kafka 4 (docs/skipped.md).
NOT_BUILT = {"P6", "G13", "G14"}

pytestmark = pytest.mark.spec("U5")


def shown(page: Path) -> list[str]:
    """The ids of the line `Shows: L1, C5.` among the first lines of a page."""
    (line,) = (each for each in page.read_text().splitlines()[:5] if each.startswith("Shows: "))
    return line.removeprefix("Shows: ").rstrip(".").split(", ")


def test_every_requirement_has_a_page() -> None:
    ids = set(requirement_ids(PROJECT / "docs" / "requirements.md"))
    shown_ids = {each for page in PAGES for each in shown(page)}
    assert shown_ids - ids == set(), "ids that docs/requirements.md does not have"
    assert {each for each in ids - shown_ids if each[0] in LETTERS} == NOT_BUILT


def test_the_index_has_all_pages_in_order() -> None:
    lines = re.findall(r"^(\d+)\. (.+)$", (TOUR / "index.md").read_text(), re.MULTILINE)
    assert [int(number) for number, _ in lines] == list(range(1, PAGE_COUNT + 1))
    for page in PAGES:
        number = int(page.name[:2])
        title = page.read_text().splitlines()[0].removeprefix(f"# {number}. ")
        assert lines[number - 1][1].startswith(f"[{title}]({page.name}): "), page.name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name[:2])
def test_a_page_has_two_screens(page: Path) -> None:
    assert len(page.read_text().splitlines()) <= TWO_SCREENS_LINES
