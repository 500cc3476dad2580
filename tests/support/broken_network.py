"""A network between the processes of a cluster that tests can cut, each direction between two of them by itself.

`ProxiedNetwork` works on any machine: every listener stands behind a proxy. `NamespaceNetwork` gives each process a
network namespace of its own on a bridge, where packets are really lost; it needs root on Linux.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol

import psutil

from support.ports import LOOPBACK, free_port
from support.waiting import wait_until

#: Ends of connections: a broker's id in digits, or one of these.
CLIENTS = "clients"
ZOOKEEPER = "zookeeper"

#: Bytes go from the first to the second.
Way = tuple[str, str]

CALL_TIMEOUT_S = 30.0
READ_BYTES = 1 << 16
BACKLOG = 100


class BreakableNetwork(Protocol):
    """Who listens where, how processes are started in it, and what passes."""

    def prefix(self, end: str) -> list[str]:
        """What the command line of this end's process begins with."""
        ...

    def bind(self, end: str) -> str:
        """The address this end listens on."""
        ...

    def zookeeper(self, broker: str, port: int) -> str:
        """`zookeeper.connect` of a broker for the ZooKeeper that listens on `port`."""
        ...

    def advertised(self, broker: str, port: int, *, between: bool) -> str:
        """`host:port` under which others reach a broker's listener: other brokers (`between`), or clients."""
        ...

    def started(self, broker: str, pid: int) -> None:
        """The broker's process has this id now."""
        ...

    def block(self, ways: Iterable[Way]) -> None:
        """Nothing passes these ways from now on; nobody is told."""
        ...

    def heal(self) -> None:
        """Everything passes again."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class WholeNetwork:
    """A network that nobody cuts: all ends listen on the loopback address, nothing is between them."""

    def prefix(self, end: str) -> list[str]:
        """See `BreakableNetwork`."""
        return []

    def bind(self, end: str) -> str:
        """See `BreakableNetwork`."""
        return LOOPBACK

    def zookeeper(self, broker: str, port: int) -> str:
        """See `BreakableNetwork`."""
        return f"{LOOPBACK}:{port}"

    def advertised(self, broker: str, port: int, *, between: bool) -> str:
        """See `BreakableNetwork`."""
        return f"{LOOPBACK}:{port}"

    def started(self, broker: str, pid: int) -> None:
        """See `BreakableNetwork`."""

    def block(self, ways: Iterable[Way]) -> None:
        """See `BreakableNetwork`. Raises AssertionError: it is not for tests that cut anything."""
        raise AssertionError("a network that cannot be cut")

    def heal(self) -> None:
        """See `BreakableNetwork`."""

    def close(self) -> None:
        """See `BreakableNetwork`."""


def both(one: str, others: Iterable[str]) -> list[Way]:
    """The ways between one end and others, both directions."""
    return [way for other in others for way in ((one, other), (other, one))]


class ProxiedNetwork:
    """Byte streams through proxies in a thread. Bytes on a blocked way wait, as TCP's do, and pass once it heals."""

    def __init__(self) -> None:
        self._blocked: set[Way] = set()
        self._pids: dict[str, int] = {}
        self._listening: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._proxies: dict[tuple[str, str, int], int] = {}
        self._loop = asyncio.new_event_loop()
        self._changed = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, name="broken-network")
        self._thread.start()

    def prefix(self, end: str) -> list[str]:
        """See `BreakableNetwork`."""
        return []

    def bind(self, end: str) -> str:
        """See `BreakableNetwork`."""
        return LOOPBACK

    def zookeeper(self, broker: str, port: int) -> str:
        """See `BreakableNetwork`: a proxy for each broker."""
        return self._proxy(f"zookeeper of {broker}", ZOOKEEPER, port, lambda _: broker)

    def advertised(self, broker: str, port: int, *, between: bool) -> str:
        """See `BreakableNetwork`: between brokers the process that connected tells which of them it is."""
        if between:
            return self._proxy("brokers", broker, port, self._broker_at)
        return self._proxy(CLIENTS, broker, port, lambda _: CLIENTS)

    def started(self, broker: str, pid: int) -> None:
        """See `BreakableNetwork`."""
        self._pids[broker] = pid

    def block(self, ways: Iterable[Way]) -> None:
        """See `BreakableNetwork`."""
        self._blocked.update(ways)

    def heal(self) -> None:
        """See `BreakableNetwork`."""

        async def heal() -> None:
            self._blocked.clear()
            self._changed.set()
            self._changed = asyncio.Event()

        self._run(heal())

    def close(self) -> None:
        """See `BreakableNetwork`."""
        if not self._thread.is_alive():
            return
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_TIMEOUT_S)

    def _broker_at(self, port: int) -> str:
        """The broker whose connection comes from this port."""
        for broker, pid in list(self._pids.items()):
            with contextlib.suppress(psutil.Error):
                for each in psutil.Process(pid).net_connections("tcp"):
                    if each.laddr.port == port and each.status != psutil.CONN_LISTEN:
                        return broker
        return CLIENTS

    def _proxy(self, name: str, target: str, port: int, source: Callable[[int], str]) -> str:
        """`host:port` of a proxy to this port, the same for each start of the target."""
        key = name, target, port
        if key not in self._proxies:

            async def listen() -> None:
                listening = socket.create_server((LOOPBACK, free_port()), backlog=BACKLOG)
                listening.setblocking(False)
                self._listening.append(listening)
                self._proxies[key] = listening.getsockname()[1]
                self._loop.add_reader(listening, self._accept, listening, target, port, source)

            self._run(listen())
        return f"{LOOPBACK}:{self._proxies[key]}"

    def _accept(self, listening: socket.socket, target: str, port: int, source: Callable[[int], str]) -> None:
        try:
            connected, (_, from_port) = listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        task = self._loop.create_task(self._carry(connected, source(from_port), target, port))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # One that is cancelled before it begins could not close it.
        task.add_done_callback(lambda _: connected.close())

    async def _carry(self, connected: socket.socket, source: str, target: str, port: int) -> None:
        reader, writer = await asyncio.open_connection(sock=connected)
        try:
            await self._open((source, target))
            far_reader, far_writer = await asyncio.open_connection(LOOPBACK, port)
        except OSError:
            await self._open((target, source))
            writer.transport.abort()
            return
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        pumps = [
            asyncio.create_task(self._pump(reader, far_writer, (source, target))),
            asyncio.create_task(self._pump(far_reader, writer, (target, source))),
        ]
        try:
            # The end of one side is news to the other one, which a blocked way holds back.
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            writer.transport.abort()
            far_writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way) -> None:
        data = b"."
        while data:
            try:
                data = await reader.read(READ_BYTES)
            except OSError:
                data = b""
            await self._open(way)
            if data:
                with contextlib.suppress(OSError):
                    writer.write(data)
                    await writer.drain()

    async def _open(self, way: Way) -> None:
        while way in self._blocked:
            await self._changed.wait()

    async def _end(self) -> None:
        for listening in self._listening:
            self._loop.remove_reader(listening)
            listening.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # Transports close in the next turns of the loop.
        await asyncio.sleep(0.01)


#: Addresses in the bridge's network: the clients', ZooKeeper's, and broker N's at `FIRST_BROKER + N`.
SUBNET = "10.213.7"
CLIENTS_HOST, ZOOKEEPER_HOST, FIRST_BROKER = 1, 2, 10
BRIDGE = "bridge"
#: A hardware address that nobody has.
NO_NODE = "02:00:00:00:ff:ff"
#: The longest that a namespace is kept when the process that made it dies without ending it.
HOLD_S = 4 * 3600


class NamespaceNetwork:
    """A network namespace for each end, on one bridge. A blocked way loses its packets without a word.

    The process itself has to be in a network namespace of its own (`unshare -n`): the bridge is made there, and all of
    it is gone with the last process in it.
    """

    def __init__(self, ends: Sequence[str]) -> None:
        self._hosts = {CLIENTS: CLIENTS_HOST, ZOOKEEPER: ZOOKEEPER_HOST}
        self._hosts |= {end: FIRST_BROKER + int(end) for end in ends if end not in self._hosts}
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        self._blocked: set[Way] = set()
        _ip("link", "set", "lo", "up")
        _ip("link", "add", BRIDGE, "address", _hardware(CLIENTS_HOST), "type", "bridge")
        _ip("addr", "add", f"{self.bind(CLIENTS)}/24", "dev", BRIDGE)
        _ip("link", "set", BRIDGE, "up")
        for end in self._hosts:
            if end != CLIENTS:
                self._attach(end)
        for way in [(source, target) for source in self._hosts for target in self._hosts if source != target]:
            self._neighbour(way, _hardware(self._hosts[way[1]]))

    @staticmethod
    def is_possible() -> bool:
        """Whether this machine lets us make namespaces."""
        if not (shutil.which("ip") and shutil.which("unshare") and shutil.which("nsenter")):
            return False
        return subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode == 0

    def prefix(self, end: str) -> list[str]:
        """See `BreakableNetwork`."""
        holder = self._holders.get(end)
        return [] if holder is None else ["nsenter", f"--net=/proc/{holder.pid}/ns/net", "--"]

    def bind(self, end: str) -> str:
        """See `BreakableNetwork`."""
        return f"{SUBNET}.{self._hosts[end]}"

    def zookeeper(self, broker: str, port: int) -> str:
        """See `BreakableNetwork`."""
        return f"{self.bind(ZOOKEEPER)}:{port}"

    def advertised(self, broker: str, port: int, *, between: bool) -> str:
        """See `BreakableNetwork`."""
        return f"{self.bind(broker)}:{port}"

    def started(self, broker: str, pid: int) -> None:
        """See `BreakableNetwork`."""

    def block(self, ways: Iterable[Way]) -> None:
        """See `BreakableNetwork`."""
        for way in ways:
            self._neighbour(way, NO_NODE)
            self._blocked.add(way)

    def heal(self) -> None:
        """See `BreakableNetwork`."""
        for way in self._blocked:
            self._neighbour(way, _hardware(self._hosts[way[1]]))
        self._blocked.clear()

    def close(self) -> None:
        """See `BreakableNetwork`. Another network may be made afterwards."""
        for end in self._holders:
            _ip("link", "del", f"to{self._hosts[end]}")
        _ip("link", "del", BRIDGE)
        for holder in self._holders.values():
            holder.kill()
            holder.wait()

    def _attach(self, end: str) -> None:
        host = self._hosts[end]
        holder = subprocess.Popen(["unshare", "-n", "sleep", str(HOLD_S)], stdin=subprocess.DEVNULL)
        self._holders[end] = holder
        _wait_for_namespace(holder.pid)
        _ip("link", "add", f"to{host}", "type", "veth", "peer", "name", "eth0", "address", _hardware(host))
        _ip("link", "set", f"to{host}", "master", BRIDGE, "up")
        _ip("link", "set", "eth0", "netns", str(holder.pid))
        inside = self.prefix(end)
        _ip("link", "set", "lo", "up", inside=inside)
        _ip("addr", "add", f"{self.bind(end)}/24", "dev", "eth0", inside=inside)
        _ip("link", "set", "eth0", "up", inside=inside)

    def _neighbour(self, way: Way, hardware: str) -> None:
        """Where the packets of the first end go that are meant for the second one."""
        source, target = way
        device = BRIDGE if source == CLIENTS else "eth0"
        arguments = ("neigh", "replace", self.bind(target), "lladdr", hardware, "dev", device, "nud", "permanent")
        _ip(*arguments, inside=self.prefix(source))


def _hardware(host: int) -> str:
    return f"02:00:00:00:07:{host:02x}"


def _ip(*arguments: str, inside: Sequence[str] = ()) -> None:
    done = subprocess.run([*inside, "ip", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"


def _wait_for_namespace(pid: int) -> None:
    def is_apart() -> bool:
        with contextlib.suppress(OSError):
            return _namespace(pid) != _namespace("self")
        return False

    wait_until(is_apart, f"a network namespace of process {pid}")


def _namespace(pid: int | str) -> str:
    return os.readlink(f"/proc/{pid}/ns/net")
