"""The bounded queue between the fetchers, which run in an event loop, and the thread that reads a stream.

The loop never waits for the thread, which may be suspended in the middle of a step, for example by a signal handler
that shuts the connector down. The thread may be interrupted between any two of its instructions: it first looks at a
chunk (`take`), makes it its own, and removes it then (`began`), so that no interruption loses one.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

from ottla.client.consumer.completed_fetch import CompletedFetch
from ottla.client.errors import ForkedError
from ottla.env.process import process_id
from ottla.env.threads import SIGNAL_POLL_S, Lock, monotonic_s
from ottla.zkconsumer.partition_info import PartitionTopicInfo

STEP_LIMIT_S, STEP_POLL_S = 0.1, 0.001
"""How long a thread is waited for that is in the midst of a step, and the pause between two looks."""


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
        #: Held by the reading thread while it takes a record out of a chunk, the step that must not be cut in two.
        self.step = Lock()
        #: Goes up to drop everything that was put here. Changed by the loop alone.
        self.generation = 0
        #: Closed: nothing is added and nothing is returned any more.
        self.ended = False
        #: Called, in the reading thread, when the queue is not full any more.
        self.on_room: Callable[[], None] | None = None
        #: Those of the present generation: the loop appends, the reading thread removes. `clear` begins another one.
        self._chunks: deque[FetchedDataChunk] = deque()
        #: An entry for each chunk and for the end, which ends the wait of the reading thread; some are there in vain.
        self._wakeups: SimpleQueue[None] = SimpleQueue()
        #: Whether `on_room` is still to be called: the reading thread may be interrupted before.
        self._owes_room = False
        self._max_chunks = max_chunks
        self._process = process_id()

    def __len__(self) -> int:
        return len(self._chunks)

    @property
    def is_full(self) -> bool:
        """Whether fetching into it should pause."""
        return len(self._chunks) >= self._max_chunks

    def put(self, chunk: FetchedDataChunk) -> None:
        """In the loop: add a chunk."""
        if not self.ended:
            chunk.generation = self.generation
            self._chunks.append(chunk)
            self._wakeups.put(None)

    def take(self, timeout_s: float | None) -> FetchedDataChunk | None:
        """In the reading thread: the next chunk; None where none came in time (None: however long), or it ended.

        It stays in the queue until `began`. ForkedError in another process: nothing is fetched there.
        """
        if process_id() != self._process:
            raise ForkedError("stream of a connector")
        self._report_room()
        ends_s = math.inf if timeout_s is None else monotonic_s() + timeout_s
        while True:
            with suppress(IndexError):
                return self._chunks[0]
            if self.ended or not self._wait(ends_s):
                return None

    def began(self, chunk: FetchedDataChunk) -> None:
        """In the reading thread, in a step: remove the chunk that `take` returned."""
        chunks = self._chunks
        if not chunks or chunks[0] is not chunk:  # cleared meanwhile
            return
        self._owes_room = self._owes_room or len(chunks) == self._max_chunks
        chunks.popleft()
        with suppress(Empty):
            self._wakeups.get_nowait()
        self._report_room()

    def _report_room(self) -> None:
        if self._owes_room:
            if self.on_room is not None:
                self.on_room()
            self._owes_room = False

    def _wait(self, ends_s: float) -> bool:
        """Wait for a chunk or the end; False where nothing came until `ends_s`.

        Waits for a short time, for the sake of signals (`env.threads`), and may return True in vain.
        """
        left_s = max(0.0, ends_s - monotonic_s())
        try:
            self._wakeups.get(timeout=min(left_s, SIGNAL_POLL_S))
        except Empty:
            return left_s > SIGNAL_POLL_S
        if self.ended:
            self._wakeups.put(None)  # the end is for everybody who waits
        return True

    async def clear(self) -> None:
        """In the loop: drop all chunks, that being read, too. After this none of their records is handed out.

        Except one, where the reading thread stands still in the midst of a step; it is handed out again, then.
        """
        is_between_steps = await self._between_steps()
        self.generation += 1
        self._chunks = deque()
        if self.ended:
            self._wakeups.put(None)
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
