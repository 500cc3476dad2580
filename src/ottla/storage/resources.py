"""Resources shared by the logs of a broker."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from ottla.env.disk import Disk, DiskError, DiskFile
from ottla.env.executor import Executor, InlineExecutor
from ottla.storage.files import DEFAULT_OPEN_FILES, OpenFiles
from ottla.storage.index import DEFAULT_INDEX_MEMORY, IndexMemory

#: Replaced files that are open at once; one more is let go where it is replaced.
MOST_HELD: Final = 256


class ReplacedFiles:
    """Replaces small files on the event loop: a disk thread lets go of what they held before.

    Renaming a file over another one frees the blocks of that one, unless it is open. Some file systems wait for the
    disk then: ext4 without a journal, mounted with `discard`, held the loop for up to 97 ms beside a busy disk. So the
    old file is kept open until a thread closes it.
    """

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


#: Kafka's default of `producer.id.expiration.ms`.
DEFAULT_PRODUCER_EXPIRATION_MS: Final = 86_400_000


class LogResources:
    """The disk, the open files, the index memory, and the settings common to all logs.

    With an `executor`, its threads let go of small files that are replaced on the event loop.
    """

    __slots__ = ("disk", "files", "index_memory", "producer_expiration_ms", "replaced")

    def __init__(
        self,
        disk: Disk,
        open_files: int = DEFAULT_OPEN_FILES,
        index_memory_bytes: int = DEFAULT_INDEX_MEMORY,
        producer_expiration_ms: int = DEFAULT_PRODUCER_EXPIRATION_MS,
        executor: Executor | None = None,
    ) -> None:
        self.disk = disk
        self.files = OpenFiles(disk, open_files)
        self.index_memory = IndexMemory(index_memory_bytes)
        self.producer_expiration_ms = producer_expiration_ms
        self.replaced = ReplacedFiles(disk, executor or InlineExecutor())
