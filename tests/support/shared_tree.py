"""A tree in memory that several event loops share, each with sessions of its own: ZooKeeper without its wire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from ottla.client.loop_thread import LoopThread
from ottla.config.listeners import Endpoint
from ottla.env.clock import SystemClock
from ottla.env.futures import settle
from ottla.testing.disk_memory import MemoryDisk
from ottla.zk.client import ForwardingZk, LocalClient, SessionEvent, SessionListener, Watcher
from ottla.zk.layout import BrokerIdZnode, BrokerRegistration, TopicAssignment, TopicZnode
from ottla.zk.store import TreeStore
from ottla.zk.tree import NoNodeError, WatchEvent, WatchTable

T = TypeVar("T")


class SharedTree:
    """The tree, in a loop of its own; `close` it."""

    def __init__(self) -> None:
        self.store = TreeStore.open(MemoryDisk(), "/t", SystemClock())
        self._watches = WatchTable()
        self._sessions = 100
        self.thread = LoopThread("shared-tree")
        self._local = LocalClient(self.store, 1, self._watches)
        #: Whether sessions are answered; those who ask while they are not wait for ever.
        self.answers = True

    def close(self) -> None:
        self.thread.close()

    def next_session(self) -> int:
        self._sessions += 1
        return self._sessions

    async def open(self, _config: object = None) -> TreeSession:
        """A session for the loop that runs."""
        return TreeSession(self, LocalClient(self.store, self.next_session(), self._watches))

    def run(self, work: Callable[..., Coroutine[Any, Any, T]], *args: Any, **options: Any) -> T:
        return self.thread.run(work, *args, **options)

    def brokers(self, ports: dict[int, int]) -> None:
        """Register brokers at these ports in place of those that are there."""
        with suppress(NoNodeError):
            for name in self.run(self._local.children, BrokerIdZnode.ROOT):
                self.run(self._local.delete, f"{BrokerIdZnode.ROOT}/{name}")
        for node, port in ports.items():
            endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", port)
            data = BrokerIdZnode.encode(BrokerRegistration(node, (endpoint,)))
            self.run(self._local.create, BrokerIdZnode.path(node), data, ephemeral=True, make_parents=True)

    def topic(self, name: str, count: int) -> None:
        """Make the topic, or give it more partitions."""
        data = TopicZnode.encode(TopicAssignment.of(None, {each: [0] for each in range(count)}))
        path = TopicZnode.path(name)
        if self.run(self._local.exists, path) is None:
            self.run(self._local.create, path, data, make_parents=True)
        else:
            self.run(self._local.set, path, data)

    def hold(self, path: str, data: bytes) -> None:
        """Make an ephemeral node of somebody else's."""
        self.run(self._local.create, path, data, ephemeral=True, make_parents=True)

    def data(self, path: str) -> bytes | None:
        """A node's data, None where there is none."""

        async def look() -> bytes | None:
            node = self.store.tree.nodes.get(path)
            return None if node is None else node.data or b""

        return self.run(look)

    def children(self, path: str) -> list[str]:
        """A node's children; none where there is no node."""

        async def look() -> list[str]:
            return self.store.tree.children(path) if path in self.store.tree.nodes else []

        return self.run(look)


class TreeSession(ForwardingZk):
    """A `ZkClient` of one loop."""

    def __init__(self, tree: SharedTree, local: LocalClient) -> None:
        super().__init__(local)
        self._tree = tree
        self._local = local
        self._loop = asyncio.get_running_loop()
        self._listeners: list[SessionListener] = []

    def on_session(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    def expire(self) -> None:
        """From any thread: the session is over, and a new one begins."""

        async def expire() -> None:
            for event in (SessionEvent.EXPIRED, SessionEvent.CONNECTED):
                for listener in self._listeners:
                    self._loop.call_soon_threadsafe(listener, event)
            self._local.expire(self._tree.next_session())

        self._tree.run(expire)

    async def _forward(
        self, paths: Sequence[str], call: Callable[[], Coroutine[Any, Any, T]], *, changes: bool = False
    ) -> T:
        return await self._call(call)

    async def close(self) -> None:
        await self._call(self._local.close)

    async def _call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if not self._tree.answers:
            await asyncio.get_running_loop().create_future()
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def there() -> None:
            result: Any = None
            error: BaseException | None = None
            try:
                result = await work()
            except Exception as raised:
                error = raised
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(settle, done, result, error)

        tasks: list[asyncio.Future[None]] = []  # held as long as somebody waits
        self._tree.thread.call(lambda: tasks.append(asyncio.ensure_future(there())))
        return await done

    def _watcher(self, watch: Watcher | None) -> Watcher | None:
        if watch is None:
            return None

        def fired(event: WatchEvent) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody is left to be told
                self._loop.call_soon_threadsafe(watch, event)

        return fired
