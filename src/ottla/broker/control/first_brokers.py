"""Metadata and DescribeCluster requests to a broker that has just started: they wait for its first UpdateMetadata."""

from __future__ import annotations

import asyncio

#: How long such a request waits: longer than a controller takes that is there.
FIRST_BROKERS_WAIT_S = 5.0


class FirstBrokers:
    """Lets requests wait until the image has brokers.

    Source: none. Apache Kafka's brokers answer with an empty list of brokers in that time. Java's clients ignore such
    a response; librdkafka (2.16) closes all its connections and never connects again.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        #: In the order in which they came: that of a set would differ from run to run.
        self._waiting: dict[asyncio.Future[bool], None] = {}

    def __len__(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    def heard(self) -> None:
        """There are brokers in the image now."""
        for waiting in self._waiting:
            _end(waiting, is_heard=True)

    async def wait(self) -> bool:
        """Wait until there are; False if that takes too long. Needs no task, and may be cancelled."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[bool] = loop.create_future()
        timer = loop.call_later(FIRST_BROKERS_WAIT_S, lambda: _end(waiting, is_heard=False))
        self._waiting[waiting] = None
        try:
            return await waiting
        finally:
            timer.cancel()
            del self._waiting[waiting]


def _end(waiting: asyncio.Future[bool], *, is_heard: bool) -> None:
    if not waiting.done():
        waiting.set_result(is_heard)
