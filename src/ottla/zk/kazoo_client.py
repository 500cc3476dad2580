"""A session with a ZooKeeper over the wire, through kazoo: asyncio on this side, kazoo's one thread on the other.

kazoo's thread reads what the server sends and passes all of it to the event loop in that order: responses, watch
events, session state. So a watch is called before the read that shows its change returns, as ZooKeeper guarantees. The
module is imported only where a ZooKeeper over the wire is used; without kazoo that raises MissingExtraError.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from ottla.records.extras import require_extra

require_extra("a connection to ZooKeeper", "zookeeper", "kazoo")

from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState, KeeperState, WatchedEvent

from ottla.zk.access import ZkAccess
from ottla.zk.address import ZkAddress
from ottla.zk.client import (
    ConnectionLossError,
    OwnSession,
    SessionEvent,
    Watcher,
    ZkUnreachableError,
    operation_bytes,
    with_acls,
)
from ottla.zk.errors import UnimplementedError
from ottla.zk.kazoo_quiet import DirectHandler, KazooLogger
from ottla.zk.kazoo_requests import MultiRead, kazoo_acl, results_of, stat_of, transaction, translated
from ottla.zk.registered_watches import RegisteredWatches
from ottla.zk.tree import (
    BadArgumentsError,
    Create,
    EventType,
    NodeExistsError,
    NoNodeError,
    Operation,
    Result,
    SessionExpiredError,
    Stat,
    WatchEvent,
    ZkError,
    check_path,
)

log = logging.getLogger("ottla.zookeeper")

T = TypeVar("T")

#: Pending requests, as `zookeeper.max.in.flight.requests`, and the upper limit of that setting: beyond a few hundred
#: kazoo would block the caller, which is the event loop.
MOST_IN_FLIGHT, HIGHEST_IN_FLIGHT = 10, 100
#: Attempts of a read whose connection is lost before the response.
MOST_READS = 10
#: Limit of a request, in bytes, as ZooKeeper's `jute.maxbuffer`: a server closes the connection on a larger one.
LARGEST_REQUEST = 1024 * 1024 - 1
#: Nodes that are read in one request.
MOST_IN_A_READ = 100
#: Watches that are set again concurrently after a reconnect.
MOST_REARMED_AT_ONCE = 100
#: Backoff between attempts to connect, seconds.
FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 0.1, 1.0
#: Timeout for closing a session, seconds; after it the session is left to expire.
CLOSE_TIMEOUT_S = 10.0

OPEN_ACCESS = ZkAccess()

_EVENTS = {event.name: event for event in EventType} | {
    "CHANGED": EventType.DATA_CHANGED,
    "CHILD": EventType.CHILDREN_CHANGED,
}


async def connect_kazoo(
    address: ZkAddress | str,
    session_timeout_ms: int,
    connection_timeout_ms: int,
    *,
    most_in_flight: int = MOST_IN_FLIGHT,
    access: ZkAccess = OPEN_ACCESS,
) -> KazooZk:
    """Open a session, and create the chroot if it is missing.

    Raises `ZkUnreachableError` if no server responds in time, `ZkAddressError` for an invalid address.
    """
    parsed = ZkAddress.parse(address) if isinstance(address, str) else address
    zk = KazooZk(parsed, session_timeout_ms, most_in_flight, access)
    try:
        async with asyncio.timeout(connection_timeout_ms / 1000):
            await zk.start()
    except (TimeoutError, ZkError) as error:
        reason = zk.last_problem or (str(error) if isinstance(error, ZkError) else "no answer")
        await zk.close()
        cure = "Start it, or correct the address (zookeeper.connect)"
        if "[SSL" in reason:
            cure = "Check zookeeper.ssl.keystore.location, zookeeper.ssl.truststore.location and the server's name"
        raise ZkUnreachableError(
            f"No ZooKeeper could be used at {parsed} within {connection_timeout_ms} ms ({reason}). {cure}"
        ) from error
    except BaseException:
        await zk.close()
        raise
    return zk


class KazooZk(OwnSession):
    """`ZkClient` over the wire. Made by `connect_kazoo`, and used in the event loop in which it was made.

    Calls without a connection wait for one, up to the session timeout; reads whose connection is lost are retried. A
    change whose connection is lost raises `ConnectionLossError`: it may or may not have been made.
    """

    def __init__(
        self,
        address: ZkAddress,
        session_timeout_ms: int,
        most_in_flight: int = MOST_IN_FLIGHT,
        access: ZkAccess = OPEN_ACCESS,
    ) -> None:
        super().__init__()
        self._acl_of = access.acl_of
        self.address = address
        self._loop = asyncio.get_running_loop()
        self._patience_s = session_timeout_ms / 1000
        self._in_flight = asyncio.Semaphore(min(most_in_flight, HIGHEST_IN_FLIGHT))
        self._logger = KazooLogger()
        self._client: Any = KazooClient(
            hosts=address.servers,
            timeout=self._patience_s,
            handler=DirectHandler(access.tls),
            connection_retry={"max_tries": -1, "delay": FIRST_BACKOFF_S, "max_delay": LONGEST_BACKOFF_S},
            logger=self._logger,
        )
        #: The end of the first login: why it is refused, None if it is not.
        self._first_login: asyncio.Future[str | None] = self._loop.create_future()
        if access.login is None:
            self._first_login.set_result(None)
        else:
            from ottla.zk.kazoo_sasl import log_in_with

            log_in_with(self._client, access.login, partial(self._in_loop, self._login_ended, access.login.user))
        self._client.add_listener(self._state_changed)
        self._watches = RegisteredWatches()
        self._ready = asyncio.Event()
        self._lost_at = self._loop.time()
        self._resuming: asyncio.Task[None] | None = None
        self._last_event: SessionEvent | None = None
        self._closed = False
        #: Whether the servers read many nodes in one request, as far as is known.
        self._has_multi_read = True

    # The session

    @property
    def last_problem(self) -> str:
        """Last message of kazoo about a failed connection; empty if there is none."""
        return self._logger.last_problem

    async def start(self) -> None:
        """Connect, without a timeout, log in, and create the chroot if it is missing.

        Raises `ZkUnreachableError` where the login is refused.
        """
        self._client.start_async()
        refusal = await self._first_login  # kazoo is connected before it
        if refusal is not None:
            raise ZkUnreachableError(refusal)
        await self._ready.wait()
        await self._make_chroot()

    def _login_ended(self, user: str, cause: str | None) -> None:
        if not self._first_login.done():
            refusal = f"ZooKeeper at {self.address} refuses the login of user {user!r} ({cause})"
            self._first_login.set_result(None if cause is None else refusal)

    async def _make_chroot(self) -> None:
        path = ""
        for name in self.address.chroot.split("/")[1:]:
            path = f"{path}/{name}"
            acl = None if self._acl_of is None else kazoo_acl(self._acl_of(path))
            with suppress(NodeExistsError):
                await self._once(path, partial(self._client.create_async, path, None, acl), _unchanged)

    async def close(self) -> None:
        """See `ZkClient.close`."""
        if self._closed:
            return
        self._closed = True
        self._ready.set()  # callers waiting for a connection find the session closed
        if self._resuming is not None:
            self._resuming.cancel()
        ended: asyncio.Future[None] = self._loop.create_future()
        self._client.handler.spawn(self._end, ended)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await ended

    def _end(self, ended: asyncio.Future[None]) -> None:
        """In a thread: kazoo blocks until the server has closed the session."""
        try:
            self._client.stop()
            self._client.close()
        finally:
            self._in_loop(lambda: None if ended.done() else ended.set_result(None))

    def _in_loop(self, function: Callable[..., object], *arguments: object) -> None:
        """Schedule a callback on the loop, in the order of these calls. Thread-safe."""
        with suppress(RuntimeError):  # the loop is closed: no callers are left
            self._loop.call_soon_threadsafe(function, *arguments)

    def _state_changed(self, state: KazooState) -> None:
        """Called in kazoo's thread."""
        if state == KazooState.CONNECTED:
            self._in_loop(self._connected, self._client.client_id[0])
        elif state == KazooState.SUSPENDED:
            self._in_loop(self._lost, SessionEvent.SUSPENDED, False)
        else:
            # kazoo reconnects by itself only after an expiry.
            self._in_loop(self._lost, SessionEvent.EXPIRED, self._client.client_state != KeeperState.EXPIRED_SESSION)

    def _connected(self, session_id: int) -> None:
        self._session_id = session_id
        self._logger.last_problem = ""
        if not self._closed:
            self._resuming = self._loop.create_task(self._resume())

    async def _resume(self) -> None:
        """Deliver missed watch events, then release waiting calls."""
        try:
            await self._rearm()
        except ZkError:
            return  # the connection is lost again, so this runs again
        self._ready.set()
        self._notify(SessionEvent.CONNECTED)

    def _lost(self, event: SessionEvent, stopped: bool) -> None:
        """The connection or, with EXPIRED, the session is lost; `stopped`: kazoo does not reconnect."""
        if self._closed:
            return
        if self._resuming is not None:
            self._resuming.cancel()
        self._ready.clear()
        self._lost_at = self._loop.time()
        if event is SessionEvent.EXPIRED:
            self._watches.clear()
        if event is not self._last_event:
            self._notify(event)
        if stopped:
            log.warning("the connection to ZooKeeper at %s ended (%s); making another", self.address, self.last_problem)
            self._loop.call_later(LONGEST_BACKOFF_S, self._start_again)

    def _start_again(self) -> None:
        if not self._closed:
            self._client.handler.spawn(self._client.start_async)

    def _notify(self, event: SessionEvent) -> None:
        self._last_event = event
        for listener in self._listeners:
            listener(event)

    # Watches

    def _event(self, event: WatchedEvent) -> None:
        """Called in kazoo's thread when a watch fires. Session events are ignored; they have their own listeners."""
        kind = _EVENTS.get(event.type)
        if kind is not None:
            self._in_loop(self._fire, WatchEvent(kind, self._bare(event.path)))

    def _fire(self, event: WatchEvent | None) -> None:
        if event is not None:
            for watcher in self._watches.fire(event):
                self._loop.call_soon(watcher, event)

    async def _rearm(self) -> None:
        """Set all watches again, and fire those whose node has changed meanwhile."""
        reads = [self._rearm_data(path) for path in self._watches.data_paths]
        reads += [self._rearm_children(path) for path in self._watches.children_paths]
        try:
            while reads:
                now = [self._loop.create_task(reads.pop(0)) for _ in range(min(len(reads), MOST_REARMED_AT_ONCE))]
                await asyncio.gather(*now)
        finally:
            for left in reads:
                left.close()

    async def _rearm_data(self, path: str) -> None:
        def missed(stat: Any) -> None:
            self._fire(self._watches.missed_of_data(path, None if stat is None else stat_of(stat)))

        try:
            await self._once(path, lambda: self._client.exists_async(self._full(path), self._event), missed)
        except (ConnectionLossError, SessionExpiredError):
            raise
        except ZkError:
            self._fire(WatchEvent(EventType.DATA_CHANGED, path))

    async def _rearm_children(self, path: str) -> None:
        def missed(answer: Any) -> None:
            self._fire(self._watches.missed_of_children(path, stat_of(answer[1])))

        try:
            await self._once(
                path, lambda: self._client.get_children_async(self._full(path), self._event, include_data=True), missed
            )
        except NoNodeError:
            self._fire(self._watches.missed_of_children(path, None))
        except (ConnectionLossError, SessionExpiredError):
            raise
        except ZkError:
            # It can no longer be read: watchers get the error when they read it.
            self._fire(WatchEvent(EventType.CHILDREN_CHANGED, path))

    # Calls

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes | None, Stat]:
        """See `ZkClient.get`."""

        def read(answer: Any) -> tuple[bytes | None, Stat]:
            data, stat = answer[0], stat_of(answer[1])
            if watch is not None:
                self._watches.watch_data(path, watch, stat)
            return data, stat

        return await self._read(path, self._client.get_async, watch, read)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes | None, Stat] | None]:
        """See `ZkClient.get_many`. Servers before ZooKeeper 3.6 are asked for one node at a time."""
        found: list[tuple[bytes | None, Stat] | None] = []
        for start in range(0, len(paths), MOST_IN_A_READ):
            part = paths[start : start + MOST_IN_A_READ]
            if self._has_multi_read:
                try:
                    found += await self._get_together(part)
                except UnimplementedError:
                    # The server closes the connection, too; the session continues in the next one.
                    self._has_multi_read = False
                else:
                    continue
            found += await asyncio.gather(*map(self._find, part))
        return found

    async def _get_together(self, paths: Sequence[str]) -> list[tuple[bytes | None, Stat] | None]:
        for path in paths:
            check_path(path)

        def ask(path: str, _event: object) -> Any:
            if not self._has_multi_read:  # another read has found that out since
                raise UnimplementedError(path)
            answer = self._client.handler.async_result()
            self._client._call(MultiRead([self._full(path) for path in paths]), answer)  # as kazoo's transactions do
            return answer

        def read(answers: Any) -> list[tuple[bytes | None, Stat] | None]:
            found: list[tuple[bytes | None, Stat] | None] = []
            for path, answer in zip(paths, answers, strict=True):
                error = translated(answer, path) if isinstance(answer, Exception) else None
                if error is not None and not isinstance(error, NoNodeError):
                    raise error
                found.append(None if error is not None else answer)
            return found

        return await self._read(paths[0], ask, None, read)

    async def _find(self, path: str) -> tuple[bytes | None, Stat] | None:
        try:
            return await self.get(path)
        except NoNodeError:
            return None

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        """See `ZkClient.exists`."""

        def read(answer: Any) -> Stat | None:
            stat = None if answer is None else stat_of(answer)
            if watch is not None:
                self._watches.watch_data(path, watch, stat)
            return stat

        return await self._read(path, self._client.exists_async, watch, read)

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        """See `ZkClient.children`."""

        def read(answer: Any) -> list[str]:
            names, stat = answer
            if watch is not None:
                self._watches.watch_children(path, watch, stat_of(stat))
            return sorted(names)

        return await self._read(path, partial(self._client.get_children_async, include_data=True), watch, read)

    async def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        """See `ZkClient.multi`. Raises `BadArgumentsError` above the size limit of a request."""
        if not operations:
            return ()
        for operation in operations:
            # A sequential node's name may consist of its number alone.
            is_sequential = isinstance(operation, Create) and operation.sequential
            check_path((operation.path.rstrip("/") or "/") if is_sequential else operation.path)
        size = sum(operation_bytes(operation) + len(self.address.chroot.encode()) for operation in operations)
        if size > LARGEST_REQUEST:
            reason = f"{size} bytes are more than ZooKeeper takes in one request ({LARGEST_REQUEST}, jute.maxbuffer)"
            raise BadArgumentsError(operations[0].path, reason)
        async with self._in_flight:
            await self._connection(operations[0].path)
            return await self._once(
                operations[0].path,
                lambda: transaction(self._client, with_acls(operations, self._acl_of), self._full).commit_async(),
                lambda answer: tuple(results_of(operations, answer, self._bare)),
            )

    async def _read(self, path: str, ask: Callable[..., Any], watch: Watcher | None, read: Callable[[Any], T]) -> T:
        """Send `ask(path, watch)`, again if the connection is lost before the response, and `read` the response."""
        check_path(path)
        event = self._event if watch is not None else None
        attempts = 0
        async with self._in_flight:
            while True:
                await self._connection(path)
                attempts += 1
                try:
                    return await self._once(path, partial(ask, self._full(path), event), read)
                except ConnectionLossError:
                    if attempts >= MOST_READS:
                        raise

    async def _connection(self, path: str) -> None:
        """Wait for a connection, as long as the session may still exist without one."""
        if self._ready.is_set() and not self._closed and not self._client.connected:
            # kazoo fails what is pending before it reports the loss, and with it what is asked meanwhile.
            self._ready.clear()
            self._lost_at = self._loop.time()
        try:
            async with asyncio.timeout_at(self._lost_at + self._patience_s if not self._ready.is_set() else None):
                await self._ready.wait()
        except TimeoutError:
            away_s = self._loop.time() - self._lost_at
            reason = f"no ZooKeeper at {self.address} for {away_s:.0f} s"
            if self.last_problem:
                reason += f" ({self.last_problem})"
            raise ConnectionLossError(path, reason) from None
        if self._closed:
            raise ConnectionLossError(path, "the session was closed")

    def _once(self, path: str, ask: Callable[[], Any], read: Callable[[Any], T]) -> asyncio.Future[T]:
        """Send once. The response is read on the loop before later messages, so that no watch event is missed."""
        future: asyncio.Future[T] = self._loop.create_future()

        def answered(result: Any) -> None:
            if future.done():
                return  # the caller was cancelled
            if result.exception is not None:
                future.set_exception(translated(result.exception, path))
                return
            try:
                future.set_result(read(result.value))
            except Exception as error:  # a caller that never hears of it would wait for good
                future.set_exception(error)

        ask().rawlink(lambda result: self._in_loop(answered, result))
        return future

    def _full(self, path: str) -> str:
        """The path on the server, with the chroot."""
        chroot = self.address.chroot
        return path if not chroot else chroot if path == "/" else chroot + path

    def _bare(self, path: str) -> str:
        """The path below the chroot."""
        return path.removeprefix(self.address.chroot) or "/"


def _unchanged(answer: Any) -> Any:
    return answer
