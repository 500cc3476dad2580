"""ZooKeeper in the simulator: sessions, links that are cut, processes that stand still."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from ottla.sim.virtual_loop import VirtualTimeLoop, run_in_virtual_time
from ottla.sim.zookeeper_service import SimulatedZooKeeper
from ottla.zk.client import ConnectionLossError, SessionEvent
from ottla.zk.tree import NodeExistsError, WatchEvent

pytestmark = pytest.mark.spec("Z8")

SESSION_MS = 6_000


async def passes(seconds: float) -> None:
    """Time goes by."""
    await asyncio.sleep(seconds)  # sleep: in virtual time


def play(script: Callable[[SimulatedZooKeeper], Awaitable[None]]) -> None:
    loop = VirtualTimeLoop()
    server = SimulatedZooKeeper(loop, random.Random(1), (1, 40), SESSION_MS)

    async def whole() -> None:
        await script(server)

    run_in_virtual_time(whole(), loop)


def test_nodes_and_watches() -> None:
    async def script(server: SimulatedZooKeeper) -> None:
        one, other = server.connect(), server.connect()
        events: list[WatchEvent] = []
        await one.create("/a/b", b"1", make_parents=True)
        assert (await other.get("/a/b", events.append))[0] == b"1"
        assert await other.children("/a") == ["b"]
        await one.set("/a/b", b"2")
        await passes(1)
        assert [event.path for event in events] == ["/a/b"]
        assert server.events == 1
        with pytest.raises(NodeExistsError):
            await other.create("/a/b")
        # What is refused was asked for all the same; parents are looked for before they are made.
        assert (server.reads, server.writes) == (3, 5)

    play(script)


def test_a_session_that_is_cut_off_for_long_is_over() -> None:
    async def script(server: SimulatedZooKeeper) -> None:
        one, other = server.connect(), server.connect()
        told: list[SessionEvent] = []
        one.on_session(told.append)
        await one.create("/e", ephemeral=True)
        before = one.session_id
        one.cut()
        await passes(SESSION_MS / 1000 / 2)
        assert await other.exists("/e") is not None
        await passes(SESSION_MS / 1000)
        assert await other.exists("/e") is None
        await one.reconnect()
        assert told == [SessionEvent.SUSPENDED, SessionEvent.EXPIRED, SessionEvent.CONNECTED]
        assert one.session_id != before

    play(script)


def test_a_short_cut_is_survived_and_its_events_come_later() -> None:
    async def script(server: SimulatedZooKeeper) -> None:
        one, other = server.connect(), server.connect()
        told: list[SessionEvent] = []
        events: list[WatchEvent] = []
        one.on_session(told.append)
        await one.create("/e", ephemeral=True)
        await one.exists("/new", events.append)
        one.cut()
        await other.create("/new")
        await passes(1)
        assert not events
        await one.reconnect()
        assert [event.path for event in events] == ["/new"]
        assert told == [SessionEvent.SUSPENDED, SessionEvent.CONNECTED]
        assert await other.exists("/e") is not None

    play(script)


def test_calls_wait_for_a_connection_as_long_as_a_session() -> None:
    async def script(server: SimulatedZooKeeper) -> None:
        one = server.connect()
        one.cut()
        reading = asyncio.create_task(one.exists("/a"))
        await passes(2)
        assert not reading.done()
        await one.reconnect()
        assert await reading is None
        one.cut()
        with pytest.raises(ConnectionLossError):
            await one.exists("/a")

    play(script)


def test_a_change_whose_answer_is_lost_may_have_been_made() -> None:
    async def script(server: SimulatedZooKeeper) -> None:
        made = set()
        for number in range(30):
            one = server.connect()
            changing = asyncio.create_task(one.create(f"/n{number}"))
            await passes(0.03)
            one.cut()
            asyncio.get_running_loop().call_later(0.5, lambda one=one: asyncio.ensure_future(one.reconnect()))
            try:
                await changing
            except ConnectionLossError:
                made.add(f"/n{number}" in server.tree.nodes)
        assert made == {True, False}

    play(script)


def test_a_process_that_stands_still_sees_nothing_and_learns_of_its_end_afterwards() -> None:
    async def script(server: SimulatedZooKeeper) -> None:
        one, other = server.connect(), server.connect()
        told: list[SessionEvent] = []
        events: list[WatchEvent] = []
        one.on_session(told.append)
        await one.create("/e", ephemeral=True)
        await one.exists("/new", events.append)
        one.freeze()
        await other.create("/new")
        sleeping = asyncio.create_task(one.sleep(1))
        await passes(2 * SESSION_MS / 1000)
        assert not sleeping.done()
        assert not told
        assert await other.exists("/e") is None
        await one.thaw()
        await sleeping
        assert told == [SessionEvent.EXPIRED, SessionEvent.CONNECTED]
        assert not events

    play(script)


def test_the_nodes_of_a_dead_process_go_when_its_session_ends() -> None:
    async def script(server: SimulatedZooKeeper) -> None:
        one, other = server.connect(), server.connect()
        gone: list[WatchEvent] = []
        await one.create("/e", ephemeral=True)
        await other.exists("/e", gone.append)
        one.die()
        await passes(SESSION_MS / 1000 * 0.6)
        assert not gone
        await passes(SESSION_MS / 1000)
        assert len(gone) == 1

    play(script)


def test_the_nodes_of_a_session_that_is_closed_go_at_once() -> None:
    async def script(server: SimulatedZooKeeper) -> None:
        one = server.connect()
        await one.create("/e", ephemeral=True)
        await one.close()
        assert "/e" not in server.tree.nodes

    play(script)
