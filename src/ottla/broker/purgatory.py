"""Where requests wait: a fetch until there is enough to read or its time is up.

A delayed operation completes exactly once, by its condition or by its deadline (Kafka's DelayedOperation), or is
cancelled because its client went away. At most one waits per connection, since a connection has one request in work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ottla.broker.context import ClientState, Pending
from ottla.broker.partitions import Partition


class DelayedFetch(Pending):
    """A fetch that waits for `min_bytes` in its partitions or for `max_wait_ms`."""

    __slots__ = ("_client", "_missing_bytes", "_partitions", "_respond", "_timer")

    def __init__(
        self,
        client: ClientState,
        partitions: Sequence[Partition],
        missing_bytes: int,
        max_wait_ms: int,
        respond: Callable[[], None],
    ) -> None:
        self._client = client
        self._partitions = partitions
        self._missing_bytes = missing_bytes
        self._respond: Callable[[], None] | None = respond
        self._timer = asyncio.get_running_loop().call_later(max_wait_ms / 1000, self.complete)
        client.pending = self
        for partition in partitions:
            partition.waiting.add(self)

    def grown(self, size: int) -> None:
        """One of the partitions got `size` more bytes."""
        self._missing_bytes -= size
        if self._missing_bytes <= 0:
            self.complete()

    def complete(self) -> None:
        """Answer now, with what there is."""
        respond = self._respond
        if respond is not None:
            self._end()
            respond()

    def cancel(self) -> None:
        """The client is gone."""
        if self._respond is not None:
            self._end()

    def _end(self) -> None:
        self._respond = None
        self._timer.cancel()
        self._client.pending = None
        for partition in self._partitions:
            partition.waiting.discard(self)
