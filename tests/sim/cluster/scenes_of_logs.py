"""Scenes about what is in the logs: truncation, high watermarks, waiting requests, sequence numbers."""

from __future__ import annotations

import asyncio

from sim.cluster.scene import PATIENT, PERSISTENT, SESSION_S, SMALL_FETCHES, Scene

#: How often a disk is full for a moment.
FULL_TIMES = 60


class NextLeaderDies(Scene):
    """The leader stops in order; the next one dies at once, and a third leads that knew least of what is committed."""

    async def script(self) -> None:
        self.slow(3, 300.0, 600.0)
        await self.acknowledged(10)
        await self.until(lambda: self.high_watermark(3) < self.high_watermark(1) == self.end(3), "broker 3 knows less")
        self.faults.operator.held_down.add(1)
        stopping = asyncio.create_task(self.broker(1).stop())
        await self.until(lambda: self.follows(3, 2), "broker 3 follows broker 2")
        await self.wait(0.0, 0.3)
        self.kill(2)
        self.swift()
        await self.until(lambda: self.leads(3), "broker 3 leads")
        await stopping
        self.start(1)
        await self.wait(0.0, 3.0)
        self.start(2)


class LostOnTheFormerLeader(Scene):
    """A leader alone appends records; another leads, and the first loses them; then it leads again and gets them again.

    Their producer reaches no other broker; the other producer continues meanwhile.
    """

    producer_settings = PERSISTENT

    async def script(self) -> None:
        self.cut(1, (2, 3), ["producer1"])
        self.cut(2, clients=["producer0"])
        self.cut(3, clients=["producer0"])
        self.cut_zookeeper(1)
        await self.until(lambda: self.end(1) > self.high_watermark(1), "broker 1 has records alone")
        await self.until(lambda: self.leads(2), "broker 2 leads")
        await self.acknowledged(30)
        self.heal(1)
        await self.reach_zookeeper(1)
        await self.until_whole()
        await self.prefer(1)
        await self.wait(0.0, 1.0)


class OthersWriteMeanwhile(Scene):
    """A leader alone appends records, whose producers wait; it follows another, and leads again while they wait."""

    producer_settings = PATIENT

    async def script(self) -> None:
        self.cut(1, (2, 3))
        self.cut_zookeeper(1)
        await self.until(lambda: self.end(1) > self.high_watermark(1), "broker 1 has records alone")
        await self.until(lambda: self.leads(2), "broker 2 leads")
        self.heal(1)
        await self.reach_zookeeper(1)
        await self.until_whole()
        await self.prefer(1)
        await self.wait(0.0, 1.0)


class EndOfTheNextLeader(Scene):
    """A leader dies whose end clients have seen; the next one does not know yet that it is committed."""

    starting = (2, 1, 3)

    async def script(self) -> None:
        self.slow(2, 200.0, 400.0)
        self.cut(2, (3,))
        await self.until(lambda: self.seen_end > self.high_watermark(2), "clients know more than broker 2")
        self.kill(1)
        self.swift()
        await self.until(lambda: self.leads(2), "broker 2 leads")
        await self.wait(SESSION_S)
        self.heal()
        self.start(1)


class RefusedBetween(Scene):
    """A leader refuses some of the requests that a producer has in flight, and takes the next: its disk was full."""

    async def script(self) -> None:
        for host in ("producer0", "producer1"):
            self.slow(host, 5.0, 150.0)
        disk = self.broker(1).disk.disk
        for _ in range(FULL_TIMES):
            disk.capacity = 0
            await self.wait(0.02, 0.1)
            disk.heal()
            await self.wait(0.1, 0.4)


class SlowReturn(Scene):
    """A broker returns, and catches up slowly."""

    settings = SMALL_FETCHES

    async def script(self) -> None:
        self.kill(2)
        await self.until(lambda: set(self.state.isr) == {1, 3}, "broker 2 has left the ISR")
        await self.acknowledged(150)
        self.slow(2, 100.0, 300.0)
        self.start(2)
        await self.wait(5.0, 10.0)
