"""The link of a producer to one broker."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.client.errors import ConnectionLostError
from ottla.client.producer.links import BrokerLink


class SilentCluster:
    """A cluster whose brokers do not answer a connection attempt, until it is given up."""

    def __init__(self) -> None:
        self.settings = SimpleNamespace(reconnect_backoff_ms=50, reconnect_backoff_max_ms=1_000)
        self.clock = SimpleNamespace(monotonic_ms=lambda: 2_000.0)
        self.metadata = SimpleNamespace(expire=lambda: None)
        self.given_up = asyncio.Event()

    async def connection(self, node_id: int, _purpose: str) -> Any:
        """Fails at last."""
        await self.given_up.wait()
        raise ConnectionLostError(f"broker {node_id} is silent", retriable=True)


@pytest.mark.spec("P4")
def test_a_broker_that_is_being_connected_to_is_not_looked_at_every_millisecond() -> None:
    async def story() -> None:
        cluster = SilentCluster()
        woken = asyncio.Event()
        link = BrokerLink(cluster, 1, woken.set, 0.0)  # type: ignore[arg-type]
        assert not link.is_ready(1_000.0)
        assert link.due_ms(1_000.0) == float("inf"), "its end wakes"
        cluster.given_up.set()
        await woken.wait()
        assert not link.is_ready(2_000.0)
        assert link.due_ms(2_000.0) == 2_050.0

    asyncio.run(story())
