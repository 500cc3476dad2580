"""The faults that `./run mutants` plants, and its list of those that change nothing."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import mutants.__main__ as program
from mutants.__main__ import CAUGHT, FOLDERS, HARMLESS_ONE, SURVIVED, Reach, Verdict, first_of, harmless, share_caught
from mutants.planting import Mutant, drawn, mutants_of

PROJECT = Path(__file__).resolve().parents[2]


def planted(source: str) -> list[str]:
    return [mutant.planted(source) for mutant in mutants_of("m.py", source)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a < b", ["(a <= b)"]),
        ("a is not b", ["(a is b)"]),
        ("a in b", ["(a not in b)"]),
        ("a + b", ["(a - b)"]),
        ("a and b", ["(a or b)"]),
        ("not a", ["(a)"]),
        ("x = True", ["x = False"]),
        ("x = 41", ["x = 42"]),
        ("x = min(a, b)", ["x = (max(a, b))"]),
        ("x = a if b else c", ["x = (a if not b else c)"]),
        ("x += y", ["x -= y"]),
        ("forget(x)", ["pass"]),
        ("raise x", ["pass"]),
        ("def f():\n    return x", ["def f():\n    return None"]),
        ("while x:\n    break", ["while x:\n    continue"]),
    ],
)
def test_faults(before: str, after: list[str]) -> None:
    assert planted(before) == after


@pytest.mark.parametrize(
    "source",
    [
        '"""A text of 3 < 4."""',
        "import a",
        "x: int | None",
        "x = cast(int | None, y)",
        "def f(x: Literal[1]) -> Literal[2]: ...",
        'f"{a + b}"',
        "LOG.info(a + b)",
        "if TYPE_CHECKING:\n    x = 1",
        '__slots__ = ("a", 1)',
        "def f():\n    return None",
        "x = Name | None",
    ],
)
def test_what_is_left_alone(source: str) -> None:
    assert planted(source) == []


def test_places_are_found_behind_other_letters_and_over_lines() -> None:
    source = 'ä = "€"; x = (a\n  < b)  # ö\n'
    assert planted(source) == ['ä = "€"; x = ((a <= b))  # ö\n']


def test_a_name_says_the_line_where_the_change_alone_does_not() -> None:
    (mutant,) = mutants_of("m.py", "\nLIMIT = 10\n")
    assert (mutant.line, mutant.name) == (2, "m.py: LIMIT = 10: 10 -> 11")


def test_the_same_seed_draws_the_same_and_every_one_can_be_compiled() -> None:
    mutants = drawn(PROJECT, FOLDERS, 40, seed=1)
    assert mutants == drawn(PROJECT, FOLDERS, 40, seed=1)
    assert mutants != drawn(PROJECT, FOLDERS, 40, seed=2)
    assert {mutant.path.rsplit("/", mutant.path.count("/") - 2)[0] for mutant in mutants} == set(FOLDERS)
    for mutant in mutants:
        source = (PROJECT / mutant.path).read_text()
        assert source[mutant.start : mutant.end] == mutant.before
        ast.parse(mutant.planted(source))


def test_the_first_tests_are_few_and_of_few_files() -> None:
    tests = [f"f{file}.py::t{number}" for file in range(20) for number in range(5)]
    assert first_of(tests) == tests[:30]


class Planted:
    """A copy of the project that knows whether the fault is in it."""

    def __init__(self) -> None:
        self.has_fault = False

    def plant(self, _mutant: Mutant) -> None:
        self.has_fault = True

    def mend(self, _mutant: Mutant) -> None:
        self.has_fault = False


class Reached(Reach):
    """Two tests that reach a mutant: one passes only after another, one notices the fault or not."""

    def __init__(self) -> None:
        self._alone = {}

    def tests_of(self, _mutant: Mutant) -> list[str]:
        return ["a.py::dependent", "b.py::notices"]


@pytest.mark.parametrize(("notices", "outcome"), [(True, (CAUGHT, "b.py::notices")), (False, (SURVIVED, ""))])
def test_a_test_that_fails_without_the_fault_does_not_count(
    monkeypatch: pytest.MonkeyPatch, notices: bool, outcome: tuple[str, str]
) -> None:
    def failing(copy: Planted, tests: list[str], _reach: Reach) -> str:
        fails = {"a.py::dependent"} | ({"b.py::notices"} if copy.has_fault and notices else set())
        return next((test for test in tests if test in fails), "")

    monkeypatch.setattr(program, "_failing", failing)
    copy: Any = Planted()
    verdict = program.try_out(copy, Mutant("m.py", 1, "x", 0, 1, "x", "y"), Reached())
    assert (verdict.outcome, verdict.by) == outcome
    assert not copy.has_fault


def test_harmless_ones_are_not_counted() -> None:
    mutant = Mutant("m.py", 1, "x", 0, 1, "x", "y")
    verdicts = [Verdict(mutant, outcome, "", 1.0) for outcome in (CAUGHT, CAUGHT, CAUGHT, SURVIVED, HARMLESS_ONE)]
    assert share_caught(verdicts) == 0.75
    assert share_caught(verdicts[4:]) == 1.0


def test_the_list_of_harmless_ones_names_modules_and_reasons() -> None:
    for mutant, reason in harmless().items():
        path = mutant.partition(":")[0]
        assert (PROJECT / path).is_file(), f"{path} is not there any more"
        assert len(reason) > 20
