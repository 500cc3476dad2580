"""ZooKeeper in the simulator: the real znode tree, sessions in virtual time, and connections that can be cut.

A `SimulatedZk` is the client of one member. It behaves as the client over the wire does (`zk.kazoo_client`): calls
without a connection wait for one, reads whose connection is lost are retried, and a change whose connection is lost
raises `ConnectionLossError`: it may or may not have been made.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from ottla.env.futures import settle
from ottla.sim.processes import current_process
from ottla.sim.virtual_loop import VirtualTimeLoop
from ottla.zk.client import ConnectionLossError, OwnSession, SessionEvent, Watcher
from ottla.zk.tree import Check, Operation, Result, Stat, Tree, WatchEvent, WatchTable, ZkError

T = TypeVar("T")

#: Pings that a client sends per session timeout.
PINGS_PER_SESSION = 3
#: Separates messages due at the same moment, so that they stay in order; seconds.
APART_S = 1e-6


def _ignore(_: WatchEvent) -> None:
    """Ignore an event."""


class _Watch(NamedTuple):
    """A watcher, and the session in which its watch was set."""

    zk: SimulatedZk
    session_id: int
    watcher: Watcher


class SimulatedZooKeeper:
    """One server. Counts the requests, and the watches that fire."""

    def __init__(
        self, loop: VirtualTimeLoop, chance: random.Random, delay_ms: tuple[int, int], session_timeout_ms: int
    ) -> None:
        self.loop = loop
        self.tree = Tree()
        self.watches = WatchTable()
        self.session_timeout_ms = session_timeout_ms
        self.reads = 0
        self.writes = 0
        self.events = 0
        #: The paths of changes requested by clients that never received the result.
        self.uncertain: list[str] = []
        self._chance = chance
        self._delay_ms = delay_ms
        self._sessions = 0
        #: Called with each change of a node.
        self.on_change: Callable[[WatchEvent], None] = _ignore
        #: Called with each transaction that was made, and the session that made it.
        self.on_transaction: Callable[[Sequence[Operation], int], None] = lambda _made, _session_id: None
        #: Called with each session that ends.
        self.on_session_end: Callable[[int], None] = lambda _session_id: None

    def connect(self, slowness: float = 1.0, loss: float = 0.0) -> SimulatedZk:
        """Open a new session.

        Messages of this client have `slowness` times the latency; each is lost with the probability `loss`, and its
        connection with it.
        """
        return SimulatedZk(self, slowness, loss)

    def new_session_id(self) -> int:
        """An unused session id."""
        self._sessions += 1
        return self._sessions

    def delay_s(self) -> float:
        """The latency of a message."""
        return self._chance.randint(*self._delay_ms) / 1000

    def is_lost(self, loss: float) -> bool:
        """Whether a message with this probability of loss is lost."""
        return loss > 0 and self._chance.random() < loss

    def since_ping_s(self) -> float:
        """Time since a client's last ping when its connection is lost."""
        return self._chance.random() * self.session_timeout_ms / 1000 / PINGS_PER_SESSION

    def execute(self, operations: Sequence[Operation], session_id: int) -> tuple[Result, ...]:
        """Execute a transaction. Raises `ZkError`."""
        self.writes += sum(not isinstance(operation, Check) for operation in operations)
        transaction = self.tree.execute(operations, session_id, self.loop.now_ms)
        self._fire(transaction.events)
        self.on_transaction(operations, session_id)
        return transaction.results

    def end_session(self, session_id: int) -> None:
        """Delete the session's ephemeral nodes and watches."""
        self.on_session_end(session_id)
        self.watches.drop_if(lambda watch: isinstance(watch, _Watch) and watch.session_id == session_id)
        self._fire(self.tree.expire_session(session_id, self.loop.now_ms).events)

    def _fire(self, events: Sequence[WatchEvent]) -> None:
        for event in events:
            self.on_change(event)
        for watch, event in self.watches.fire(events):
            assert isinstance(watch, _Watch)
            self.events += 1
            watch.zk.deliver(partial(watch.watcher, event), watch.session_id)


class SimulatedZk(OwnSession):
    """`ZkClient` of one member; `freeze`, `thaw`, `cut` and `reconnect` simulate faults."""

    def __init__(self, server: SimulatedZooKeeper, slowness: float = 1.0, loss: float = 0.0) -> None:
        super().__init__(server.new_session_id())
        self._server = server
        self._slowness = slowness
        self._loss = loss
        self._loop = server.loop
        #: Counts the connections; messages sent on an older one are lost.
        self._link = 0
        self._connected = asyncio.Event()
        self._connected.set()
        self._running = asyncio.Event()
        self._running.set()
        self._held: list[Callable[[], None]] = []
        self._last_sent_s = self._last_delivered_s = 0.0
        self._expiry: asyncio.TimerHandle | None = None
        self._reconnecting: asyncio.Task[None] | None = None
        self._is_expired = self._is_over = False
        #: What arrives is handled as the process that opened the session.
        self._context = contextvars.copy_context()
        self._process = current_process()
        #: How many of the next changes are made without an answer that arrives.
        self._answers_to_lose = 0

    # Faults

    def freeze(self) -> None:
        """Pause the process: it sends nothing, and handles nothing that arrives."""
        self._running.clear()
        self._fall_silent()

    async def thaw(self) -> None:
        """Resume the process; an expired session is noticed after a round trip."""
        self._running.set()
        await self._return()

    def cut(self) -> None:
        """Cut the connection, and prevent new ones."""
        if self._connected.is_set():
            self._connected.clear()
            self._link += 1
            self._notify(SessionEvent.SUSPENDED)
            self._fall_silent()

    def _break(self) -> None:
        """Break the connection; a new one is made at once."""
        if self._connected.is_set() and self._running.is_set():
            self.cut()
            self._reconnecting = self._loop.create_task(self._return(), context=self._context.copy())

    async def reconnect(self) -> None:
        """Restore the connection."""
        await self._return()

    def lose_answers(self, count: int) -> None:
        """Lose the answers of the next changes that the server makes, and the connection with each."""
        self._answers_to_lose = count

    def expire(self) -> None:
        """Expire the session; the client learns it when it is connected again."""
        self.cut()
        self._expire()

    def die(self) -> None:
        """End the process; the server receives nothing more from it."""
        self._is_over = True
        self._link += 1
        self._held.clear()
        self._fall_silent()

    async def sleep(self, delay_s: float) -> None:
        """Sleep, for the member; longer if its process is paused meanwhile."""
        await asyncio.sleep(delay_s)
        await self._running.wait()

    def _fall_silent(self) -> None:
        if self._expiry is None:
            timeout_s = self._server.session_timeout_ms / 1000 - self._server.since_ping_s()
            self._expiry = self._loop.call_later(timeout_s, self._expire, context=self._loop.outside)

    def _expire(self) -> None:
        if not self._is_expired:
            self._is_expired = True
            self._server.end_session(self._session_id)

    async def _return(self) -> None:
        if not self._running.is_set() or self._is_over:
            return
        # An expired session goes unnoticed until the server has responded.
        await asyncio.sleep(self._delay_s() + self._delay_s())
        if not self._running.is_set() or self._is_over:
            return
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        was_cut = not self._connected.is_set()
        held, self._held = self._held, []
        if self._is_expired:
            self._is_expired = False
            self._link += 1
            self._session_id = self._server.new_session_id()
            self._connected.set()
            self._notify(SessionEvent.EXPIRED)
            self._notify(SessionEvent.CONNECTED)
            return
        self._connected.set()
        for call in held:
            self._as_owner(call)
        if was_cut:
            self._notify(SessionEvent.CONNECTED)

    def _notify(self, event: SessionEvent) -> None:
        for listener in self._listeners:
            self._as_owner(partial(listener, event))

    def _as_owner(self, call: Callable[[], object]) -> None:
        """Call a function as the process that opened the session."""
        if current_process() is self._process:
            call()
        else:
            self._loop.call_soon(call, context=self._context.copy())

    # Messages

    def _delay_s(self) -> float:
        return self._server.delay_s() * self._slowness

    def deliver(self, call: Callable[[], object], session_id: int) -> None:
        """Deliver a message of the server, in order, and not while the process is paused."""
        at_s = max(self._loop.time() + self._delay_s(), self._last_delivered_s + APART_S)
        self._last_delivered_s = at_s
        self._loop.call_at(at_s, self._arrive, call, session_id, context=self._context.copy())

    def _arrive(self, call: Callable[[], object], session_id: int) -> None:
        if self._is_over or session_id != self._session_id:
            return
        if self._running.is_set() and self._connected.is_set() and not self._held:
            call()
        else:
            self._held.append(partial(self._arrive, call, session_id))

    async def _ask(self, path: str, work: Callable[[], T], *, again: bool) -> T:
        """Send a request to the server; `again` if it may be retried."""
        while True:
            await self._running.wait()
            await self._wait_for_connection(path)
            answer: asyncio.Future[T] = self._loop.create_future()
            at_s = max(self._loop.time() + self._delay_s(), self._last_sent_s + APART_S)
            self._last_sent_s = at_s
            self._loop.call_at(at_s, self._serve, work, answer, self._link, not again, context=self._loop.outside)
            try:
                result = await answer
            except ConnectionLossError:
                if again:
                    continue
                self._server.uncertain.append(path)
                raise
            finally:
                await self._running.wait()
            return result

    async def _wait_for_connection(self, path: str) -> None:
        try:
            async with asyncio.timeout(self._server.session_timeout_ms / 1000):
                await self._connected.wait()
        except TimeoutError:
            raise ConnectionLossError(path, "ZooKeeper cannot be reached") from None

    def _serve(self, work: Callable[[], T], answer: asyncio.Future[T], link: int, is_change: bool) -> None:
        if self._server.is_lost(self._loss):
            self._break()
        if link != self._link or self._is_expired:
            settle(answer, None, ConnectionLossError("/", "lost on its way there"))
            return
        result, error = None, None
        try:
            result = work()
        except ZkError as refused:
            error = refused
        at_s = max(self._loop.time() + self._delay_s(), self._last_delivered_s + APART_S)
        self._last_delivered_s = at_s
        is_lost = is_change and error is None and self._answers_to_lose > 0
        self._answers_to_lose -= is_lost
        context = self._context.copy()
        self._loop.call_at(at_s, self._return_answer, answer, result, error, link, is_lost, context=context)

    def _return_answer(
        self, answer: asyncio.Future[T], result: T | None, error: ZkError | None, link: int, is_lost: bool
    ) -> None:
        if is_lost or self._server.is_lost(self._loss):
            self._break()
        if link != self._link:
            result, error = None, ConnectionLossError("/", "the answer was lost")
        settle(answer, result, error)

    # ZkClient

    async def _make_parent(self, path: str) -> None:
        if await self.exists(path) is None:
            await self.create(path, make_parents=True)

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes | None, Stat]:
        """See `ZkClient.get`."""

        def read() -> tuple[bytes | None, Stat]:
            node = self._server.tree.get(path)
            if watch is not None:
                self._server.watches.watch_data(path, _Watch(self, self._session_id, watch))
            return node.data, node.stat()

        return await self._read(path, read)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes | None, Stat] | None]:
        """See `ZkClient.get_many`."""
        if not paths:
            return []

        def read() -> list[tuple[bytes | None, Stat] | None]:
            nodes = [self._server.tree.nodes.get(path) for path in paths]
            return [None if node is None else (node.data, node.stat()) for node in nodes]

        return await self._read(paths[0], read)

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        """See `ZkClient.exists`."""

        def read() -> Stat | None:
            node = self._server.tree.nodes.get(path)
            if watch is not None:
                self._server.watches.watch_data(path, _Watch(self, self._session_id, watch))
            return None if node is None else node.stat()

        return await self._read(path, read)

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        """See `ZkClient.children`."""

        def read() -> list[str]:
            names = self._server.tree.children(path)
            if watch is not None:
                self._server.watches.watch_children(path, _Watch(self, self._session_id, watch))
            return names

        return await self._read(path, read)

    async def _read(self, path: str, read: Callable[[], T]) -> T:
        def counted() -> T:
            self._server.reads += 1
            return read()

        return await self._ask(path, counted, again=True)

    async def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        """See `ZkClient.multi`."""
        if not operations:
            return ()
        return await self._ask(
            operations[0].path, lambda: self._server.execute(operations, self._session_id), again=False
        )

    async def close(self) -> None:
        """See `ZkClient.close`."""
        if not self._is_over:
            self._is_over = True
            if not self._is_expired:
                self._server.end_session(self._session_id)
            if self._expiry is not None:
                self._expiry.cancel()
