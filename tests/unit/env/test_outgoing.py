"""Connections to servers on the machine's own network."""

from __future__ import annotations

import asyncio
import socket

import pytest

from ottla.env.outgoing import SystemNetwork, UnknownHostError, reason_of


class Reader:
    """Keeps what it receives, and what else it is called for."""

    def __init__(self):
        self.stream = None
        self.received = b""
        self.events = []
        self._buffer = bytearray(4096)

    def connected(self, stream):
        self.stream = stream

    def get_buffer(self, sizehint):
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes):
        self.received += self._buffer[:nbytes]

    def writable(self):
        self.events.append("writable")

    def disconnected(self, error):
        self.events.append("disconnected")


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - other tasks of the loop make it true
            await asyncio.sleep(0)


def connected(work, **buffers):
    """Run `work(loop, reader, theirs)` on a connection to a socket of this test."""

    async def body():
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as server:
            host, port = server.getsockname()
            reader = Reader()
            await SystemNetwork().connect(host, port, reader, **buffers)
            theirs, _ = server.accept()
        with theirs:
            theirs.setblocking(False)
            await work(loop, reader, theirs)
            reader.stream.abort()
            await until(lambda: "disconnected" in reader.events)

    asyncio.run(body())


def test_parts_that_the_socket_does_not_take_at_once_follow_in_order():
    parts = [b"first", memoryview(bytes(range(256)) * 40_000), b"last"]

    async def work(loop, reader, theirs):
        reader.stream.write(parts)
        assert 0 < reader.stream.unsent_bytes < len(parts[1]), "some of it was taken"
        reader.stream.write([b"more"])
        reader.stream.report_when_sent()
        expected = b"".join((*parts, b"more"))
        received = b""
        while len(received) < len(expected):
            received += await loop.sock_recv(theirs, 100_000)
        assert received == expected
        await until(lambda: not reader.stream.unsent_bytes and "writable" in reader.events)

    connected(work, send_buffer_bytes=4096)


def test_what_arrives_goes_to_the_receiver():
    async def work(loop, reader, theirs):
        await loop.sock_sendall(theirs, b"hello")
        await until(lambda: reader.received == b"hello")
        assert reader.stream.peer == theirs.getsockname()
        theirs.close()
        await until(lambda: reader.events == ["disconnected"])

    connected(work)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "x" * 300])
def test_hosts_that_are_not_known(host):
    with pytest.raises(UnknownHostError):
        asyncio.run(SystemNetwork().addresses(host, 1))


def test_the_reason_of_an_error_is_the_systems():
    with pytest.raises(ConnectionRefusedError) as caught:
        asyncio.run(SystemNetwork().connect("127.0.0.1", 1, Reader()))
    assert reason_of(caught.value) == "Connection refused"
    assert reason_of(OSError("of its own")) == "of its own"
