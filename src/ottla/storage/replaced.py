"""Small files that the event loop replaces: a disk thread lets go of what they held before.

Renaming a file over another one frees the blocks of that one, unless it is open. Some file systems wait for the disk
then: ext4 without a journal, mounted with `discard`, held the loop for up to 97 ms beside a busy disk. So the old file
is kept open until a thread closes it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from ottla.env.disk import Disk, DiskError, DiskFile
from ottla.env.executor import Executor

#: Replaced files that are open at once; one more is let go where it is replaced.
MOST_HELD: Final = 256


class ReplacedFiles:
    """Replaces files on the event loop; disk threads do what that leaves to do."""

    def __init__(self, disk: Disk, executor: Executor) -> None:
        self._disk = disk
        self._executor = executor
        self._held: deque[DiskFile] = deque()
        self._is_closing = False

    def replace(self, path: str, data: bytes) -> None:
        """Write the whole file at once, not forced to disk. Raises DiskError."""
        old = self._opened(path)
        try:
            self._disk.write_atomic(path, data, sync=False)
        finally:
            if old is not None:
                self._held.append(old)
                self._let_go()

    def _opened(self, path: str) -> DiskFile | None:
        """The current file, if a thread has to free its contents."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # This is such a thread, or a tool.
            return None
        if len(self._held) >= MOST_HELD:
            return None
        try:
            old = self._disk.open(path)
        except DiskError:  # It is new, or writing it says what is wrong.
            return None
        if not old.size:
            old.close()
            return None
        return old

    def _let_go(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self._executor.call(self._close_held, self._closed)

    def _close_held(self) -> None:
        while self._held:
            self._held.popleft().close()

    def _closed(self, _nothing: None, error: BaseException | None) -> None:
        self._is_closing = False
        if error is not None:  # The threads have ended.
            self._close_held()
        elif self._held:  # One more came when the thread was done.
            self._let_go()
