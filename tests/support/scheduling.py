"""Which worker of a parallel run gets which tests next, and how many workers there are.

Tests that share a server, a JVM or Spark stand in one folder, and every worker has such fixtures of its own. So a
worker stays with the folder that it is at for as long as there is work. Folders whose tests mostly wait come first:
what computes fills the cores at the end. pytest-xdist calls the scheduler; see `xdist.scheduler.protocol`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

#: Folders whose tests are handed out file by file: many and short ones.
SHORT = ("tests/unit/", "tests/scenarios/", "tests/property/", "tests/golden/")
#: Elsewhere most tests wait for other processes, so there are more workers than cores.
WAITING_WORKERS_PER_CORE = 2
#: Of the short ones a few wait.
WORKERS_BESIDE_CORES = 1
#: A worker goes to its next test only when it knows the one after it.
PENDING_AT_LEAST = 2
#: Seconds of a test that no earlier run has timed: of short ones, by their folder, and of others.
UNTIMED_SHORT_S = {"tests/property/": 1.0}
UNTIMED_OTHER_SHORT_S = 0.05
UNTIMED_S = 2.0

_MODULE_FIXTURE = re.compile(r'scope="(module|class)"')


class Worker(Protocol):
    """What the scheduler needs of a worker (`xdist.workermanage.WorkerController`)."""

    @property
    def shutting_down(self) -> bool:
        """Whether it was told to end."""

    def send_runtest_some(self, indices: Sequence[int]) -> None:
        """Give it tests, by their places in the collection."""

    def shutdown(self) -> None:
        """Tell it to end when it has run what it has."""


@dataclass(slots=True)
class Unit:
    """Tests that one worker runs one after the other."""

    indices: list[int] = field(default_factory=list)
    #: How long they are expected to take.
    seconds: float = 0.0


class TestTimes:
    """How long each test took when it ran last, in a file: it decides the order of tests in parallel runs only."""

    __test__ = False

    def __init__(self, path: Path) -> None:
        self._path = path
        #: Seconds by node id, of the runs before this one.
        self.earlier: dict[str, float] = {}
        self._now: dict[str, float] = {}
        # There is none before the first run, and half of one after a run that was killed while it wrote.
        with contextlib.suppress(OSError, ValueError):
            self.earlier = dict(json.loads(path.read_text()))

    def add(self, test: str, seconds: float) -> None:
        """Setup, call or teardown of `test` took so long."""
        self._now[test] = self._now.get(test, 0.0) + seconds

    def write(self) -> None:
        """Keep them for the next run; tests that did not run keep their times."""
        if self._now:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            times = {test: round(seconds, 2) for test, seconds in (self.earlier | self._now).items()}
            self._path.write_text(json.dumps(times, indent=0, sort_keys=True) + "\n")


def workers_for(arguments: Iterable[str], *, quick: bool, cores: int) -> int:
    """The number of workers for a run of the files and folders of `arguments`; 0 is a run in this process.

    Single files run in this process: workers would take longer to start.
    """
    paths = [argument.partition("::")[0] for argument in arguments]
    if paths and all(path.endswith(".py") for path in paths):
        return 0
    short = quick or all(f"{os.path.relpath(path)}/".startswith(SHORT) for path in paths)
    return cores + WORKERS_BESIDE_CORES if short else max(cores, 2) * WAITING_WORKERS_PER_CORE


def family_of(test: str) -> str:
    """The folder of a test, by its node id; short tests are one family per top folder."""
    path = test.partition("::")[0]
    return next((short for short in SHORT if path.startswith(short)), path.rpartition("/")[0] + "/")


class ByDirectory:
    """Hands tests out folder by folder; within a folder those that are expected to take longest come first.

    `seconds` is what each test took before, by node id; `root` is where the paths of node ids begin. Until other
    programs are there, as `tools_are_there` says, the folders whose tests need none come first.
    """

    def __init__(
        self, workers: int, seconds: Mapping[str, float], root: Path, tools_are_there: Callable[[], bool]
    ) -> None:
        self.tests: list[str] = []
        self._expected = workers
        self._seconds = seconds
        self._root = root
        self._tools_are_there = tools_are_there
        self._collections: dict[Worker, list[str]] = {}
        #: Tests that a worker was given and has not ended, in their order.
        self._pending: dict[Worker, list[int]] = {}
        self._family: dict[Worker, str] = {}
        self._waiting: dict[str, deque[Unit]] = {}

    @property
    def nodes(self) -> list[Worker]:
        """All workers."""
        return list(self._pending)

    @property
    def collection_is_completed(self) -> bool:
        """Whether all workers have told which tests there are."""
        return len(self._collections) >= self._expected

    @property
    def tests_finished(self) -> bool:
        """Whether no worker can be given anything more: what is left runs when they are told to end."""
        return (
            self.collection_is_completed
            and not self._waiting
            and all(len(pending) < PENDING_AT_LEAST for pending in self._pending.values())
        )

    @property
    def has_pending(self) -> bool:
        """Whether tests are left."""
        return bool(self._waiting) or any(self._pending.values())

    def add_node(self, node: Worker) -> None:
        """A worker has started."""
        self._pending[node] = []

    def add_node_collection(self, node: Worker, collection: Sequence[str]) -> None:
        """A worker has told which tests there are. RuntimeError if others found other ones."""
        found = list(collection)
        known = self.tests or next(iter(self._collections.values()), found)
        if found != known:
            differing = sorted(set(found) ^ set(known))
            raise RuntimeError(f"workers found different tests, or in another order: {differing[:10]}")
        self._collections[node] = found

    def schedule(self) -> None:
        """Begin, or continue with a worker that has taken the place of a crashed one."""
        if not self.tests:
            self.tests = next(iter(self._collections.values()))
            self._waiting = self._families()
        for node in self.nodes:
            self._give(node)

    def mark_test_complete(self, node: Worker, item_index: int, duration: float = 0) -> None:
        """A worker has run a test."""
        self._pending[node].remove(item_index)
        self._give(node)

    def remove_node(self, node: Worker) -> str | None:
        """A worker has ended: the test in which it crashed, if it did. What it had not begun is given to others."""
        pending = self._pending.pop(node)
        family = self._family.pop(node, "")
        if not pending:
            return None
        crashed, *rest = pending
        if rest:
            self._waiting.setdefault(family, deque()).appendleft(Unit(rest))
        for other in self.nodes:
            self._give(other)
        return self.tests[crashed]

    def mark_test_pending(self, item: str) -> None:
        """For running a crashed test again, which nobody asks for."""
        raise NotImplementedError

    def remove_pending_tests_from_node(self, node: Worker, indices: Sequence[int]) -> None:
        """For schedulers that take tests back."""
        raise NotImplementedError

    def _give(self, node: Worker) -> None:
        while not node.shutting_down and len(self._pending[node]) < PENDING_AT_LEAST:
            if not self._waiting:
                node.shutdown()
                return
            indices = self._next_unit(node).indices
            self._pending[node] += indices
            node.send_runtest_some(indices)

    def _next_unit(self, node: Worker) -> Unit:
        family = self._family.get(node, "")
        if family not in self._waiting or (family not in SHORT and not self._tools_are_there()):
            family = max(self._waiting, key=self._urgency)
            self._family[node] = family
        units = self._waiting[family]
        unit = units.popleft()
        if not units:
            del self._waiting[family]
        return unit

    def _urgency(self, family: str) -> tuple[bool, float]:
        at_it = list(self._family.values()).count(family)
        left = sum(unit.seconds for unit in self._waiting[family])
        return (family not in SHORT) == self._tools_are_there(), left / (1 + at_it)

    def _families(self) -> dict[str, deque[Unit]]:
        units: dict[str, dict[str, Unit]] = {}
        whole: dict[str, bool] = {}
        for index, test in enumerate(self.tests):
            path, family = test.partition("::")[0], family_of(test)
            if path not in whole:
                whole[path] = family in SHORT or bool(_MODULE_FIXTURE.search((self._root / path).read_text()))
            unit = units.setdefault(family, {}).setdefault(path if whole[path] else test, Unit())
            unit.indices.append(index)
            unit.seconds += self._seconds.get(test, _untimed_s(family))
        return {
            family: deque(sorted(those.values(), key=lambda unit: -unit.seconds)) for family, those in units.items()
        }


def _untimed_s(family: str) -> float:
    return UNTIMED_SHORT_S.get(family, UNTIMED_OTHER_SHORT_S) if family in SHORT else UNTIMED_S
