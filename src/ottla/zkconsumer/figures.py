"""Counters of a rebalance's cost: reads and writes of znodes, watch events, tries. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from ottla.zk.tree import ANY_VERSION, Operation, Result, Stat, WatchEvent

if TYPE_CHECKING:
    from ottla.zk.client import SessionListener, Watcher, ZkClient


class RebalanceStep(Enum):
    """The steps of a rebalance, in their order."""

    STOP_FETCHERS = "stop fetchers"
    COMMIT = "commit"
    RELEASE = "release ownership"
    READ_CONTEXT = "read context"
    ASSIGN = "assign"
    FETCH_OFFSETS = "fetch offsets"
    CLAIM = "claim"
    START_FETCHERS = "start fetchers"


class RebalanceFigures:
    """Counters of one consumer. Override `step`, `decides` and `rebalanced` to follow its progress."""

    def __init__(self) -> None:
        self.reads = 0
        """Reads of znodes: data, children, existence."""
        self.writes = 0
        """Requests to change znodes, whatever their result."""
        self.events = 0
        """Watches that fired."""
        self.rebalances = 0
        """Rebalances begun, each of one try or more."""
        self.tries = 0
        self.conflicts = 0
        """Owner nodes that another consumer held when this one claimed them."""
        self.failed = 0
        """Rebalances abandoned after their last try."""

    def step(self, step: RebalanceStep) -> None:
        """A step of an attempt begins."""

    def decides(self, consumers: Sequence[str], partitions: Mapping[str, tuple[int, ...]]) -> None:
        """An attempt computes the group's assignment for these consumers and the partitions of each topic."""

    def rebalanced(self, owned: int) -> None:
        """A rebalance has succeeded, with this many partitions owned."""


class CountedZk:
    """A `ZkClient` whose operations are counted."""

    def __init__(self, zk: ZkClient, figures: RebalanceFigures) -> None:
        self._zk = zk
        self._figures = figures

    @property
    def session_id(self) -> int:
        """See `ZkClient.session_id`."""
        return self._zk.session_id

    def on_session(self, listener: SessionListener) -> None:
        """See `ZkClient.on_session`."""
        self._zk.on_session(listener)

    async def create(
        self,
        path: str,
        data: bytes | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """See `ZkClient.create`."""
        self._figures.writes += 1
        return await self._zk.create(path, data, ephemeral=ephemeral, sequential=sequential, make_parents=make_parents)

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes | None, Stat]:
        """See `ZkClient.get`."""
        self._figures.reads += 1
        return await self._zk.get(path, self._counted(watch))

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes | None, Stat] | None]:
        """See `ZkClient.get_many`."""
        self._figures.reads += len(paths)
        return await self._zk.get_many(paths)

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        """See `ZkClient.set`."""
        self._figures.writes += 1
        return await self._zk.set(path, data, version)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """See `ZkClient.delete`."""
        self._figures.writes += 1
        await self._zk.delete(path, version)

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        """See `ZkClient.children`."""
        self._figures.reads += 1
        return await self._zk.children(path, self._counted(watch))

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        """See `ZkClient.exists`."""
        self._figures.reads += 1
        return await self._zk.exists(path, self._counted(watch))

    async def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        """See `ZkClient.multi`."""
        self._figures.writes += len(operations)
        return await self._zk.multi(operations)

    async def close(self) -> None:
        """See `ZkClient.close`."""
        await self._zk.close()

    def _counted(self, watch: Watcher | None) -> Watcher | None:
        if watch is None:
            return None

        def counted(event: WatchEvent) -> None:
            self._figures.events += 1
            watch(event)

        return counted
