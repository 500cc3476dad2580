"""The network in memory: bytes arrive late, whole and in order, and a broker serves on it in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.env.network import NetworkError
from ottla.env.outgoing import Stream, UnknownHostError
from ottla.sim.virtual_loop import LoopClock, VirtualTimeLoop, run_in_virtual_time
from support.simulated_cluster.network import SEND_BUFFER_BYTES, SimulatedNetwork, SimulatedSocket

BUFFER_BYTES = 1000


class Client:
    """Keeps what arrives."""

    def __init__(self) -> None:
        self.stream: Stream | None = None
        self.received = bytearray()
        self.is_gone = False
        self._buffer = bytearray(BUFFER_BYTES)

    def connected(self, stream: Stream) -> None:
        self.stream = stream

    def get_buffer(self, sizehint: int, /) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int, /) -> None:
        self.received += self._buffer[:nbytes]

    def writable(self) -> None:
        raise AssertionError("nothing is ever left to send")

    def disconnected(self, error: Exception | None) -> None:
        self.is_gone = True


class World:
    def __init__(self, seed: int) -> None:
        self.loop = VirtualTimeLoop()
        self.network = SimulatedNetwork(self.loop, seed)
        self.server, self.host = self.network.host("server"), self.network.host("client")

    async def connect(self) -> tuple[Client, SimulatedSocket]:
        """Both ends of a new connection."""
        listening = self.server.listen("server", 0)
        accepted: asyncio.Future[None] = self.loop.create_future()
        self.loop.add_reader(listening.fd, accepted.set_result, None)
        client = Client()
        await self.host.connect("server", listening.port, client)
        await accepted
        self.loop.remove_reader(listening.fd)
        socket = listening.accept()
        assert socket is not None
        listening.close()
        return client, socket

    async def read(self, socket: SimulatedSocket) -> bytes:
        """What the server gets next, when it gets it; nothing at the end."""
        readable: asyncio.Future[None] = self.loop.create_future()
        self.loop.add_reader(socket.fd, readable.set_result, None)
        await readable
        self.loop.remove_reader(socket.fd)
        room = bytearray(10_000_000)
        return bytes(room[: socket.recv_into(memoryview(room))])


def play(story: Callable[[World], Coroutine[Any, Any, Any]], seed: int = 1) -> Any:
    world = World(seed)
    return run_in_virtual_time(story(world), world.loop)


def test_pieces_arrive_in_order_and_at_times_that_the_seed_says() -> None:
    async def story(world: World) -> list[tuple[float, bytes]]:
        client, socket = await world.connect()
        assert client.stream is not None
        with pytest.raises(BlockingIOError):
            socket.recv_into(memoryview(bytearray(1)))
        for number in range(20):
            client.stream.write([b"%d," % number, b" "])
        arrivals: list[tuple[float, bytes]] = []
        while sum(len(data) for _, data in arrivals) < len("".join(f"{n}, " for n in range(20))):
            data = await world.read(socket)
            arrivals.append((world.loop.time(), data))
        return arrivals

    first = play(story)
    assert b"".join(data for _, data in first) == "".join(f"{n}, " for n in range(20)).encode()
    assert len(first) > 5, "they do not come together"
    assert first[0][0] > 0
    assert play(story) == first
    assert play(story, seed=2) != first


def test_a_server_waits_where_too_much_is_on_its_way_and_the_client_gets_all_of_it() -> None:
    async def story(world: World) -> None:
        client, socket = await world.connect()
        data = bytes(range(256)) * (SEND_BUFFER_BYTES // 256 + 10)
        sent = socket.sendmsg([data[:100], data[100:]], (), 0)
        assert sent == SEND_BUFFER_BYTES
        with pytest.raises(BlockingIOError):
            socket.send(b"more", 0)
        writable: asyncio.Future[None] = world.loop.create_future()
        world.loop.add_writer(socket.fd, writable.set_result, None)
        await writable
        world.loop.remove_writer(socket.fd)
        assert socket.send(data[sent:], 0) == len(data) - sent
        socket.close()
        await asyncio.sleep(60)  # sleep: virtual
        assert (client.is_gone, client.received) == (True, data)

    play(story)


def test_a_client_that_goes_is_noticed_after_what_it_sent() -> None:
    async def story(world: World) -> None:
        client, socket = await world.connect()
        assert client.stream is not None
        client.stream.write([b"last"])
        client.stream.abort()
        assert await world.read(socket) == b"last"
        assert await world.read(socket) == b""
        assert client.is_gone
        with pytest.raises(BrokenPipeError):
            socket.send(b"answer", 0)

    play(story)


def test_what_cannot_be_reached() -> None:
    async def story(world: World) -> None:
        with pytest.raises(UnknownHostError):
            await world.host.addresses("elsewhere", 1)
        with pytest.raises(ConnectionRefusedError):
            await world.host.connect("server", 1, Client())
        world.server.listen("", 9092)
        with pytest.raises(NetworkError, match="in use"):
            world.server.listen("server", 9092)
        with pytest.raises(NetworkError, match="this host is server"):
            world.server.listen("client", 9092)
        assert world.server.canonical_host_name() == "server"
        assert await world.host.canonical_names("server", 1) == ["server"]

    play(story)


def test_the_clock_is_that_of_the_loop() -> None:
    loop = VirtualTimeLoop()
    clock = LoopClock(loop, 1000)

    async def story() -> None:
        await asyncio.sleep(2.5)  # sleep: virtual
        assert (clock.now_ms(), clock.monotonic_ms()) == (3500, 2500.0)

    run_in_virtual_time(story(), loop)


def test_a_blocked_direction_delivers_later_and_in_order() -> None:
    async def story(world: World) -> None:
        client, socket = await world.connect()
        assert client.stream is not None
        world.network.block("client", "server")
        client.stream.write([b"one "])
        socket.send(b"answer", 0)
        await asyncio.sleep(5.0)  # sleep: virtual
        assert client.received == b"answer", "the other direction is open"
        client.stream.write([b"two "])
        world.network.unblock("client", "server")
        client.stream.write([b"three"])
        received = b""
        while len(received) < len(b"one two three"):
            received += await world.read(socket)
        assert received == b"one two three"

    play(story)


def test_nobody_connects_while_one_direction_is_blocked() -> None:
    async def story(world: World) -> None:
        world.network.block("server", "client")
        connecting = asyncio.create_task(world.connect())
        await asyncio.sleep(5.0)  # sleep: virtual
        assert not connecting.done()
        world.network.unblock("server", "client")
        await connecting

    play(story)


def test_a_reset_connection_loses_what_is_on_its_way_and_both_notice() -> None:
    async def story(world: World) -> None:
        client, socket = await world.connect()
        assert client.stream is not None
        client.stream.write([b"lost"])
        (connection,) = world.network.connections_of("server")
        world.network.reset(connection)
        assert await world.read(socket) == b""
        await asyncio.sleep(1.0)  # sleep: virtual
        assert client.is_gone
        assert world.network.connections_of("server") == []

    play(story)


def test_the_connections_of_an_ended_process_are_closed_and_its_ports_free() -> None:
    async def story(world: World) -> None:
        client, _ = await world.connect()
        world.server.listen("server", 9092)
        world.network.end_host("server")
        await asyncio.sleep(1.0)  # sleep: virtual
        assert client.is_gone
        with pytest.raises(ConnectionRefusedError):
            await world.host.connect("server", 9092, Client())
        world.server.listen("server", 9092)

    play(story)


def test_a_host_without_power_is_silent_until_it_is_back() -> None:
    async def story(world: World) -> None:
        client, _ = await world.connect()
        world.network.power_off("server")
        connecting = asyncio.create_task(world.host.connect("server", 9092, Client()))
        await asyncio.sleep(60.0)  # sleep: virtual
        assert not client.is_gone
        assert not connecting.done()
        world.network.power_on("server")
        with pytest.raises(ConnectionRefusedError):
            await connecting
        assert client.is_gone

    play(story)
