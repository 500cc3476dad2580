"""The sender's connection to one broker, and its requests in flight."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ottla.client.errors import ClientError
from ottla.client.producer.batch import ProducerBatch
from ottla.peer.cluster import PRODUCE, Cluster
from ottla.peer.connection import PeerConnection
from ottla.peer.versions import choose_version
from ottla.wire.apis import ApiKey

MAX_UNSENT_BYTES = 8 * 1024 * 1024
"""Limit of a connection's write buffer in bytes; no request is added above it."""
LOOK_AGAIN_MS = 1000.0
"""Interval of connection checks while a quota is exceeded."""
CLIENT_WAITS_SINCE = 6
"""First version of Produce where the client does the throttling, not the broker before its response (KIP-219)."""


class SentRequest(NamedTuple):
    """A produce request in flight."""

    sent_ms: float
    batches: list[ProducerBatch]


class BrokerLink:
    """One broker. `wake` is called when the connection is established, or has failed.

    A failed connection attempt is retried with growing backoff; `error` is the last failure.
    Nothing is sent before `throttled_until_ms`: the broker does not read from the connection.
    """

    def __init__(self, cluster: Cluster, node_id: int, wake: Callable[[], None], now_ms: float) -> None:
        self.node_id = node_id
        self.in_flight: deque[SentRequest] = deque()
        self.connection: PeerConnection | None = None
        self.error: ClientError | None = None
        self.throttled_until_ms = 0.0
        self._connects_from_ms = 0.0
        #: When requests were last sent, and when they could last have been sent: the difference shows a slow broker.
        self.drained_ms = now_ms
        self.ready_ms = now_ms
        self._cluster = cluster
        self._wake = wake
        self._failures = 0
        #: Establishes the connection.
        self.task: asyncio.Task[None] | None = None

    def is_ready(self, now_ms: float) -> bool:
        """Whether the broker is connected and not throttled; starts to connect if necessary."""
        if self._is_connected:
            return now_ms >= self.throttled_until_ms
        if self.task is None and now_ms >= self._connects_from_ms:
            self.task = asyncio.get_running_loop().create_task(self._connect())
        return False

    def due_ms(self, now_ms: float) -> float:
        """When to check a broker again that is not ready; never while it is being connected to: its end wakes."""
        if self._is_connected:
            return min(self.throttled_until_ms, now_ms + LOOK_AGAIN_MS)
        if self.task is not None:
            return float("inf")
        return max(self._connects_from_ms, now_ms + 1)

    def answer_due_ms(self, timeout_ms: float) -> float:
        """When the oldest request in flight times out; throttle time does not count."""
        if not self.in_flight:
            return float("inf")
        return max(self.in_flight[0].sent_ms, self.throttled_until_ms) + timeout_ms

    @property
    def _is_connected(self) -> bool:
        return self.connection is not None and self.connection.is_open

    def can_send(self, most_in_flight: int) -> bool:
        """Whether another request may be sent."""
        connection = self.connection
        return len(self.in_flight) < most_in_flight and (
            connection is not None and connection.unsent_bytes <= MAX_UNSENT_BYTES
        )

    def throttled(self, throttle_time_ms: int, now_ms: float) -> None:
        """Handle a throttle time in a response (KIP-219)."""
        connection = self.connection
        if connection is not None and choose_version(ApiKey.PRODUCE, connection.offered) >= CLIENT_WAITS_SINCE:
            self.throttled_until_ms = max(self.throttled_until_ms, now_ms + throttle_time_ms)

    async def _connect(self) -> None:
        settings = self._cluster.settings
        try:
            self.connection = await self._cluster.connection(self.node_id, PRODUCE)
            self.connection.on_writable = self._wake
        except ClientError as error:
            self.error = error
            pause_ms = min(
                settings.reconnect_backoff_ms * 2 ** min(self._failures, 16), settings.reconnect_backoff_max_ms
            )
            self._failures += 1
            self._connects_from_ms = self._cluster.clock.monotonic_ms() + pause_ms
            self._cluster.metadata.expire()  # the broker may have moved
        else:
            self.error = None
            self._failures = 0
            self.throttled_until_ms = 0.0
        finally:
            self.task = None
            self._wake()

    def close(self) -> None:
        """Stop connecting."""
        if self.task is not None:
            self.task.cancel()
