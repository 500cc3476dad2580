"""A consumer in its group: registered, watching, and rebalancing in one task however many events arrive.

It sees a `ZkClient`, a `FetchControl`, a store of offsets and a `sleep`; neither threads, sockets nor a clock. So the
same code runs in the connector (in its thread's event loop), in tests on virtual time, and in the simulator.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from ottla.assign.threads import ConsumerThread
from ottla.client.errors import ClientClosedError
from ottla.env.futures import settle
from ottla.zk.client import ConnectionLossError, ForwardingZk, SessionEvent, Watcher, ZkClient
from ottla.zk.layout import ConsumerRegistration
from ottla.zk.tree import SessionExpiredError, SessionMovedError, WatchEvent, ZkError
from ottla.zkconsumer.counters import RebalanceCounters
from ottla.zkconsumer.listeners import Listeners
from ottla.zkconsumer.partition_info import ChunkSink, FetchControl
from ottla.zkconsumer.rebalancer import (
    ConsumerRebalanceFailedError,
    Offsets,
    Rebalancer,
    RebalanceSettings,
    SessionOverError,
)
from ottla.zkconsumer.registration import ConsumerIdInUseError, register

T = TypeVar("T")

_PASSING = (ConnectionLossError, SessionExpiredError, SessionMovedError)
"""Errors of the connection to ZooKeeper, which are retried for ever."""

_log = logging.getLogger("ottla.zkconsumer")


class _CountingZk(ForwardingZk):
    """Counts operations and watch events."""

    def __init__(self, zk: ZkClient, counters: RebalanceCounters) -> None:
        super().__init__(zk)
        self._counters = counters

    async def _forward(
        self, paths: Sequence[str], call: Callable[[], Coroutine[Any, Any, T]], *, changes: bool = False
    ) -> T:
        if changes:
            self._counters.writes += len(paths)
        else:
            self._counters.reads += len(paths)
        return await call()

    def _watcher(self, watch: Watcher | None) -> Watcher | None:
        if watch is None:
            return None

        def counted(event: WatchEvent) -> None:
            self._counters.events += 1
            watch(event)

        return counted


class HighLevelMember:
    """Make it, `start` it once, run `watch` in a task. Its rebalancer has what it owns."""

    def __init__(
        self,
        zk: ZkClient,
        settings: RebalanceSettings,
        registration: ConsumerRegistration,
        fetching: FetchControl,
        offsets: Offsets,
        queue_of: Callable[[ConsumerThread, str], ChunkSink],
        sleep: Callable[[float], Awaitable[object]],
        counters: RebalanceCounters,
        *,
        session_timeout_ms: int = 6000,
        always_watch_brokers: bool = False,
    ) -> None:
        counted = _CountingZk(zk, counters)
        self._zk = counted
        self._settings = settings
        self._registration = registration
        self._sleep = sleep
        self._patience_ms = 2 * session_timeout_ms
        self._triggered = asyncio.Event()
        self._expired = False
        self._is_registered = False
        #: Consecutive refusals of ZooKeeper.
        self._refusals = 0
        self._waiting: list[asyncio.Future[None]] = []
        self._listeners = Listeners(
            counted,
            settings.group,
            registration,
            self.trigger,
            exclude_internal_topics=settings.exclude_internal_topics,
            always_watch_brokers=always_watch_brokers,
        )
        self.rebalancer = Rebalancer(counted, settings, self._listeners, fetching, offsets, queue_of, sleep, counters)
        zk.on_session(self._on_session)

    def trigger(self) -> None:
        """Rebalance soon; once, however often this is called until it begins."""
        self._triggered.set()

    async def rebalance_now(self) -> None:
        """Rebalance, in the task of `watch`, and wait for it. Raises what it ended with."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        self.trigger()
        await done

    def end(self) -> None:
        """Fail pending `rebalance` calls with ClientClosedError."""
        self._settle(self._waiting, ClientClosedError("the connector was shut down before the rebalance ended"))

    async def watch(self) -> None:
        """Rebalance for every event, until cancelled."""
        while True:
            await self._triggered.wait()
            self._triggered.clear()
            waiting = list(self._waiting)
            problem: Exception | None = None
            try:
                await self._round()
            except ZkError as error:
                problem = error
                _log.warning("%s has trouble with ZooKeeper and tries again: %s", self._settings.consumer, error)
                self._count_refusal(waiting, error)
                await self._sleep(self._settings.backoff_ms / 1000)
            except SessionOverError as error:
                problem = error
                _log.info("%s: %s; it registers again", self._settings.consumer, error)
            except Exception as error:
                _log.error("%s", error, exc_info=not isinstance(error, ConsumerRebalanceFailedError))
                self._settle(waiting, error)
                if isinstance(error, ConsumerIdInUseError) and not waiting:
                    self.trigger()  # the id belongs to another session, which may end
            else:
                self._refusals = 0
                self._settle(waiting, None)
            if problem is not None and (isinstance(problem, ZkError) or not self._expired):
                self.trigger()

    async def _round(self) -> None:
        if self._expired or not self._is_registered:
            # What follows happens in the session that is now; should it end, the flag is set again.
            self._expired = self._is_registered = False
            self._listeners.forget()
            await self.rebalancer.begin_session()
            await register(
                self._zk,
                self._settings.group,
                self._settings.consumer,
                self._registration,
                self._sleep,
                self._patience_ms,
            )
            self._is_registered = True
        await self._listeners.arm()
        await self.rebalancer.rebalance()

    def _count_refusal(self, waiting: list[asyncio.Future[None]], error: ZkError) -> None:
        """Fail pending `rebalance` calls with an error that ZooKeeper keeps returning; retries continue."""
        if isinstance(error, _PASSING):
            return
        self._refusals += 1
        if self._refusals >= self._settings.max_retries:
            self._refusals = 0
            refused = ConsumerRebalanceFailedError(
                f"ZooKeeper refuses what {self._settings.consumer} needs there ({error}), {self._settings.max_retries} "
                "times in a row (rebalance.max.retries); see to it that clients may read and write below /consumers "
                "and read below /brokers"
            )
            refused.__cause__ = error
            self._settle(waiting, refused)

    def _settle(self, waiting: list[asyncio.Future[None]], error: Exception | None) -> None:
        self._waiting = [future for future in self._waiting if future not in waiting]
        for future in waiting:
            settle(future, None, error)

    def _on_session(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            _log.warning("%s has lost its session with ZooKeeper", self._settings.consumer)
            self._expired = True
            self.rebalancer.session_over()
        elif event is SessionEvent.CONNECTED and self._expired:
            self.trigger()
