"""The consumer for asyncio; the sync client is `ottla.client.sync.Consumer`.

    async with Consumer(bootstrap_servers="localhost:9092", group_id="g") as consumer:
        await consumer.subscribe(["clicks"])
        async for record in consumer:
            ...

Methods that may wait for a broker are coroutines; those that only read or change local state are plain methods.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Never, Self

from ottla.assign.assignor import GroupMetadata
from ottla.client.configs.consumer import parse_consumer_config
from ottla.client.consumer.commits import CommitCallback, OffsetsToCommit, offsets_to_commit
from ottla.client.consumer.completed_fetch import CompletedFetch
from ottla.client.consumer.coordinator import ConsumerCoordinator
from ottla.client.consumer.delegate import FOREVER_MS, ConsumerDelegate
from ottla.client.consumer.health import ConsumerHealth
from ottla.client.consumer.listener import ConsumerRebalanceListener, UserCall, call_here
from ottla.client.consumer.records import ConsumerRecords
from ottla.client.consumer.subscription_state import FetchPosition, OffsetReset
from ottla.client.consumer.use_guard import Guard, UseGuard
from ottla.client.errors import ClientTimeoutError, IllegalStateError, InvalidArgumentError
from ottla.client.foreign_methods import CONSUMER_METHODS, MethodHints, explains_arguments, unexpected
from ottla.client.group_offsets import offset_and_metadata
from ottla.client.model import (
    EARLIEST,
    LATEST,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicMetadata,
    TopicPartition,
)
from ottla.client.offsets import find_offsets
from ottla.env.environment import Environment
from ottla.peer import arguments
from ottla.peer.cluster import Cluster
from ottla.records.consumed import ConsumerRecord
from ottla.records.type_variables import K, V

if TYPE_CHECKING:
    import pyarrow


Take = Callable[[CompletedFetch, int], tuple[list[Any], int]]

MAX_ARROW_ROWS = 65_536
"""Default limit of rows per call."""
CLOSE_TIMEOUT_MS = 700
"""Default timeout of `close` and `unsubscribe` for the coordinator, so that they always return within a second."""


def take_records(fetch: CompletedFetch, most: int) -> tuple[list[ConsumerRecord[Any, Any]], int]:
    """Return the next records of a fetch, and their number."""
    records = fetch.take(most)
    return records, len(records)


@explains_arguments
class Consumer(MethodHints, Generic[K, V]):
    """Reads records of topics (`subscribe`) or of partitions (`assign`). Not for concurrent use by several tasks.

    Settings have Kafka's names, in `config` ("group.id") or as keywords (group_id). All errors are
    `ClientError`s. `environment` is for simulations.
    """

    _instead_of = CONSUMER_METHODS

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        /,
        *,
        guard: Guard | None = None,
        call: UserCall = call_here,
        environment: Environment | None = None,
        **settings: Any,
    ) -> None:
        self.config = parse_consumer_config(config, settings)
        self.delegate = ConsumerDelegate(self.config, Cluster(self.config.client_settings, environment), call)
        self._guard = guard or UseGuard("task", _current_task)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Commit if auto commit is on, leave the group, close all connections. Closing twice is allowed.

        From another event loop it only closes connections if its own loop is closed; else it raises IllegalStateError.
        """
        if self._guard.is_over:
            return
        arguments.milliseconds("timeout_ms", timeout_ms)
        with self._guard:
            if self.delegate.cluster.is_abroad:
                await self.delegate.abandon()
                self._guard.closed = True
                return
            self.delegate.open()
            self.delegate.handed_out.settle()
            try:
                try:
                    if self.delegate.coordinator is not None:
                        await self.delegate.coordinator.close(timeout_ms)
                finally:
                    await self.delegate.close()
            finally:
                self._guard.closed = True

    def wakeup(self) -> None:
        """From any thread: make the waiting call, or else the next one that would wait, raise WakeupError."""
        self.delegate.wakeup()

    # Subscription and assignment

    async def subscribe(
        self, topics: Iterable[str] | re.Pattern[str], listener: ConsumerRebalanceListener | None = None
    ) -> None:
        """Subscribe to these topics, or to all whose whole name matches the pattern, as a member of the group.

        Rebalances happen in `poll`, which calls the `listener`. Another call replaces the topics; an empty list is the
        same as `unsubscribe`. Raises IllegalStateError after `assign`.
        """
        with self._guard:
            self._begin()
            coordinator, subscriptions = self._coordinator(), self.delegate.subscriptions
            if isinstance(topics, re.Pattern):
                subscriptions.subscribe_pattern(topics, listener)
            else:
                if isinstance(topics, str):
                    raise InvalidArgumentError(
                        f"subscribe takes a list or a compiled pattern: [{topics!r}] or re.compile({topics!r})"
                    )
                wanted = [arguments.text("a topic", each) for each in arguments.several("topics", topics)]
                if not wanted:
                    await self._unsubscribe()
                    return
                subscriptions.subscribe(wanted, listener)
            coordinator.subscription_changed()
            self.delegate.metadata.check()

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, without group assignment; an empty list is the same as `unsubscribe`."""
        with self._guard:
            self._begin()
            wanted = arguments.partitions(partitions)
            if not wanted:
                await self._unsubscribe()
                return
            if self.delegate.coordinator is not None:
                self.delegate.coordinator.assignment_changes()
            self.delegate.subscriptions.assign_from_user(wanted)
            self.delegate.metadata.check()

    async def unsubscribe(self) -> None:
        """Drop the subscription or assignment and leave the group; the consumer stays open."""
        with self._guard:
            self._begin()
            await self._unsubscribe()

    async def _unsubscribe(self) -> None:
        try:
            if self.delegate.coordinator is not None:
                await self.delegate.coordinator.leave(CLOSE_TIMEOUT_MS)
        finally:
            self.delegate.subscriptions.unsubscribe()

    def _coordinator(self) -> ConsumerCoordinator:
        if self.delegate.coordinator is None:
            raise InvalidArgumentError("group.id is not set; subscribing to topics and committing offsets need a group")
        return self.delegate.coordinator

    def subscription(self) -> set[str]:
        """Return the topics of the subscription, or those that match the pattern."""
        with self._guard:
            return set(self.delegate.subscriptions.subscription)

    def assignment(self) -> set[TopicPartition]:
        """Return the assigned partitions."""
        with self._guard:
            return set(self.delegate.subscriptions.assigned_partitions)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop returning records of these partitions from `poll` until `resume`; they stay assigned."""
        with self._guard:
            self.delegate.handed_out.settle()
            self.delegate.subscriptions.pause(arguments.partitions(partitions))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records of these partitions from `poll` again."""
        with self._guard:
            self.delegate.handed_out.settle()
            self.delegate.subscriptions.resume(arguments.partitions(partitions))
            self.delegate.fetch_soon()

    def paused(self) -> set[TopicPartition]:
        """Return the assigned partitions that are paused."""
        with self._guard:
            return self.delegate.subscriptions.paused_partitions()

    # Records

    async def poll(self, timeout_ms: int = 0, **foreign: Never) -> ConsumerRecords[K, V]:
        """Return records as soon as there are any, at most max.poll.records; none after `timeout_ms`.

        Raises WakeupError, the subclasses of InvalidOffsetError, OffsetOutOfRange, CorruptBatchError,
        RecordDeserializationError, and fatal errors of the coordinator. Positions advance with the next call.
        """
        if foreign:
            raise unexpected("Consumer", "poll", foreign, ("timeout_ms",))
        with self._guard:
            self._begin()
            work = self._gather(self.deadline_ms(timeout_ms), take_records, self.config.max_poll_records)
            gathered, moves = await self.delegate.interruptible(work)
            records: ConsumerRecords[K, V] = self.delegate.intercepted(gathered)
            self.delegate.handed_out.moves = moves
            return records

    async def _gather(self, deadline_ms: float, take: Take, most: int, **limits: Any) -> Any:
        delegate = self.delegate
        self.check_reads()
        await asyncio.sleep(0)  # let other tasks run, even if the caller never waits for anything else
        must_wait = delegate.needs_loop
        while True:
            if must_wait:
                await delegate.wait_for_data(deadline_ms)
            gathered, moves = delegate.collect(most, take, **limits)
            if gathered or delegate.cluster.clock.monotonic_ms() >= deadline_ms:
                return gathered, moves
            must_wait = True  # fetched data is of paused partitions, or only moved positions

    def check_reads(self) -> None:
        """Raise IllegalStateError without a subscription or assignment."""
        if self.delegate.subscriptions.has_no_subscription_or_user_assignment:
            raise IllegalStateError("the consumer reads nothing: call subscribe or assign before poll")

    async def wait_for_data(self, deadline_ms: float) -> None:
        """Do the part of `poll` that needs the event loop."""
        self.delegate.open()
        await self.delegate.interruptible(self.delegate.wait_for_data(deadline_ms))

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        while not self._guard.closed:
            for record in await self.next_chunk():
                yield record

    async def next_chunk(self) -> Iterator[ConsumerRecord[K, V]]:
        """For iteration: return the next records of one partition; each counts as read when it is taken."""
        with self._guard:
            self._begin()
            work = self._gather(FOREVER_MS, take_records, self.config.max_poll_records, most_partitions=1)
            gathered, moves = await self.delegate.interruptible(work)
            return self.delegate.hand_out_chunk(gathered, moves)

    async def poll_arrow(
        self, timeout_ms: int = 0, max_rows: int = MAX_ARROW_ROWS, *, include_headers: bool = False, **foreign: Never
    ) -> pyarrow.Table:
        """Same as `poll`, but returns a table with the columns of Spark's Kafka source; no object per record is made.

        Keys and values are bytes, whatever the deserializers; `max_rows` replaces max.poll.records.
        """
        from ottla.client.consumer.arrow_rows import table_of, taker

        if foreign:
            raise unexpected("Consumer", "poll_arrow", foreign, ("timeout_ms", "max_rows", "include_headers"))
        arguments.whole_number("max_rows", max_rows, 1)
        with self._guard:
            self._begin()
            work = self._gather(self.deadline_ms(timeout_ms), taker(include_headers=include_headers), max_rows)
            gathered, moves = await self.delegate.interruptible(work)
            self.delegate.handed_out.moves = moves
            return table_of(gathered, include_headers=include_headers)

    async def arrow_batches(
        self, max_rows: int = MAX_ARROW_ROWS, *, include_headers: bool = False
    ) -> AsyncIterator[pyarrow.RecordBatch]:
        """Yield record batches of one partition each, without end; one counts as read when the next is requested."""
        from ottla.client.consumer.arrow_rows import taker

        arguments.whole_number("max_rows", max_rows, 1)
        take = taker(include_headers=include_headers)
        while not self._guard.closed:
            with self._guard:
                self._begin()
                gathered, moves = await self.delegate.interruptible(self._gather(FOREVER_MS, take, max_rows, once=True))
                self.delegate.handed_out.moves = moves
            ((batch,),) = gathered.values()
            yield batch

    # Commits and the group

    async def commit(self, offsets: OffsetsToCommit | None = None, timeout_ms: int | None = None) -> None:
        """Commit everything polled, or these offsets (each of the next record to read), and wait for the result.

        Retriable errors are retried until `timeout_ms` (default.api.timeout.ms), then ClientTimeoutError is raised.
        Raises CommitFailedError if this consumer is not a member any more, RebalanceInProgressError during a rebalance.
        """
        with self._guard:
            self._begin(stop_iteration=False)
            work = self._coordinator().commits.commit_sync(offsets_to_commit(offsets), timeout_ms)
            await self.delegate.interruptible(work)

    def commit_async(self, offsets: OffsetsToCommit | None = None, callback: CommitCallback | None = None) -> None:
        """Commit everything polled, or these offsets, without waiting; nothing is retried.

        `callback(offsets, error)` is called in a later `poll`, `commit` or `close`, in the order of the commits.
        """
        with self._guard:
            self._begin(stop_iteration=False)
            wanted = offsets_to_commit(offsets)
            self._coordinator().commits.commit_async(wanted, arguments.function("the callback", callback))

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offset of each partition, None where there is none."""
        with self._guard:
            self._begin(stop_iteration=False)
            return await self.delegate.interruptible(
                self._coordinator().commits.fetch_committed(partitions, timeout_ms)
            )

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the position of each assigned partition, for a producer's `send_offsets_to_transaction`."""
        with self._guard:
            self._begin(stop_iteration=False)
            return self.delegate.subscriptions.positions()

    def group_metadata(self) -> GroupMetadata:
        """Return group and member for a producer's `send_offsets_to_transaction`."""
        with self._guard:
            return self._coordinator().group_metadata()

    def enforce_rebalance(self, reason: str | None = None) -> None:
        """Trigger a rebalance with the next `poll`; the reason is for the broker's log."""
        with self._guard:
            self.delegate.open()
            if not self.delegate.subscriptions.has_auto_assigned_partitions:
                raise IllegalStateError("there is nothing to rebalance: subscribe to topics before")
            if reason is not None:
                arguments.text("the reason", reason)
            self._coordinator().enforce_rebalance(reason)

    # Positions

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Read the partition from this offset on. Prefetched records are dropped."""
        with self._guard:
            self.delegate.handed_out.settle()
            partition = arguments.partition(partition)
            at = offset_and_metadata(partition, offset)
            leader = self.delegate.metadata.leader(partition)
            self.delegate.subscriptions.seek(partition, FetchPosition(at.offset, at.leader_epoch, leader))
            self.delegate.buffer.drop(partition)
            self.delegate.fetch_soon()

    def seek_to_beginning(self, partitions: Collection[TopicPartition] = ()) -> None:
        """Read these (none given: all assigned) from their beginning offsets, which are looked up lazily."""
        self._seek_lazily(partitions, OffsetReset.EARLIEST)

    def seek_to_end(self, partitions: Collection[TopicPartition] = ()) -> None:
        """Read these (none given: all assigned) from their end offsets, which are looked up lazily."""
        self._seek_lazily(partitions, OffsetReset.LATEST)

    def _seek_lazily(self, partitions: Collection[TopicPartition], strategy: OffsetReset) -> None:
        with self._guard:
            self.delegate.handed_out.settle()
            subscriptions = self.delegate.subscriptions
            wanted = arguments.partitions(partitions) or list(subscriptions.assigned_partitions)
            for each in wanted:
                subscriptions.state(each)
            for each in wanted:
                subscriptions.request_reset(each, strategy)
                self.delegate.buffer.drop(each)

    async def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """Return the offset of the next record to read. Waits until it is known, at most `timeout_ms`."""
        with self._guard:
            self._begin(stop_iteration=False)
            work = self._position(arguments.partition(partition), self._bounded(timeout_ms))
            return await self.delegate.interruptible(work)

    async def _position(self, partition: TopicPartition, timeout_ms: int) -> int:
        delegate = self.delegate
        deadline_ms = self.deadline_ms(timeout_ms)
        delegate.subscriptions.state(partition)
        while (found := delegate.subscriptions.valid_position(partition)) is None:
            if delegate.cluster.clock.monotonic_ms() >= deadline_ms:
                raise ClientTimeoutError(f"the position of {partition} is not known within {timeout_ms} ms")
            await delegate.wait_for_positions(deadline_ms)
        return found.offset

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record of each partition with this timestamp (ms) or a later one, None if there is none."""
        wanted = {
            partition: arguments.whole_number(
                f"the timestamp for {partition} (milliseconds since 1970; see also beginning_offsets, end_offsets)",
                timestamp,
            )
            for partition, timestamp in arguments.by_partition("timestamps", timestamps).items()
        }
        return await self._find_offsets(wanted, timeout_ms)

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return the beginning offset (log start) of each partition."""
        return await self._ends(partitions, EARLIEST, timeout_ms)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return the end offset of each partition: with read_committed the last stable offset, else high watermark."""
        return await self._ends(partitions, LATEST, timeout_ms)

    async def _ends(
        self, partitions: Iterable[TopicPartition], at: int, timeout_ms: int | None
    ) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(arguments.partitions(partitions), at)
        found = await self._find_offsets(wanted, timeout_ms)
        return {each: offset.offset for each, offset in found.items() if offset is not None}

    async def _find_offsets(
        self, timestamps: dict[TopicPartition, int], timeout_ms: int | None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        with self._guard:
            self._begin(stop_iteration=False)
            if not timestamps:
                return {}
            delegate = self.delegate
            work = find_offsets(delegate.cluster, timestamps, delegate.isolation_level, self._bounded(timeout_ms))
            return await delegate.interruptible(work)

    def current_lag(self, partition: TopicPartition) -> int | None:
        """Return the lag: records between position and last known end; None if one of them is not known."""
        with self._guard:
            self.delegate.handed_out.settle(stop_iteration=False)
            wanted = arguments.partition(partition)
            return self.delegate.subscriptions.state(wanted).lag(read_committed=self.delegate.read_committed)

    # Topics

    async def partitions_for(self, topic: str, timeout_ms: int | None = None) -> list[TopicPartition]:
        """Return the partitions of a topic. Raises UnknownTopicError if it does not exist."""
        with self._guard:
            self._begin(stop_iteration=False)
            arguments.text("the topic", topic)
            cluster = self.delegate.cluster

            async def ask() -> list[TopicMetadata]:
                create = self.config.allow_auto_create_topics
                return await cluster.topics([topic], allow_auto_topic_creation=create)

            asking = cluster.retry(f"looking up topic {topic}", ask, self._bounded(timeout_ms))
            (found,) = await self.delegate.interruptible(asking)
            return [TopicPartition(topic, each.partition) for each in found.partitions]

    async def list_topics(self, timeout_ms: int | None = None) -> dict[str, list[TopicPartition]]:
        """Return the partitions of all topics that this client may see, internal ones included."""
        with self._guard:
            self._begin(stop_iteration=False)
            cluster = self.delegate.cluster

            async def ask() -> dict[str, list[TopicPartition]]:
                topics = (await cluster.refresh(None)).topics
                return {
                    name: [TopicPartition(name, each.partition) for each in topic.partitions]
                    for name, topic in topics.items()
                }

            return await self.delegate.interruptible(cluster.retry("listing topics", ask, self._bounded(timeout_ms)))

    # Metrics and health

    def metrics(self) -> dict[str, float]:
        """Return metrics by Kafka's names (records-consumed-total, records-lag-max, …), counted since the start."""
        with self._guard:
            self.delegate.handed_out.settle(stop_iteration=False)
            return self.delegate.metrics()

    def health(self) -> ConsumerHealth:
        """Return whether the consumer makes progress and, if not, why. From any thread, at any time."""
        return self.delegate.health()

    # Shared by the calls above

    def _begin(self, *, stop_iteration: bool = True) -> None:
        """Called first by every call that may wait: records of the previous call count as read now."""
        self.delegate.open()
        self.delegate.handed_out.settle(stop_iteration=stop_iteration)

    def deadline_ms(self, timeout_ms: float) -> float:
        """Return the deadline on the monotonic clock."""
        return self.delegate.cluster.clock.monotonic_ms() + arguments.milliseconds("timeout_ms", timeout_ms)

    def _bounded(self, timeout_ms: int | None) -> int:
        if timeout_ms is None:
            return self.delegate.cluster.settings.default_api_timeout_ms
        arguments.milliseconds("timeout_ms", timeout_ms)
        return timeout_ms


def _current_task() -> object:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
