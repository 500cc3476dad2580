"""Delayed operations: a fetch waits for enough data, a produce for its records to be committed, up to a deadline.

A delayed operation completes exactly once, by its condition or by its deadline (Kafka's DelayedOperation), or is
cancelled because its client disconnects. At most one waits per connection, since a connection has one request in work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from ottla.broker.connection_state import ConnectionState, DelayedOperation
from ottla.broker.replicas.partition import AwaitedOffsets
from ottla.wire.errors import ErrorCode


class DelayedFetch(DelayedOperation):
    """A fetch that waits for `min_bytes` in its partitions or for `max_wait_ms`.

    If not all appended records may be read, `ready` says whether any may be read now. `queues` are those of its
    partitions, or of a follower's session: a follower waits for appended records, others for visible ones. One that
    `gathers` responds after the other requests that have come by then, with what they append.
    """

    __slots__ = ("_client", "_gathers", "_loop", "_missing_bytes", "_queues", "_ready", "_respond", "_timer")

    def __init__(
        self,
        client: ConnectionState,
        queues: Sequence[dict[DelayedFetch, None]],
        missing_bytes: int,
        max_wait_ms: float,
        respond: Callable[[], None],
        ready: Callable[[], bool] | None = None,
        gathers: bool = False,
    ) -> None:
        self._gathers = gathers
        self._client = client
        self._queues = queues
        self._missing_bytes = missing_bytes
        self._ready = ready
        self._respond: Callable[[], None] | None = respond
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(max_wait_ms / 1000, self.complete)
        client.pending = self
        for queue in queues:
            queue[self] = None

    def grown(self, size: int) -> None:
        """Note that one of the partitions has `size` more bytes."""
        self._missing_bytes -= size
        if self._missing_bytes <= 0 and (self._ready is None or self._ready()):
            if not self._gathers:
                self.complete()
            elif self._missing_bytes + size > 0:
                self._loop.call_soon(self.complete)

    def complete(self) -> None:
        """Respond now with the data available."""
        respond = self._respond
        if respond is not None:
            self._end()
            respond()

    def cancel(self) -> None:
        """Drop the fetch: the client has disconnected."""
        if self._respond is not None:
            self._end()

    def _end(self) -> None:
        self._respond = None
        self._timer.cancel()
        self._client.pending = None
        for queue in self._queues:
            queue.pop(self, None)


class PartitionResult(Protocol):
    """A partition's part of a response."""

    error_code: int


class DelayedResults(DelayedOperation):
    """A request that is carried out, and whose response waits for something at each of some partitions.

    `uncommitted` are the waiters to join, the offset that they have to reach, and the result. Partitions that are not
    so far after `timeout_ms` get REQUEST_TIMED_OUT.
    """

    __slots__ = ("_client", "_respond", "_timer", "_uncommitted")

    def __init__(
        self,
        client: ConnectionState,
        uncommitted: Sequence[tuple[AwaitedOffsets, int, PartitionResult]],
        timeout_ms: int,
        respond: Callable[[], None],
    ) -> None:
        self._client = client
        self._respond: Callable[[], None] | None = respond
        #: Unsettled results, by their position in the request.
        self._uncommitted = dict(enumerate(answer for _, _, answer in uncommitted))
        self._timer = asyncio.get_running_loop().call_later(max(timeout_ms, 0) / 1000, self._expire)
        client.pending = self
        for place, (awaited, offset, _) in enumerate(uncommitted):
            awaited.add(offset, partial(self._settle, place))

    def _settle(self, place: int, error: ErrorCode) -> None:
        answer = self._uncommitted.pop(place, None)
        if answer is None:
            return
        answer.error_code = int(error)
        if not self._uncommitted:
            self._complete()

    def _expire(self) -> None:
        for answer in self._uncommitted.values():
            answer.error_code = int(ErrorCode.REQUEST_TIMED_OUT)
        self._complete()

    def _complete(self) -> None:
        respond = self._respond
        if respond is not None:
            self.cancel()
            respond()

    def cancel(self) -> None:
        """Drop the response: the client has disconnected, or was answered."""
        self._respond = None
        self._uncommitted = {}
        self._timer.cancel()
        self._client.pending = None


class DelayedProduce(DelayedResults):
    """A produce request whose records are in the log, and whose response waits until they are committed (acks=-1) or on
    the leader's disk (acks=1).

    The records of partitions that were not so far in time may be committed later, as in Kafka.
    """

    __slots__ = ()


class DelayedDeleteRecords(DelayedResults):
    """A DeleteRecords request that waits until all live replicas have deleted the records."""

    __slots__ = ()
