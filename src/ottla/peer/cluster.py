"""A cluster as its client uses it: bootstrap, metadata, one connection per broker and purpose, retries.

Operations go through `Cluster.retry`: an attempt that fails with a retriable error is made again
with growing pauses, on fresh metadata, until the operation's time is up.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
import weakref
from collections.abc import Awaitable, Callable, Iterable, Sequence
from difflib import get_close_matches
from math import nan
from typing import Any, TypeVar

from ottla.env.environment import Environment
from ottla.env.process import process_id
from ottla.peer.arguments import fitting, milliseconds
from ottla.peer.bootstrap import connect_to_any
from ottla.peer.connection import PeerConnection, open_connection
from ottla.peer.errors import (
    AuthenticationError,
    BrokerError,
    BrokerUnreachableError,
    ClientClosedError,
    ClientError,
    ClientTimeoutError,
    ConnectError,
    ConnectionLostError,
    ForkedError,
    IllegalStateError,
    NotKafkaError,
    NotLeaderError,
    UnknownTopicError,
    UnresolvableHostError,
)
from ottla.peer.hosts import canonical_servers
from ottla.peer.metadata import NO_NODE, Metadata
from ottla.peer.model import TopicMetadata, TopicPartition
from ottla.peer.reconnects import Reconnects, varied
from ottla.peer.settings import CANONICAL, ConnectionSettings, format_servers, parse_bootstrap_servers
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.schema import Message

_log = logging.getLogger("ottla.peer")

T = TypeVar("T")

SIMILAR_ENOUGH = 0.7
"""Ratio of matching characters (difflib) from which an existing topic is suggested for an unknown one."""

PLAIN = "plain"
FETCH = "fetch"
PRODUCE = "produce"
COORDINATOR = "coordinator"
"""Purposes of connections. A broker handles one request per connection at a time, so requests that may wait for long
(fetches, joins, produce) have connections of their own."""


HANG_UPS_OF_STRANGERS = 2
"""How often a bootstrap server may close its first connection before its diagnosis (TLS, an old broker) is believed."""
MIN_IDLE_CHECK_MS = 10
"""Shortest interval between two checks for idle connections."""
MIN_PAUSE_MS = 5
"""Shortest pause between two attempts, also with retry.backoff.ms=0."""


CONCURRENT_TRANSACTIONS_PAUSE_MS = 20
"""Pause until a coordinator is asked again that still ends the producer's last transaction: it soon has."""


class Cluster:
    """Connections to one cluster, and its metadata. Belongs to one event loop; `close` it at the end."""

    def __init__(self, settings: ConnectionSettings, environment: Environment | None = None) -> None:
        self.settings = settings
        self.environment = environment or Environment()
        self.clock = self.environment.clock
        self.metadata = Metadata()
        self._servers = parse_bootstrap_servers(settings.bootstrap_servers)
        self._connections: dict[tuple[int, str], PeerConnection] = {}
        self._bootstrap: PeerConnection | None = None
        self._opening: dict[tuple[int, str], asyncio.Lock] = {}
        self._refreshing = asyncio.Lock()
        self._refreshed_at_ms = 0.0
        self._was_reached = False
        self._reconnects = Reconnects(settings, self.environment.randomness)
        self._idle_timer: asyncio.TimerHandle | None = None
        self._canonical = settings.client_dns_lookup != CANONICAL
        #: Addresses that have answered in Kafka's protocol before.
        self._spoken_to: set[tuple[str, int]] = set()
        self._closed = False
        self._process = process_id()
        #: The event loop of its first use, to which it belongs.
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def name(self) -> str:
        """The cluster for messages: its bootstrap servers."""
        return format_servers(self._servers)

    def set_servers(self, servers: Sequence[tuple[str, int]]) -> None:
        """Replace the bootstrap servers; they are tried after the known brokers."""
        self._servers = list(servers)

    @property
    def metadata_age_s(self) -> float:
        """Seconds since the last metadata response; NaN before the first."""
        if not self._refreshed_at_ms:
            return nan
        return (self.clock.monotonic_ms() - self._refreshed_at_ms) / 1000

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        if process_id() != self._process:
            # The sockets, and the loop's poll of them, are the parent's: nothing of theirs may be touched.
            return
        at_home = not self.is_abroad
        if self._idle_timer is not None and at_home:
            self._idle_timer.cancel()
        for connection in [*self._connections.values(), *filter(None, [self._bootstrap])]:
            if at_home:
                connection.close()
            else:
                connection.abandon()
        self._connections.clear()
        self._bootstrap = None

    async def retry(
        self,
        what: str,
        attempt: Callable[[], Awaitable[T]],
        timeout_ms: int | None = None,
        *,
        whole_ms: int | None = None,
    ) -> T:
        """Run `attempt` until it succeeds, and return its result; retriable errors are retried with growing pauses.

        Raises the error itself where it is not retriable, or was repeated `retries` times; ClientTimeoutError that
        names it, with the last error, when the time (`default_api_timeout_ms`) is up, be it in an attempt. Where this
        is one step of several, `whole_ms` is the time that the error names, which the user has set for all of them.
        """
        self._check_open()
        settings = self.settings
        if timeout_ms is None:
            timeout_ms = max(settings.default_api_timeout_ms, settings.request_timeout_ms)
        milliseconds("timeout_ms", timeout_ms)
        deadline = self.clock.monotonic_ms() + timeout_ms
        whole_ms = timeout_ms if whole_ms is None else whole_ms
        backoff_ms = settings.retry_backoff_ms
        attempts = 0
        last: ClientError | None = None
        while True:
            left_ms = deadline - self.clock.monotonic_ms()
            try:
                async with asyncio.timeout(max(left_ms, 0) / 1000) as limit:
                    return await attempt()
            except ClientError as error:
                attempts += 1
                if not error.retriable or attempts > settings.retries:
                    raise
                if self.clock.monotonic_ms() + backoff_ms >= deadline:
                    raise _too_late(self.name, what, whole_ms, error) from error
                last = error
                if isinstance(error, BrokerError) and error.code == ErrorCode.CONCURRENT_TRANSACTIONS:
                    await asyncio.sleep(CONCURRENT_TRANSACTIONS_PAUSE_MS / 1000)
                    continue
            except TimeoutError:
                if not limit.expired():
                    raise
                raise _too_late(self.name, what, whole_ms, last) from last
            self.metadata.expire()
            await asyncio.sleep(max(self.jittered(backoff_ms), MIN_PAUSE_MS) / 1000)
            backoff_ms = min(backoff_ms * 2, settings.retry_backoff_max_ms)

    def jittered(self, pause_ms: float) -> float:
        """A pause between two attempts, a little longer or shorter by chance, so that clients do not return together.

        Source: KIP-580.
        """
        return varied(pause_ms, self.environment.randomness)

    async def request(self, node_id: int, message: Message, *, purpose: str = PLAIN, **options: Any) -> Any:
        """Response of one broker; `options` are those of `PeerConnection.request`."""
        connection = await self.connection(node_id, purpose)
        return await connection.request(message, **options)

    async def request_any(self, message: Message) -> Any:
        """Response of any broker."""
        return await (await self.any_connection()).request(message)

    async def request_controller(self, message: Message, **options: Any) -> Any:
        """Response of the controller, which is looked up again after a failure."""
        if self.metadata.controller_id == NO_NODE or not self.metadata.nodes:
            await self.refresh([])
        if self.metadata.controller_id == NO_NODE:
            raise BrokerError(ErrorCode.NOT_CONTROLLER, f"the cluster at {self.name} has no controller at the moment")
        try:
            return await self.request(self.metadata.controller_id, message, **options)
        except BaseException:
            self.metadata.controller_id = NO_NODE  # it may be gone, and another one in its place
            raise

    async def connection(self, node_id: int, purpose: str = PLAIN) -> PeerConnection:
        """Open connection to the broker; connects if there is none."""
        key = (node_id, purpose)
        async with self._opening.setdefault(key, asyncio.Lock()):
            self._check_open()
            connection = self._connections.get(key)
            if connection is None or not connection.is_open:
                node = self.metadata.nodes.get(node_id)
                if node is None:
                    raise BrokerUnreachableError(f"broker {node_id} is not part of {self.name} now", retriable=True)
                try:
                    connection = await self._open(node.host, node.port)
                except ConnectError as error:
                    # A broker of the cluster that closes the connection without an answer is being stopped, or killed,
                    # or is behind a proxy and down: it comes back. So does its name, which some networks know
                    # only while it runs; Java's clients try on, too.
                    passes = isinstance(error, UnresolvableHostError | BrokerUnreachableError)
                    raise type(error)(
                        f"{error} (broker {node_id} of {self.name} is known by this address: advertised.listeners)",
                        retriable=error.retriable or passes,
                    ) from error
                self._connections[key] = connection
            return connection

    def disconnect(self, node_id: int, purpose: str) -> None:
        """Close that connection to the broker, if there is one: requests that wait there fail with a retriable error.

        Who asks the broker for something afterwards gets a new connection.
        """
        if (connection := self._connections.pop((node_id, purpose), None)) is not None:
            connection.close()

    async def _open(self, host: str, port: int, *, is_repeated: bool = False) -> PeerConnection:
        """Open a connection. During the reconnect backoff of the address its last error is raised again.

        `is_repeated` says that the caller tries again where it is hung up.
        """
        address = (host, port)
        held_back = self._reconnects.holds_back(address, self.clock.monotonic_ms())
        if held_back is not None:
            raise held_back
        try:
            connection = await open_connection(
                host,
                port,
                self.settings,
                self.environment,
                self._reconnects.timeout_ms(address),
                look_twice=address not in self._spoken_to,
                hang_up_explained=not is_repeated,
            )
        except ConnectError as error:
            self._reconnects.failed(address, self.clock.monotonic_ms(), error)
            raise
        if self._closed:  # meanwhile
            connection.close()
            self._check_open()
        self._reconnects.succeeded(address)
        self._spoken_to.add(address)
        if self._idle_timer is None and self.settings.connections_max_idle_ms >= 0:
            self._close_idle()
        return connection

    def _close_idle(self) -> None:
        """Close connections that were idle for `connections.max.idle.ms`, and schedule the next check."""
        idle_ms = self.settings.connections_max_idle_ms
        now_ms, next_due_ms = self.clock.monotonic_ms(), float(idle_ms)
        for connection in [*self._connections.values(), *filter(None, [self._bootstrap])]:
            if connection.is_open and not connection.is_waiting:
                left_ms = connection.used_at_ms + idle_ms - now_ms
                if left_ms <= 0:
                    connection.close_because(ConnectionLostError(f"{connection.address} was idle", retriable=True))
                else:
                    next_due_ms = min(next_due_ms, left_ms)
        loop = asyncio.get_running_loop()
        self._idle_timer = loop.call_later(
            max(next_due_ms, MIN_IDLE_CHECK_MS) / 1000, _close_idle_of, weakref.ref(self)
        )

    async def any_connection(self) -> PeerConnection:
        """Open connection to any broker: an existing one, else a new one to a known broker or a bootstrap server.

        Those with a purpose are left alone: behind a fetch or a join that waits, an answer would wait, too.
        """
        async with self._opening.setdefault((NO_NODE, PLAIN), asyncio.Lock()):
            self._check_open()
            plain = [connection for (_, purpose), connection in self._connections.items() if purpose == PLAIN]
            for connection in [*plain, *filter(None, [self._bootstrap])]:
                if connection.is_open and not connection.owes_answer:
                    return connection
            return await self._open_any()

    async def _open_any(self) -> PeerConnection:
        known = [(node.host, node.port) for node in self.metadata.nodes.values()]
        if not self._canonical:
            self._servers, self._canonical = await canonical_servers(self.environment.network, self._servers), True
        addresses = list(dict.fromkeys([*known, *self._servers]))
        if not self._was_reached:  # a new call tries without backoff
            for address in addresses:
                self._reconnects.succeeded(address)
        connection, problems = await connect_to_any(addresses, self._open_patiently)
        if connection is None:
            raise self._unreachable([problems[address] for address in addresses])
        if self._closed:  # between its making and this turn
            connection.close()
            self._check_open()
        if self._bootstrap is not None:
            self._bootstrap.close()
        self._bootstrap = connection
        if not self._was_reached:
            for problem in problems.values():
                _log.warning("a server of bootstrap.servers is passed over: %s", problem)
        self._was_reached = True
        return connection

    async def _open_patiently(self, host: str, port: int) -> PeerConnection:
        """As `_open`, with retries while the first contact is closed at once: networks do that at times, TLS always."""
        for _ in range(0 if self._was_reached else HANG_UPS_OF_STRANGERS):
            try:
                return await self._open(host, port, is_repeated=True)
            except NotKafkaError as error:
                if not isinstance(error.__cause__, ConnectionLostError):
                    raise
            self._reconnects.succeeded((host, port))
            await asyncio.sleep(self.settings.retry_backoff_ms / 1000)
        return await self._open(host, port)

    def _unreachable(self, problems: list[ConnectError]) -> ClientError:
        """Combine the errors of all servers; retriable if the cluster was reached before, and trusts the client."""
        for problem in problems:
            if isinstance(problem, AuthenticationError):
                return problem
        first = problems[0]
        if len(problems) == 1:
            first.retriable = self._was_reached
            return first
        found = "; ".join(str(problem) for problem in problems)
        kind = type(first) if len({type(problem) for problem in problems}) == 1 else BrokerUnreachableError
        return kind(f"no broker of {self.name} can be reached: {found}", retriable=self._was_reached)

    def __del__(self, _warn: Any = warnings.warn, _process_id: Any = process_id) -> None:
        if getattr(self, "_closed", True) or _process_id() != self._process:
            return
        if standing := [each for each in (*self._connections.values(), self._bootstrap) if each and each.is_open]:
            _warn(f"a client of {self.name} was dropped without close", ResourceWarning, source=self)
            for connection in standing:
                connection.abandon()

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosedError(f"the client of {self.name} is closed")
        if process_id() != self._process:
            raise ForkedError(f"client of {self.name}")
        self.check_loop()

    def check_loop(self) -> None:
        """IllegalStateError in another event loop than the one that it was first used in."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        elif self.is_abroad:
            raise IllegalStateError(
                f"this client of {self.name} belongs to the event loop that it was first used in, and this is another "
                "one; make a client in each asyncio.run, or use a sync client"
            )

    @property
    def is_abroad(self) -> bool:
        """Whether the caller is in another event loop than the one that it was first used in."""
        if self._loop is None or self._loop is asyncio._get_running_loop():
            return False
        return process_id() == self._process  # to a forked child another error is due

    def check_abandoned(self) -> None:
        """IllegalStateError while its own event loop runs: only that loop may close it then."""
        if self._loop is not None and self._loop.is_running():
            self.check_loop()

    async def refresh(self, topics: Sequence[str] | None, *, allow_auto_topic_creation: bool = False) -> Metadata:
        """Request the metadata of these topics (None: all), of the brokers and the controller.

        A broker that was just started may know neither brokers nor topics yet: nothing is learned from it, and a
        retriable error raised, as Kafka's NetworkClient ignores such an answer.
        """
        wanted = None
        if topics is not None:
            wanted = [MetadataRequestTopic(name=fitting("the name of a topic", name)) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=allow_auto_topic_creation)
        connection = await self.any_connection()
        answer: MetadataResponse = await connection.request(request)
        if not answer.brokers:
            raise ClientError(f"{connection.address} was just started and knows no brokers yet", retriable=True)
        self.metadata.update(answer, complete=topics is None)
        self._refreshed_at_ms = self.clock.monotonic_ms()
        return self.metadata

    async def topics(
        self, names: Sequence[str], *, allow_auto_topic_creation: bool = False, patience_ms: int | None = None
    ) -> list[TopicMetadata]:
        """Metadata of these topics, requested if unknown or expired.

        Raises UnknownTopicError for a topic that does not turn up within `patience_ms` (`unknown_topic_timeout_ms`).
        """
        if patience_ms is None:
            patience_ms = self.settings.unknown_topic_timeout_ms
        waited_until = self.clock.monotonic_ms() + patience_ms
        while True:
            if self._stale(names):
                async with self._refreshing:
                    if stale := self._stale(names):
                        await self.refresh(stale, allow_auto_topic_creation=allow_auto_topic_creation)
            missing = [name for name in names if not self.metadata.is_fresh(name)]
            if not missing:
                return [self.metadata.topics[name] for name in names]
            await self._check_missing(missing[0], patient=self.clock.monotonic_ms() < waited_until)
            await asyncio.sleep(max(self.settings.retry_backoff_ms, MIN_PAUSE_MS) / 1000)

    async def each_topic(self, names: Sequence[str]) -> dict[str, TopicMetadata | BrokerError]:
        """As `topics`, with an error in place of each topic that cannot be used. Raises all other errors."""
        try:
            return dict(zip(names, await self.topics(names), strict=True))
        except BrokerError as error:
            if len(names) == 1:
                return {names[0]: error}
        found = await asyncio.gather(*(self.topics([name], patience_ms=0) for name in names), return_exceptions=True)
        topics: dict[str, TopicMetadata | BrokerError] = {}
        for name, each in zip(names, found, strict=True):
            if isinstance(each, BrokerError):
                topics[name] = each
            elif isinstance(each, BaseException):
                raise each
            else:
                (topics[name],) = each
        return topics

    def _stale(self, names: Sequence[str]) -> list[str]:
        if self.clock.monotonic_ms() - self._refreshed_at_ms > self.settings.metadata_max_age_ms:
            self.metadata.expire()
        return [name for name in names if not self.metadata.is_fresh(name)]

    async def _check_missing(self, name: str, *, patient: bool) -> None:
        code = self.metadata.errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if code == ErrorCode.NONE:  # a topic whose partitions are still being made
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        error = BrokerError(code, f"topic {name} cannot be used")
        if patient and error.retriable:
            return
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise UnknownTopicError(name, self.name, await self.nearest_topic(name))
        raise error

    async def nearest_topic(self, name: str) -> str | None:
        """Existing topic with the most similar name; None if there is none, or no broker can be asked."""
        try:
            return (await self.nearest_topics([name])).get(name)
        except ClientError:
            return None

    async def nearest_topics(self, names: Iterable[str]) -> dict[str, str]:
        """Existing topic with the most similar name for each of `names`; names without one are left out."""
        answer: MetadataResponse = await self.request_any(MetadataRequest(topics=None))
        by_folded = {topic.name.casefold(): topic.name for topic in answer.topics if topic.name}
        nearest = {}
        for name in names:
            if similar := get_close_matches(name.casefold(), by_folded, n=1, cutoff=SIMILAR_ENOUGH):
                nearest[name] = by_folded[similar[0]]
            await asyncio.sleep(0)  # with thousands of topics each takes milliseconds
        return nearest

    async def leader(self, partition: TopicPartition) -> int:
        """Node id of the partition's leader. Raises NotLeaderError (retriable) while there is none."""
        (topic,) = await self.topics([partition.topic])
        leader = self.metadata.leader(*partition)
        if leader is None:
            raise BrokerError(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {partition.topic} has no partition {partition.partition}",
                f"it has the partitions 0 to {len(topic.partitions) - 1}",
            )
        if leader == NO_NODE:
            raise NotLeaderError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} cannot be used")
        return leader

    async def by_leader(self, partitions: Sequence[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """The partitions grouped by the node ids of their leaders."""
        await self.topics(list(dict.fromkeys(partition.topic for partition in partitions)))
        grouped: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            grouped.setdefault(await self.leader(partition), []).append(partition)
        return grouped


def _too_late(servers: str, what: str, timeout_ms: int, last: ClientError | None) -> ClientTimeoutError:
    why = str(last)
    if last is None:
        why = f"no answer came in time; check that {servers} is a listener of brokers, and that none of them hangs"
    return ClientTimeoutError(f"{what} did not succeed within {timeout_ms} ms: {why}")


def _close_idle_of(cluster: weakref.ref[Cluster]) -> None:
    """Timer callback; its weak reference does not keep the cluster alive."""
    if (found := cluster()) is not None:
        found._close_idle()
