"""The tiers of the tests: each test belongs to one, the first run that has it.

`QUICK` runs with `./run test --quick`: folders of pure tests, without those that need another program. `SHORT` is
`./run test`, `WHOLE` `--all`, `LONG` (marked so) `--long`; each of them runs all tiers before it.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path

import pytest

from support.scheduling import SHORT as PURE_FOLDERS

LONG_MARKER = "long"
#: Holds the name of the tier that a run has last, for its workers and what they start.
TIER_VARIABLE = "OTTLA_TIER"
#: What these tests need takes long to build or fetch.
NEEDS_OF_WHOLE_RUNS = ("needs_examples", "needs_programs", "needs_promtool")


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
    """Files of which `./run test` runs only some tests: `tests/short.toml`, file to the tests that stay.

    A test is named without its parameters, which means all of them, or with them.
    """

    def __init__(self, kept: Mapping[str, Sequence[str]]) -> None:
        self._kept = {file: frozenset(tests) for file, tests in kept.items()}

    @classmethod
    def read(cls, path: Path) -> Sample:
        """From the file; no file leaves nothing out."""
        return cls(tomllib.loads(path.read_text()) if path.exists() else {})

    @property
    def files(self) -> list[str]:
        """The files of which the short run leaves out tests."""
        return list(self._kept)

    def leaves_out(self, test: str) -> bool:
        """Whether the short run leaves out the test, by its node id."""
        file, _, name = test.partition("::")
        kept = self._kept.get(file)
        return kept is not None and not {name, name.partition("[")[0]} & kept

    def unknown(self, tests: Iterable[str]) -> list[str]:
        """Names that no collected test has, of files that were collected whole."""
        names: dict[str, set[str]] = {}
        for test in tests:
            file, _, name = test.partition("::")
            names.setdefault(file, set()).update((name, name.partition("[")[0]))
        return [
            f"{file}::{name}"
            for file, kept in self._kept.items()
            for name in sorted(kept - names[file] if file in names else ())
        ]


def tier_of(item: pytest.Item, sample: Sample, needs: Iterable[str]) -> Tier:
    """The tier of a test. `needs` are the markers of tests that need another program."""
    if item.get_closest_marker(LONG_MARKER):
        return Tier.LONG
    if item.nodeid.startswith(PURE_FOLDERS) and not any(item.get_closest_marker(name) for name in needs):
        return Tier.QUICK
    if any(item.get_closest_marker(name) for name in NEEDS_OF_WHOLE_RUNS) or sample.leaves_out(item.nodeid):
        return Tier.WHOLE
    return Tier.SHORT
