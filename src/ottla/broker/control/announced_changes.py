"""Follows changes that brokers and tools announce by sequential znodes, as Kafka's ZkNodeChangeNotificationListener."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ottla.broker.control.refusals import METADATA_ERRORS, is_passing
from ottla.zk.client import SessionEvent, ensure_path
from ottla.zk.tree import EventType, WatchEvent

if TYPE_CHECKING:
    from ottla.zk.client import ZkClient

#: Pause after reads that failed though there is a connection.
AGAIN_S = 0.5
#: Pause between two readings of announcements: in a rush of changes they are read together.
REST_S = 0.1
#: Znodes read together.
READ_AT_ONCE = 500

Announced = tuple[str, bytes | None]
"""The path of an announcement, and its data."""


class AnnouncedReader(Protocol):
    """Reads what is followed. Both calls raise `ZkError`, `DiskError`."""

    async def read_all(self) -> None:
        """Read everything."""

    async def read_announced(self, announced: Sequence[Announced]) -> None:
        """Read what these announcements say has changed."""


class AnnouncedChanges:
    """Follows the announcements below `roots`, from `start` to `stop`.

    Everything is read at the start, and again after an expired session. `paths` are the znodes that must be there.
    """

    def __init__(
        self,
        zk: ZkClient,
        reader: AnnouncedReader,
        roots: Sequence[str],
        prefix: str,
        paths: Sequence[str],
        what: str,
        log: logging.Logger,
    ) -> None:
        self._zk = zk
        self._reader = reader
        self._prefix = prefix
        self._paths = (*roots, *paths)
        self._what = what
        self._log = log
        #: The number of the last change that was followed, by root.
        self._last_changes = dict.fromkeys(roots, -1)
        #: Whether a change was announced, and whether everything has to be read.
        self._is_due = self._is_all_due = True
        #: How often a connection was made.
        self._connections = 0
        self._following: asyncio.Task[None] | None = None
        self._stopped = False

    async def start(self) -> None:
        """Read everything, and follow changes from now on. Raises `ZkError`, `DiskError`."""
        self._zk.on_session(self._session_changed)
        await self._follow()

    async def stop(self) -> None:
        """Stop following changes."""
        self._stopped = True
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self._is_due = self._is_all_due = True  # the watches are gone, and changes were missed
        elif event is SessionEvent.CONNECTED:
            self._connections += 1
            self._wake()

    def _announced(self, event: WatchEvent) -> None:
        self._is_due = True
        if event.type is EventType.DELETED:
            self._is_all_due = True  # announcements begin again at 0
        self._wake()

    def _wake(self) -> None:
        if self._is_due and not self._stopped and (self._following is None or self._following.done()):
            self._following = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self._is_due:
            connections = self._connections
            try:
                await self._follow()
            except METADATA_ERRORS as error:
                if is_passing(error):
                    self._log.warning("changes of %s are read when ZooKeeper is there again: %s", self._what, error)
                    if connections == self._connections:
                        return  # the next connection wakes it
                    continue
                self._log.error("changes of %s could not be read: %s", self._what, error)
                self._is_all_due = True
                await asyncio.sleep(AGAIN_S)  # sleep: until the next attempt
            else:
                await asyncio.sleep(REST_S)  # sleep: a rush of changes is read together

    async def _follow(self) -> None:
        """Read what was changed, or everything. Raises `ZkError`, `DiskError`."""
        is_all, self._is_due, self._is_all_due = self._is_all_due, False, False
        is_done = False
        try:
            if is_all:
                for path in self._paths:
                    await ensure_path(self._zk, path)
                self._last_changes = dict.fromkeys(self._last_changes, -1)
            announced: list[Announced] = []
            last_changes = {}
            for root, last in self._last_changes.items():
                numbers = await self._new_announcements(root, last)
                last_changes[root] = max(numbers.values(), default=last)
                if not is_all:
                    announced += await self._read(list(numbers))
            if is_all:
                await self._reader.read_all()
            else:
                await self._reader.read_announced(announced)
            self._last_changes = last_changes
            is_done = True
        finally:
            # What came up meanwhile, as an expired session, stays due.
            self._is_due = self._is_due or not is_done
            self._is_all_due = self._is_all_due or (is_all and not is_done)

    async def _new_announcements(self, root: str, last: int) -> dict[str, int]:
        """The paths of the announcements after number `last`, and their numbers."""
        numbers = {}
        for name in await self._zk.children(root, self._announced):
            number = name.removeprefix(self._prefix)
            if number.isdecimal() and int(number) > last:
                numbers[f"{root}/{name}"] = int(number)
        return numbers

    async def _read(self, paths: Sequence[str]) -> list[Announced]:
        announced: list[Announced] = []
        for start in range(0, len(paths), READ_AT_ONCE):
            some = paths[start : start + READ_AT_ONCE]
            found = zip(some, await self._zk.get_many(some), strict=True)
            announced += [(path, each[0]) for path, each in found if each is not None]
        return announced
