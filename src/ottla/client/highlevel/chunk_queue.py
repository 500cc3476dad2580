"""The bounded queue between the fetchers, which run in an event loop, and the thread that reads a stream."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

from ottla.client.consumer.completed_fetch import CompletedFetch
from ottla.client.errors import ForkedError
from ottla.client.highlevel.partition_info import PartitionTopicInfo


class FetchedDataChunk:
    """What one fetch brought of one partition, to be decoded by the thread that reads it."""

    __slots__ = ("fetch", "info")

    def __init__(self, fetch: CompletedFetch, info: PartitionTopicInfo) -> None:
        self.fetch = fetch
        self.info = info


class ChunkQueue:
    """Chunks of all partitions that one stream reads, `queued.max.message.chunks` at most.

    A fetch asks only for partitions whose queue is not full. Since one answer may bring several partitions of one queue
    it can hold one chunk more for each of them, never more.
    """

    def __init__(self, max_chunks: int) -> None:
        #: Held by who changes anything; waited on by the thread that reads.
        self.changed = threading.Condition()
        self.chunks: deque[FetchedDataChunk] = deque()
        #: Nothing comes any more, and nothing is handed out.
        self.ended = False
        #: Called, in the reading thread, when the queue is not full any more.
        self.on_room: Callable[[], None] | None = None
        #: Called, with `changed` held, to drop the chunk that is being read.
        self.drop_current: Callable[[], None] | None = None
        self._max_chunks = max_chunks
        self._process = os.getpid()

    @property
    def is_full(self) -> bool:
        """Whether no more should be fetched for now."""
        return len(self.chunks) >= self._max_chunks

    def put(self, chunk: FetchedDataChunk) -> None:
        """Add a chunk and wake the reader."""
        with self.changed:
            if not self.ended:
                self.chunks.append(chunk)
                self.changed.notify()

    def take(self, timeout_s: float | None) -> FetchedDataChunk | None:
        """The next chunk, with `changed` held; None where none came in time (None: however long), or it ended.

        ForkedError in another process: nothing is fetched there.
        """
        if os.getpid() != self._process:
            raise ForkedError("stream of a connector")
        if not self.changed.wait_for(lambda: self.chunks or self.ended, timeout_s) or self.ended:
            return None
        was_full = self.is_full
        chunk = self.chunks.popleft()
        if was_full and not self.is_full and self.on_room is not None:
            self.on_room()
        return chunk

    def clear(self) -> None:
        """Drop all chunks, that being read, too: when this returns, none of their records is handed out any more."""
        with self.changed:
            self.chunks.clear()
            if self.drop_current is not None:
                self.drop_current()

    def end(self) -> None:
        """Drop everything; who reads the stream finds its end."""
        with self.changed:
            self.ended = True
            self.chunks.clear()
            if self.drop_current is not None:
                self.drop_current()
            self.changed.notify_all()
