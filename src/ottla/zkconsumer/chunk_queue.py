"""The bounded queue between the fetchers, which run in an event loop, and the thread that reads a stream.

The loop never waits for the thread, which may be suspended in the middle of a step, for example by a signal handler
that shuts the connector down.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from queue import Empty, SimpleQueue

from ottla.client.consumer.completed_fetch import CompletedFetch
from ottla.client.errors import ForkedError
from ottla.env.process import process_id
from ottla.env.threads import Lock, monotonic_s
from ottla.zkconsumer.partition_info import PartitionTopicInfo

STEP_LIMIT_S, STEP_POLL_S = 0.1, 0.001
"""How long a thread is waited for that is in the midst of a step, and the pause between two looks."""
SIGNAL_POLL_S = 0.25
"""Limit on one wait for a chunk, and so on the time until a signal's handler runs that the wait did not notice."""


class FetchedDataChunk:
    """The records that one fetch brought of one partition, decoded by the reading thread."""

    __slots__ = ("fetch", "generation", "info")

    def __init__(self, fetch: CompletedFetch, info: PartitionTopicInfo) -> None:
        self.fetch = fetch
        self.info = info
        #: That of the queue when it was put there; of another one it is not handed out any more.
        self.generation = -1


class ChunkQueue:
    """Chunks of all partitions that one stream reads, `queued.max.message.chunks` at most.

    A fetch asks only for partitions whose queue is not full. Since one answer may bring several partitions of one queue
    it can hold one chunk more for each of them, never more.
    """

    def __init__(self, max_chunks: int) -> None:
        #: Held by the reading thread while it takes a record out of a chunk, the step that is not to be cut in two.
        self.step = Lock()
        #: Goes up when everything that was put here is to be dropped. Changed by the loop alone.
        self.generation = 0
        #: Closed: nothing is added and nothing is returned any more.
        self.ended = False
        #: Called, in the reading thread, when the queue is not full any more.
        self.on_room: Callable[[], None] | None = None
        self._chunks: SimpleQueue[FetchedDataChunk | None] = SimpleQueue()
        self._max_chunks = max_chunks
        self._process = process_id()

    def __len__(self) -> int:
        return self._chunks.qsize()

    @property
    def is_full(self) -> bool:
        """Whether fetching into it should pause."""
        return self._chunks.qsize() >= self._max_chunks

    def put(self, chunk: FetchedDataChunk) -> None:
        """In the loop: add a chunk."""
        if not self.ended:
            chunk.generation = self.generation
            self._chunks.put(chunk)

    def take(self, timeout_s: float | None) -> FetchedDataChunk | None:
        """In the reading thread: the next chunk; None where none came in time (None: however long), or it ended.

        ForkedError in another process: nothing is fetched there.
        """
        if process_id() != self._process:
            raise ForkedError("stream of a connector")
        try:
            chunk = self._wait(timeout_s)
        except Empty:
            return None
        if chunk is None:
            self._chunks.put(None)  # the end is for everybody who asks again
        elif self.on_room is not None and self._chunks.qsize() == self._max_chunks - 1:
            self.on_room()
        return chunk

    def _wait(self, timeout_s: float | None) -> FetchedDataChunk | None:
        """The next in the queue. Empty where nothing came in time.

        Waits again and again, for a short time. Python runs the handlers of signals between its own instructions: a
        signal that comes after the last of them, or is delivered to another thread, does not end a wait that begins
        then, and its handler, which may be what shuts the connector down, would run after the wait.
        """
        ends_s = math.inf if timeout_s is None else monotonic_s() + timeout_s
        while True:
            left_s = max(0.0, ends_s - monotonic_s())
            try:
                return self._chunks.get(timeout=min(left_s, SIGNAL_POLL_S))
            except Empty:
                if left_s <= SIGNAL_POLL_S:
                    raise

    async def clear(self) -> None:
        """In the loop: drop all chunks, that being read, too. After this none of their records is handed out.

        Except one, where the reading thread stands still in the midst of a step; it is handed out again, then.
        """
        is_between_steps = await self._between_steps()
        self.generation += 1
        try:
            while True:
                self._chunks.get_nowait()
        except Empty:
            pass
        if self.ended:
            self._chunks.put(None)
        if is_between_steps:
            self.step.release()

    async def end(self) -> None:
        """In the loop: drop everything; who reads the stream finds its end."""
        self.ended = True
        await self.clear()

    async def _between_steps(self) -> bool:
        """Hold the reading thread between two steps; False where it does not come to the end of one."""
        for _ in range(int(STEP_LIMIT_S / STEP_POLL_S)):
            if self.step.acquire(blocking=False):
                return True
            await asyncio.sleep(STEP_POLL_S)
        return False
