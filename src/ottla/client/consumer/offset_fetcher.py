"""Reset (ListOffsets) and validation (OffsetForLeaderEpoch, KIP-320) of positions.

`OffsetFetcher` does both in the background; a fatal failure is kept in `error` for the next call to raise.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from ottla.client.consumer.consumer_metadata import ConsumerMetadata
from ottla.client.consumer.subscription_state import (
    NO_EPOCH,
    FetchPosition,
    FetchState,
    LogTruncation,
    OffsetReset,
    SubscriptionState,
)
from ottla.client.errors import (
    BrokerError,
    ClientError,
    LogTruncationError,
    NotLeaderError,
    UnsupportedVersionError,
    as_client_error,
)
from ottla.client.model import (
    EARLIEST,
    LATEST,
    NO_OFFSET,
    OffsetAndMetadata,
    TopicPartition,
    by_topic,
)
from ottla.client.offsets import list_offsets
from ottla.peer.cluster import Cluster
from ottla.peer.metadata import NO_NODE
from ottla.peer.model import CONSUMER
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

log = logging.getLogger(__name__)

RESET_TIMESTAMPS = {OffsetReset.EARLIEST: EARLIEST, OffsetReset.LATEST: LATEST}
Lookup = Callable[[int, list[TopicPartition]], Awaitable[None]]
"""Looks up positions of partitions with one leader (its id)."""


class OffsetFetcher:
    """Resets and validates positions, one task per broker and kind; `on_change` is called after each."""

    def __init__(
        self,
        cluster: Cluster,
        subscriptions: SubscriptionState,
        metadata: ConsumerMetadata,
        isolation_level: int,
        on_change: Callable[[], None],
    ) -> None:
        self.error: ClientError | None = None
        #: Why the last look-up failed; None after one that succeeded.
        self.problem: ClientError | None = None
        self._cluster = cluster
        self._subscriptions = subscriptions
        self._metadata = metadata
        self._isolation_level = isolation_level
        self._on_change = on_change
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    async def close(self) -> None:
        """Cancel the requests in flight."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def start(self) -> None:
        """Start the lookups that are due and not in progress."""
        if self._closed:
            return
        now = self._cluster.clock.monotonic_ms()
        subscriptions = self._subscriptions
        for leader, partitions in self._by_leader(subscriptions.in_state(FetchState.AWAIT_RESET, now)).items():
            self._run(self._reset, leader, partitions)
        for leader, partitions in self._by_leader(subscriptions.in_state(FetchState.AWAIT_VALIDATION, now)).items():
            self._run(self._validate, leader, partitions)

    def _by_leader(self, partitions: list[TopicPartition]) -> dict[int, list[TopicPartition]]:
        grouped: dict[int, list[TopicPartition]] = {}
        for each in partitions:
            leader = self._metadata.leader(each).leader
            if leader == NO_NODE:
                self.problem = NotLeaderError(
                    ErrorCode.LEADER_NOT_AVAILABLE, f"{each} has no leader, or does not exist"
                )
                self._retry_later([each])
            else:
                grouped.setdefault(leader, []).append(each)
        return grouped

    def _run(self, work: Lookup, leader: int, partitions: list[TopicPartition]) -> None:
        # No retry before this attempt is over.
        settings = self._cluster.settings
        until = self._cluster.clock.monotonic_ms() + settings.request_timeout_ms + settings.retry_backoff_ms
        self._subscriptions.set_next_allowed_retry(partitions, until)
        task = asyncio.ensure_future(self._attempt(work, leader, partitions))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _attempt(self, work: Lookup, leader: int, partitions: list[TopicPartition]) -> None:
        # The coroutine of the lookup is made here: a task that is cancelled before it begins would leave it unawaited.
        self.problem = None
        try:
            await work(leader, partitions)
        except Exception as error:  # whatever it is: a poll raises fatal errors
            self._failed(dict.fromkeys(partitions, as_client_error("positions cannot be looked up", error)))
        self._on_change()

    def _failed(self, failures: Mapping[TopicPartition, ClientError]) -> None:
        self.problem = next(iter(failures.values()))
        again = [each for each, error in failures.items() if error.retriable]
        for error in failures.values():
            if not error.retriable:
                self.error = error
        # Partitions with fatal errors are retried, too, once the caller has seen the error.
        self._retry_later(list(failures))
        if again:
            self._metadata.request_update()

    def _retry_later(self, partitions: list[TopicPartition]) -> None:
        pause_ms = self._cluster.settings.retry_backoff_ms
        self._subscriptions.set_next_allowed_retry(partitions, self._cluster.clock.monotonic_ms() + pause_ms)
        if self._timer is not None:
            self._timer.cancel()
        if not self._closed:
            self._timer = asyncio.get_running_loop().call_later(pause_ms / 1000 + 0.001, self.start)

    async def _reset(self, leader: int, partitions: list[TopicPartition]) -> None:
        subscriptions = self._subscriptions
        strategies: dict[TopicPartition, OffsetReset] = {}
        for each in partitions:
            state = subscriptions.state_or_none(each)
            if state is not None and state.reset_strategy is not None:
                strategies[each] = state.reset_strategy
        timestamps = {each: RESET_TIMESTAMPS[strategy] for each, strategy in strategies.items()}
        found, failed = await list_offsets(self._cluster, leader, timestamps, self._isolation_level)
        for each, at in found.items():
            if at is not None:
                position = FetchPosition(at.offset, NO_EPOCH, self._metadata.leader(each))
                if subscriptions.complete_reset(each, strategies[each], position):
                    log.info("position of %s reset to %s, offset %d", each, strategies[each].value, at.offset)
        if failed:
            self._failed(failed)

    async def _validate(self, leader: int, partitions: list[TopicPartition]) -> None:
        subscriptions = self._subscriptions
        states = {each: subscriptions.state_or_none(each) for each in partitions}
        positions = {
            each: state.position for each, state in states.items() if state is not None and state.position is not None
        }
        wanted = {
            each: OffsetForLeaderPartition(
                partition=each.partition,
                current_leader_epoch=position.current_leader.epoch,
                leader_epoch=position.offset_epoch,
            )
            for each, position in positions.items()
        }
        topics = [OffsetForLeaderTopic(topic=name, partitions=each) for name, each in by_topic(wanted).items()]
        request = OffsetForLeaderEpochRequest(replica_id=CONSUMER, topics=topics)
        try:
            answer: OffsetForLeaderEpochResponse = await self._cluster.request(leader, request)
        except UnsupportedVersionError:
            for each in partitions:
                subscriptions.skip_validation(each)
            return
        self._take_epochs(leader, positions, answer)

    def _take_epochs(
        self, leader: int, positions: Mapping[TopicPartition, FetchPosition], answer: OffsetForLeaderEpochResponse
    ) -> None:
        failed: dict[TopicPartition, ClientError] = {}
        truncations: list[LogTruncation] = []
        for topic in answer.topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.topic, each.partition)
                if partition not in positions:
                    continue
                if each.error_code != ErrorCode.NONE:
                    failed[partition] = BrokerError(
                        each.error_code, f"the position in {partition} cannot be validated by broker {leader}"
                    )
                    continue
                known = each.end_offset != NO_OFFSET and each.leader_epoch != NO_EPOCH
                end = (each.end_offset, each.leader_epoch) if known else None
                truncation = self._subscriptions.complete_validation(partition, positions[partition], end)
                if truncation is not None:
                    truncations.append(truncation)
        if truncations:
            self.error = _truncation_error(truncations)
            self._retry_later([each.partition for each in truncations])
        if failed:
            self._failed(failed)


def _truncation_error(truncations: list[LogTruncation]) -> LogTruncationError:
    return LogTruncationError(
        {
            each.partition: OffsetAndMetadata(each.position.offset, "", each.position.offset_epoch)
            for each in truncations
        },
        {each.partition: each.divergent_offset for each in truncations if each.divergent_offset is not None},
    )
