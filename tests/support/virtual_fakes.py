"""The fake brokers of `support.fake_cluster` and their clients in one event loop of virtual time.

Timeouts, pauses and answers that never come take no real time, and a busy machine is no slower than a quiet one.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from ottla.env.environment import Environment
from ottla.env.outgoing import SYSTEM_BUFFER_BYTES, Part, Receiver
from ottla.env.randomness import Randomness
from ottla.sim.virtual_loop import LoopClock, VirtualTimeLoop, run_in_virtual_time
from support.fake_cluster import HOST, FakeCluster, FakeConnection

T = TypeVar("T")

FIRST_PORT = 9092
START_MS = 1_700_000_000_000
#: Each way.
LATENCY_S = 0.001


class VirtualFakeCluster(FakeCluster):
    """Give its `environment` to the clients that `run_to_end` runs; it is their network, too."""

    def __init__(self, count: int) -> None:
        self.loop = VirtualTimeLoop()
        self.environment = Environment(LoopClock(self.loop, START_MS), self, Randomness(1))
        super().__init__(count)

    def _begin(self) -> asyncio.AbstractEventLoop:
        return self.loop

    def start(self, node: int) -> None:
        self._servers[node] = None
        self.ports[node] = FIRST_PORT + node
        self.advertised.setdefault(node, (HOST, self.ports[node]))

    def stop(self, node: int) -> None:
        del self._servers[node]
        for connection in list(self._connections[node]):
            connection.abort()

    def run_to_end(self, work: Coroutine[Any, Any, T]) -> T:
        """What the work gives; may be called once."""
        return run_in_virtual_time(work, self.loop)

    def close(self) -> None:
        self.loop.close()

    # As `env.outgoing.Network`

    async def addresses(self, host: str, port: int) -> list[str]:
        return [host]

    async def canonical_names(self, host: str, port: int) -> list[str]:
        return [host]

    async def connect(
        self,
        address: str,
        port: int,
        receiver: Receiver,
        *,
        send_buffer_bytes: int = SYSTEM_BUFFER_BYTES,
        receive_buffer_bytes: int = SYSTEM_BUFFER_BYTES,
    ) -> None:
        await asyncio.sleep(LATENCY_S)  # sleep: virtual
        node = port - FIRST_PORT
        if node not in self._servers:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")
        receiver.connected(_ClientEnd(self.loop, receiver, FakeConnection(self, node), (address, port)))


class _ClientEnd:
    """The client's end of a connection, an `env.outgoing.Stream`."""

    def __init__(
        self, loop: VirtualTimeLoop, receiver: Receiver, broker: FakeConnection, peer: tuple[str, int]
    ) -> None:
        self.peer = peer
        self.unsent_bytes = 0
        self.is_open = True
        self._loop = loop
        self._receiver = receiver
        self._broker = broker
        # A loop's timers of one moment have no order; bytes have.
        self._to_broker: deque[bytes] = deque()
        self._to_client: deque[bytes] = deque()
        broker.connection_made(_BrokerEnd(self))

    def write(self, parts: Sequence[Part]) -> None:
        self._to_broker.append(b"".join(parts))
        self._loop.call_later(LATENCY_S, self._arrive)

    def _arrive(self) -> None:
        data = self._to_broker.popleft()
        if self.is_open:
            self._broker.data_received(data)

    def deliver(self, data: bytes) -> None:
        """Bytes of the broker begin their way."""
        self._to_client.append(data)
        self._loop.call_later(LATENCY_S, self._deliver_first)

    def _deliver_first(self) -> None:
        data = self._to_client.popleft()
        while data and self.is_open:
            buffer = self._receiver.get_buffer(len(data))
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            self._receiver.buffer_updated(size)
            data = data[size:]

    def report_when_sent(self) -> None:
        """Nothing is ever left to send."""

    def abort(self) -> None:
        if self.is_open:
            self.is_open = False
            self._broker.connection_lost(None)
            self._loop.call_soon(self._receiver.disconnected, None)


class _BrokerEnd:
    """The transport of a `FakeConnection`."""

    def __init__(self, client: _ClientEnd) -> None:
        self._client = client

    def write(self, data: bytes) -> None:
        self._client.deliver(data)

    def is_closing(self) -> bool:
        return not self._client.is_open

    def abort(self) -> None:
        self._client.abort()
