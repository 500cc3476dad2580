"""The tiers of the tests: each test belongs to one, the first run that has it.

`QUICK` runs with `./run test --quick`: folders of pure tests, without those that need another program. `SHORT` is
`./run test`, `WHOLE` `--all`, `LONG` (marked so) `--long`; each of them runs all tiers before it.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence, Set
from enum import IntEnum
from pathlib import Path

import pytest

from support.scheduling import SHORT as PURE_FOLDERS

LONG_MARKER = "long"
#: Holds the name of the tier that a run has last, for its workers and what they start.
TIER_VARIABLE = "OTTLA_TIER"
#: What these tests need takes long to build or fetch.
NEEDS_OF_WHOLE_RUNS = frozenset(
    (
        *("needs_burrow", "needs_examples", "needs_kerberos", "needs_programs", "needs_prometheus", "needs_promtool"),
        "needs_site",
    )
)


class Tier(IntEnum):
    """The tiers, those that run sooner first."""

    QUICK = 1
    SHORT = 2
    WHOLE = 3
    LONG = 4


def wanted_tier(config: pytest.Config) -> Tier:
    """The last tier that a run has: by its options, else by the run that it is part of, else by its arguments.

    A run of what changed chooses from all but the long tests, as does one of named files and folders.
    """
    if config.getoption("--long"):
        return Tier.LONG
    if config.getoption("--all") or config.getoption("--changed") or config.getoption("--changed-since"):
        return Tier.WHOLE
    if config.getoption("--quick"):
        return Tier.QUICK
    if TIER_VARIABLE in os.environ:
        return Tier[os.environ[TIER_VARIABLE]]
    return Tier.WHOLE if config.args_source is pytest.Config.ArgsSource.ARGS else Tier.SHORT


class Sample:
    """What a tier leaves to the next one, by file: `only` these tests stay, or all stay `without` these.

    A test is named without its parameters, which means all of them, or with them.
    """

    def __init__(self, only: Mapping[str, Sequence[str]], without: Mapping[str, Sequence[str]]) -> None:
        self._only = {file: frozenset(tests) for file, tests in only.items()}
        self._without = {file: frozenset(tests) for file, tests in without.items()}

    def leaves_out(self, test: str) -> bool:
        """Whether the tier leaves out the test, by its node id."""
        file, _, name = test.partition("::")
        names = {name, name.partition("[")[0]}
        if file in self._only:
            return not names & self._only[file]
        return bool(names & self._without.get(file, frozenset()))

    def named(self) -> set[str]:
        """Node ids of all tests that are named, with or without parameters."""
        every = (*self._only.items(), *self._without.items())
        return {f"{file}::{name}" for file, names in every for name in names}


class Tiers:
    """`tests/tiers.toml`: what the quick and the short run leave out."""

    def __init__(self, quick: Sample, short: Sample) -> None:
        self._samples = {Tier.QUICK: quick, Tier.SHORT: short}

    @classmethod
    def read(cls, path: Path) -> Tiers:
        """From the file; no file leaves nothing out."""
        tables = tomllib.loads(path.read_text()) if path.exists() else {}
        quick, short = (tables.get(name, {}) for name in ("quick", "short"))
        return cls(*(Sample(each.get("only", {}), each.get("without", {})) for each in (quick, short)))

    def of(self, test: str, markers: Set[str], needs: Set[str]) -> Tier:
        """The tier of a test by its node id and markers. `needs` are the markers of tests that need another program."""
        if LONG_MARKER in markers:
            return Tier.LONG
        if markers & NEEDS_OF_WHOLE_RUNS:
            return Tier.WHOLE
        is_pure = test.startswith(PURE_FOLDERS) and not markers & needs
        first = Tier.QUICK if is_pure else Tier.SHORT
        kept = (tier for tier in (Tier.QUICK, Tier.SHORT) if tier >= first and not self._leaves_out(tier, test))
        return next(kept, Tier.WHOLE)

    def _leaves_out(self, tier: Tier, test: str) -> bool:
        return self._samples[tier].leaves_out(test)

    def named(self) -> set[str]:
        """Node ids of all tests that the file names, with or without parameters."""
        return {name for sample in self._samples.values() for name in sample.named()}
