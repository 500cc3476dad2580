"""The parts of a consumer, put together: shared by the asyncio consumer and the sync client.

Positions, membership and requests are handled in one event loop (`wait_for_data`). Another thread may take records out
of the fetched data (`collect`), so that it need not wait for the loop. Records handed out move the position only when
the caller makes its next call (`settle`), so an interrupted call loses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterator
from typing import Any, TypeVar

from ottla.client.client_metrics import Metrics
from ottla.client.configs.consumer import ConsumerConfig
from ottla.client.consumer.completed_fetch import CompletedFetch, Decoding, Records
from ottla.client.consumer.consumer_metadata import ConsumerMetadata
from ottla.client.consumer.consumer_metrics import ConsumerMetrics
from ottla.client.consumer.coordinator import ConsumerCoordinator
from ottla.client.consumer.fetch_buffer import FetchBuffer
from ottla.client.consumer.fetch_collector import FetchCollector, HandedOut, Move
from ottla.client.consumer.fetcher import Fetcher
from ottla.client.consumer.group_config import GroupConfig
from ottla.client.consumer.health import (
    WHY_NOT_FETCHING,
    ConsumerHealth,
    HealthCause,
    HealthFinding,
    group_findings,
    partition_findings,
    problem_finding,
)
from ottla.client.consumer.listener import UserCall, call_here
from ottla.client.consumer.offset_fetcher import OffsetFetcher
from ottla.client.consumer.records import ConsumerRecords
from ottla.client.consumer.subscription_state import (
    FetchPosition,
    FetchState,
    OffsetReset,
    PartitionState,
    SubscriptionState,
)
from ottla.client.errors import ClientError, InvalidOffsetError, NoOffsetForPartitionError, WakeupError, as_client_error
from ottla.client.interceptors import ConsumerInterceptors
from ottla.client.model import TopicPartition
from ottla.client.serialization import close_each, make_deserializers
from ottla.peer.cluster import Cluster
from ottla.peer.model import READ_COMMITTED, READ_UNCOMMITTED
from ottla.records.consumed import ConsumerRecord

T = TypeVar("T")
Handed = TypeVar("Handed")

FOREVER_MS = float("inf")
UNDECIDED = (FetchState.INITIALIZING, FetchState.AWAIT_VALIDATION)
"""States of a partition whose position could not be looked up or validated; it stays so until the caller seeks."""


class ConsumerDelegate:
    """See the module. Make it anywhere; call `open` and `close` in its event loop."""

    def __init__(self, config: ConsumerConfig, cluster: Cluster, call: UserCall = call_here) -> None:
        self.config = config
        self.cluster = cluster
        self.read_committed = config.isolation_level == "read_committed"
        self.subscriptions = SubscriptionState(OffsetReset(config.auto_offset_reset))
        self.buffer = FetchBuffer(config.fetch_max_bytes)
        self._deserializers = make_deserializers(config)
        self.decoding = Decoding.of(config, self._deserializers)
        self.interceptors = ConsumerInterceptors.of(config)
        self._metrics = Metrics(cluster.clock, config.metrics_num_samples, config.metrics_sample_window_ms)
        self.consumer_metrics = ConsumerMetrics(
            self._metrics, cluster.clock, self.subscriptions, read_committed=self.read_committed
        )
        self.collector = FetchCollector(self.subscriptions, self.buffer)
        self.metadata = ConsumerMetadata(
            cluster, self.subscriptions, self._on_metadata, allow_auto_topic_creation=config.allow_auto_create_topics
        )
        self.fetcher = Fetcher(
            cluster,
            config,
            self.decoding,
            self.subscriptions,
            self.buffer,
            self.metadata,
            self.consumer_metrics,
            self.notify,
        )
        self.positions = OffsetFetcher(cluster, self.subscriptions, self.metadata, self.isolation_level, self.notify)
        self.coordinator = self._coordinator(call)
        """None without group.id."""
        self.error: ClientError | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        self._validated_version = 0
        self._committed_lookup: asyncio.Task[None] | None = None
        self._looked_up: dict[TopicPartition, PartitionState] = {}
        self._woken = False
        self._interruptible: list[asyncio.Timeout] = []
        self.handed_out = HandedOut()

    def _coordinator(self, call: UserCall) -> ConsumerCoordinator | None:
        if not self.config.group_id:
            return None
        return ConsumerCoordinator(
            self.cluster,
            GroupConfig.of(self.config),
            self.subscriptions,
            self.metadata,
            self.notify,
            call=call,
            on_commit=self.interceptors.on_commit if self.interceptors else None,
        )

    @property
    def isolation_level(self) -> int:
        """The isolation level as a request field."""
        return READ_COMMITTED if self.read_committed else READ_UNCOMMITTED

    def open(self) -> None:
        """Start in the current event loop. Raises IllegalStateError if called later in another one."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        self.cluster.check_loop()

    async def abandon(self) -> None:
        """Same as `close`, but from another loop after its own was closed: its tasks have ended with that loop."""
        self.cluster.check_abandoned()
        await self.cluster.close()
        self._close_user_code()

    async def close(self) -> None:
        """Stop everything except the coordinator, which must have left before."""
        await self.metadata.close()
        if self._committed_lookup is not None:
            self._committed_lookup.cancel()
            await asyncio.gather(self._committed_lookup, return_exceptions=True)
        await self.fetcher.close()
        await self.positions.close()
        await self.cluster.close()
        self._close_user_code()

    def _close_user_code(self) -> None:
        self.interceptors.close()
        close_each(self._deserializers)

    # Notification and wakeup

    def notify(self) -> None:
        """In the loop: wake the waiting call."""
        self._changed.set()

    def _on_metadata(self) -> None:
        self.fetcher.send()
        self.positions.start()
        self.notify()

    def fetch_soon(self) -> None:
        """From any thread: there is room for more, or something else to fetch."""
        self._call_soon(self._fetch)

    def _call_soon(self, function: Callable[[], None]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function)

    def _fetch(self) -> None:
        self.metadata.check()
        self.fetcher.send()

    def wakeup(self) -> None:
        """From any thread: make the waiting call, or else the next one that would wait, raise WakeupError."""
        self._woken = True
        self._call_soon(self._interrupt)

    def _interrupt(self) -> None:
        if self._woken and self._interruptible and not self._interruptible[-1].expired():
            self._interruptible[-1].reschedule(asyncio.get_running_loop().time())

    async def interruptible(self, work: Awaitable[T]) -> T:
        """Return the result of `work`; raises WakeupError as soon as `wakeup` is called."""
        try:
            async with asyncio.timeout(None) as scope:
                self._interruptible.append(scope)
                try:
                    if self._woken:
                        self._interrupt()
                        await asyncio.sleep(0)
                    return await work
                finally:
                    self._interruptible.remove(scope)
                    if asyncio.iscoroutine(work):
                        work.close()
        except TimeoutError:
            if scope.expired():
                self._woken = False
                raise WakeupError("wakeup was called") from None
            raise

    # Positions

    def intercepted(self, gathered: dict[TopicPartition, Records]) -> ConsumerRecords[Any, Any]:
        """Return the records for the user, passed through the interceptors."""
        records: ConsumerRecords[Any, Any] = ConsumerRecords(gathered)
        return self.interceptors.on_consume(records) if gathered and self.interceptors else records

    def hand_out_chunk(
        self, gathered: dict[TopicPartition, list[ConsumerRecord[Any, Any]]], moves: dict[TopicPartition, Move]
    ) -> Iterator[ConsumerRecord[Any, Any]]:
        """Return an iterator over records of one partition; each counts as read when it is taken."""
        ((partition, records),) = gathered.items()
        if self.interceptors:
            records = list(self.intercepted(gathered))
        move = moves.pop(partition)
        for passed_over in moves.values():
            passed_over.settle()
        return self.handed_out.iterate(records, move)

    def collect(
        self,
        most: int,
        take: Callable[[CompletedFetch, int], tuple[list[Handed], int]],
        *,
        most_partitions: int = 0,
        once: bool = False,
    ) -> tuple[dict[TopicPartition, list[Handed]], dict[TopicPartition, Move]]:
        """Collect what can be returned now; see `FetchCollector.collect`. Without records, positions move at once."""
        if self.coordinator is not None:
            self.coordinator.polled()
        gathered, moves, count, drained = self.collector.collect(most, take, most_partitions=most_partitions, once=once)
        self.consumer_metrics.polled(count)
        if not gathered:
            for move in moves.values():
                move.settle()
        if drained:
            self.fetch_soon()
        return gathered, moves

    # Metrics and health

    def metrics(self) -> dict[str, float]:
        """Return metrics by Kafka's names, those of the group included."""
        values = self._metrics.read()
        return values if self.coordinator is None else values | self.coordinator.metrics()

    def health(self) -> ConsumerHealth:
        """Return whether the consumer makes progress and, if not, why."""
        partitions, now_ms = self.subscriptions.snapshot(), self.cluster.clock.monotonic_ms()
        unknown = self.metadata.unknown.errors
        findings, reads = partition_findings({each: at for each, at in partitions.items() if each.topic not in unknown})
        findings += [HealthFinding(HealthCause.TOPIC_MISSING, str(error)) for error in unknown.values()]
        state = self.subscriptions.type.value
        if self.subscriptions.has_no_subscription_or_user_assignment:
            nothing = "the consumer reads nothing: call subscribe or assign"
            findings.append(HealthFinding(HealthCause.NOTHING_SUBSCRIBED, nothing))
        if self.coordinator is not None and self.subscriptions.has_auto_assigned_partitions:
            state = self.coordinator.membership.client_state.name.lower().replace("_", " ")
            # If none of the topics exists, missing partitions are not a finding of their own.
            has_partitions = bool(partitions) or (bool(unknown) and self.subscriptions.subscription <= unknown.keys())
            findings += group_findings(self.coordinator.membership, now_ms, has_partitions=has_partitions)
        polled_at_ms = self.consumer_metrics.last_poll_at_ms
        since_s = None if polled_at_ms is None else (now_ms - polled_at_ms) / 1000
        late = since_s is not None and since_s * 1000 > self.config.max_poll_interval_ms
        if late:
            not_polled = f"poll was not called for {since_s:.0f} s, longer than max.poll.interval.ms"
            findings.append(HealthFinding(HealthCause.NOT_POLLED, not_polled))
        findings += [problem_finding(each) for each in self._problems(unknown)]
        lags = self.consumer_metrics.lags()
        lag = sum(lags.values()) if lags else None
        blocked = late or self.metadata.problem is not None or (bool(self.fetcher.problems) and not self.buffer)
        blocked = blocked or any(each.cause is HealthCause.FENCED for each in findings)
        return ConsumerHealth(reads and not blocked, tuple(findings), state, len(partitions), lag, since_s)

    def _problems(self, unknown: Container[str]) -> list[ClientError]:
        """The latest failures, except errors about topics that do not exist."""
        partitions = self.subscriptions.snapshot()
        problems = [
            problem
            for of, problem in self.fetcher.problems.items()
            if not isinstance(of, TopicPartition) or of.topic not in unknown
        ]
        if self.metadata.problem is not None:
            problems.append(self.metadata.problem)
        waiting = [each.topic for each, at in partitions.items() if at.fetch_state in WHY_NOT_FETCHING]
        if self.positions.problem is not None and not (waiting and all(each in unknown for each in waiting)):
            problems.append(self.positions.problem)
        return problems

    @property
    def needs_loop(self) -> bool:
        """Whether there is work for the event loop: cheap, checked in every poll."""
        coordinator = self.coordinator
        return (
            not self.buffer
            or not self.subscriptions.settled
            or self._woken
            or self._validated_version != self.cluster.metadata.version
            or (coordinator is not None and coordinator.needs_poll)
            or self.error is not None
            or self.metadata.error is not None
            or self.positions.error is not None
        )

    async def wait_for_data(self, deadline_ms: float) -> None:
        """Work until there is something to collect, or until the deadline. Raises errors met on the way."""
        while True:
            self._changed.clear()
            await self.prepare(deadline_ms)
            if self._has_data() or not await self._wait(deadline_ms):
                return

    async def wait_for_positions(self, deadline_ms: float) -> None:
        """Advance the positions by one step, and wait for any news."""
        self._changed.clear()
        self._raise_errors()
        self.metadata.check()
        self.update_positions()
        if not self.subscriptions.settled:
            await self._wait(deadline_ms)

    async def _wait(self, deadline_ms: float) -> bool:
        """Wait for news; False if the deadline has passed already."""
        left_ms = deadline_ms - self.cluster.clock.monotonic_ms()
        if left_ms <= 0:
            await asyncio.sleep(0)
            return False
        try:
            async with asyncio.timeout(None if left_ms == FOREVER_MS else left_ms / 1000):
                await self._changed.wait()
        except TimeoutError:
            pass
        return True

    def _has_data(self) -> bool:
        snapshot = self.subscriptions.snapshot()
        return any(fetch.has_more() and snapshot.get(fetch.partition) is fetch.state for fetch in self.buffer.fetches())

    async def prepare(self, deadline_ms: float) -> None:
        """Advance membership, metadata, positions and requests by one step; waits for nothing but the coordinator."""
        coordinator, subscriptions = self.coordinator, self.subscriptions
        if coordinator is not None and (subscriptions.has_auto_assigned_partitions or coordinator.needs_poll):
            await coordinator.poll(deadline_ms)
        self._raise_errors()
        self.metadata.check()
        self.update_positions()
        self.fetcher.send()

    def _raise_errors(self) -> None:
        for holder in (self, self.positions, self.metadata):
            error: ClientError | None = holder.error
            if error is not None:
                holder.error = None
                if not self._is_settled(error):
                    raise error

    def _is_settled(self, error: ClientError) -> bool:
        """Whether the error is obsolete: the caller has called seek meanwhile, or reads other partitions."""
        if not isinstance(error, InvalidOffsetError):
            return False
        states = [self.subscriptions.state_or_none(each) for each in error.partitions]
        return not any(state is not None and state.fetch_state in UNDECIDED for state in states)

    def update_positions(self) -> None:
        """Validate positions whose leader changed, and start the lookup of missing ones."""
        subscriptions = self.subscriptions
        if self._validated_version != self.cluster.metadata.version:
            self._validated_version = self.cluster.metadata.version
            self.handed_out.settle()  # at the iterator's place, as it cannot continue with data fetched before
            for each in subscriptions.assigned_partitions:
                subscriptions.maybe_validate_position(each, self.metadata.leader(each))
        if subscriptions.settled or subscriptions.has_all_fetch_positions():
            return
        initializing = subscriptions.in_state(FetchState.INITIALIZING)
        if initializing:
            if self.coordinator is None:
                if without := subscriptions.reset_initializing_positions():
                    raise NoOffsetForPartitionError(without)
            else:
                self._begin_to_look_up({each: subscriptions.state(each) for each in initializing})
        self.positions.start()

    def _begin_to_look_up(self, states: dict[TopicPartition, PartitionState]) -> None:
        if self._committed_lookup is not None:
            if all(self._looked_up.get(each) is state for each, state in states.items()):
                return
            self._committed_lookup.cancel()  # it may wait long for partitions that were revoked meanwhile
        self._looked_up = states
        self._committed_lookup = asyncio.get_running_loop().create_task(self._look_up_committed(states))

    async def _look_up_committed(self, states: dict[TopicPartition, PartitionState]) -> None:
        """Start at the committed offset; where there is none, as auto.offset.reset says."""
        subscriptions = self.subscriptions
        assert self.coordinator is not None
        try:
            committed = await self.coordinator.commits.fetch_committed(list(states))
            waiting = [
                each
                for each, state in states.items()
                if subscriptions.state_or_none(each) is state and state.fetch_state is FetchState.INITIALIZING
            ]
            without = []
            for each in waiting:
                found = committed.get(each)
                if found is not None:
                    position = FetchPosition(found.offset, found.leader_epoch, self.metadata.leader(each))
                    subscriptions.seek(each, position)
                elif subscriptions.default_reset is OffsetReset.NONE:
                    without.append(each)
                else:
                    subscriptions.request_reset(each)
            if without:
                self.error = NoOffsetForPartitionError(without)
        except Exception as error:  # whatever it is: the next poll raises it; an immediate retry would not help
            failed = as_client_error("committed offsets cannot be looked up", error)
            if not failed.retriable:
                self.error = failed
        finally:
            if self._committed_lookup is asyncio.current_task():
                self._committed_lookup = None
            self.notify()
