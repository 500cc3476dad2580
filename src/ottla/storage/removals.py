"""Delayed removal of files and directories, by disk threads."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from ottla.env.clock import Clock
from ottla.env.disk import Disk
from ottla.env.executor import Executor, NoThread
from ottla.storage.log import PartitionLog
from ottla.storage.log_directory import remove_all

#: Files and directories that a disk thread removes before other jobs have their turn.
REMOVALS_PER_JOB: Final = 1_000


class Removals:
    """Queue of paths to remove, with due times. `note` receives failures."""

    def __init__(self, disk: Disk, clock: Clock, executor: Executor, note: Callable[[str], None]) -> None:
        self._disk = disk
        self._clock = clock
        self._executor = executor
        self._note = note
        self._waiting: list[tuple[int, str]] = []
        self._is_removing = False
        self._is_closed = False

    def add(self, due_ms: int, path: str) -> None:
        """Remove this file or directory from `due_ms` on."""
        heapq.heappush(self._waiting, (due_ms, path))

    def discard(self, log: PartitionLog, paths: Iterable[str]) -> None:
        """Remove these files of the log, or its directory, after `file.delete.delay.ms`."""
        due_ms = self._clock.now_ms() + log.config.file_delete_delay_ms
        for path in paths:
            self.add(due_ms, path)

    def remove_due(self, now_ms: int) -> None:
        """One job at a time: a hundred thousand files due at once must not crowd out other work of the disk threads."""
        if self._is_removing:
            return
        waiting = self._waiting
        paths: list[str] = []
        while waiting and waiting[0][0] <= now_ms and len(paths) < REMOVALS_PER_JOB:
            paths.append(heapq.heappop(waiting)[1])
        if not paths:
            return
        self._is_removing = True

        def removed(problems: list[str] | None, error: BaseException | None) -> None:
            self._is_removing = False
            for problem in problems if problems is not None else [str(error)]:
                self._note(problem)
            if isinstance(error, NoThread):
                # With the next tick.
                for path in paths:
                    self.add(now_ms, path)
            elif not self._is_closed:
                self.remove_due(now_ms)

        self._executor.call(partial(remove_all, self._disk, paths), removed)

    def close(self) -> None:
        """Start no more removals; the next start removes the rest."""
        self._is_closed = True
