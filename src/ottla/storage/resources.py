"""Resources shared by the logs of a broker."""

from __future__ import annotations

from typing import Final

from ottla.env.disk import Disk
from ottla.env.executor import Executor, InlineExecutor
from ottla.storage.files import DEFAULT_OPEN_FILES, OpenFiles
from ottla.storage.index import DEFAULT_INDEX_MEMORY, IndexMemory
from ottla.storage.replaced import ReplacedFiles

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
