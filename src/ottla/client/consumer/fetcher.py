"""Prefetching: one request in flight to each broker that has partitions to read; the next as soon as there is room.

Replica selection follows KIP-392, fetch sessions follow KIP-227. Responses go into the `FetchBuffer`; what they report
about a partition (high watermark, preferred replica, a new leader) is applied at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.client.configs.consumer import ConsumerConfig
from ottla.client.consumer.completed_fetch import CompletedFetch, Decoding
from ottla.client.consumer.consumer_metadata import ConsumerMetadata
from ottla.client.consumer.consumer_metrics import ConsumerMetrics
from ottla.client.consumer.fetch_buffer import FetchBuffer
from ottla.client.consumer.subscription_state import OffsetReset, PartitionState, SubscriptionState
from ottla.client.errors import BrokerError, ClientError, OffsetOutOfRange, as_client_error
from ottla.client.fetcher import out_of_range
from ottla.client.model import TopicPartition
from ottla.client.named_rack import NamedRack
from ottla.peer.cluster import FETCH, Cluster
from ottla.peer.errors import STALE_METADATA
from ottla.peer.fetch import FetchLimits, aborted_in, fetch_request, partitions_in
from ottla.peer.fetch_session import FetchSession, WantedFetch
from ottla.peer.metadata import NO_NODE
from ottla.peer.model import READ_COMMITTED, READ_UNCOMMITTED
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData

TRIED_AGAIN = STALE_METADATA | {ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR}
"""Errors after which metadata is refreshed and the partition is retried, without reporting to the caller."""
EXPLAIN_TIMEOUT_MS = 5_000
"""Timeout for looking up a partition's valid offsets, which an out-of-range error reports."""


class _SentFetch(NamedTuple):
    """State of a partition when its request was sent."""

    state: PartitionState
    seeks: int
    wanted: WantedFetch
    is_follower: bool
    """Whether the broker was asked because a leader named it (KIP-392)."""


class Fetcher:
    """Sends fetches from one event loop; `on_data` is called when the buffer or the positions changed."""

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        decoding: Decoding,
        subscriptions: SubscriptionState,
        buffer: FetchBuffer,
        metadata: ConsumerMetadata,
        metrics: ConsumerMetrics,
        on_data: Callable[[], None],
    ) -> None:
        #: Current problems of brokers and partitions, for `health`.
        self.problems: dict[int | TopicPartition, ClientError] = {}
        self._metrics = metrics
        self._cluster = cluster
        self._limits = FetchLimits(
            config.fetch_max_bytes,
            config.fetch_min_bytes,
            config.fetch_max_wait_ms,
            READ_COMMITTED if config.isolation_level == "read_committed" else READ_UNCOMMITTED,
        )
        self._max_partition_bytes = config.max_partition_fetch_bytes
        self._decoding = decoding
        self._subscriptions = subscriptions
        self._buffer = buffer
        self._metadata = metadata
        self._on_data = on_data
        self._rack = NamedRack(config.client_rack, cluster.settings.metadata_max_age_ms)
        self._sessions: dict[int, FetchSession] = {}
        self._in_flight: dict[int, asyncio.Task[None]] = {}
        self._held_until_ms: dict[int | TopicPartition, float] = {}
        """Brokers and partitions in backoff after a failure, and until when."""
        self._retained_id = -1
        self._reported_stale = -1
        self._timers: dict[int | TopicPartition, asyncio.TimerHandle] = {}
        """Timers for the end of each backoff."""
        self._explaining: dict[TopicPartition, tuple[_SentFetch, asyncio.Task[None]]] = {}
        """Partitions out of range, while their valid offsets are looked up."""
        self._leaders: set[int] = set()
        """The leaders of the assigned partitions, as of the last look."""
        self._leaders_known = (-1, -1)
        self._closed = False

    async def close(self) -> None:
        """Cancel requests in flight. Brokers drop the fetch session of a closed connection after a while."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        tasks = [*self._in_flight.values(), *(task for _, task in self._explaining.values())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def send(self) -> None:
        """Send a request to every broker with partitions to read, no request in flight, and room for its response."""
        if self._closed:
            return
        subscriptions = self._subscriptions
        if self._retained_id != subscriptions.assignment_id:
            self._retained_id = subscriptions.assignment_id
            self._buffer.retain(subscriptions.snapshot())
        if self._buffer.is_full:
            self._buffer.shed()
            if self._buffer.is_full:
                return
        if self._are_all_in_flight():
            return
        for node_id, sent in self._wanted(self._cluster.clock.monotonic_ms()).items():
            task = asyncio.get_running_loop().create_task(self._fetch(node_id, sent))
            self._in_flight[node_id] = task

    def _are_all_in_flight(self) -> bool:
        """Whether each broker with partitions to read has a request in flight: cheap, as that is so in most polls.

        The brokers change with assignment and metadata; with preferred replicas they change at any time.
        """
        if self._subscriptions.has_preferred_replicas:
            return False
        known = (self._subscriptions.assignment_id, self._cluster.metadata.version)
        if known != self._leaders_known:
            self._leaders_known = known
            leaders = {self._cluster.metadata.leader(*each) for each in self._subscriptions.assigned_partitions}
            self._leaders = {each for each in leaders if each is not None and each >= 0}
            return False  # positions set with other leaders are validated at once
        return self._leaders <= self._in_flight.keys()

    def _wanted(self, now_ms: float) -> dict[int, dict[TopicPartition, _SentFetch]]:
        """Partitions to fetch, by broker.

        A broker is left out while some of its partitions have no room: it would wait for records of the others
        while those are drained.
        """
        by_node: dict[int, dict[TopicPartition, _SentFetch]] = {}
        without_room: set[int] = set()
        stale = False
        full = self._buffer.without_room()
        held, buffer, most_bytes = self._held_until_ms, self._buffer, self._max_partition_bytes
        for partition, state in self._subscriptions.snapshot().items():
            if not state.is_fetchable or (held and self._is_held(partition, now_ms)):
                continue
            if self._explaining and self._is_explained(partition, state):
                continue
            if self._is_stale(partition, state):
                stale = True
                continue
            node_id = self._node_for(partition, state, now_ms)
            if node_id is None or node_id in self._in_flight or (held and self._is_held(node_id, now_ms)):
                continue
            at = buffer.next_fetch(partition, state)
            if partition in full:
                without_room.add(node_id)
            elif at is not None:
                wanted = WantedFetch(at.offset, at.current_leader.epoch, most_bytes)
                by_node.setdefault(node_id, {})[partition] = _SentFetch(
                    state, state.seeks, wanted, state.preferred_read_replica == node_id
                )
        for node_id in without_room:
            by_node.pop(node_id, None)
        if stale and self._reported_stale != self._cluster.metadata.version:
            self._reported_stale = self._cluster.metadata.version
            self._on_data()
        return by_node

    def _is_stale(self, partition: TopicPartition, state: PartitionState) -> bool:
        """Whether the leader has changed since the position was set: a poll has to validate the position first.

        The new leader would refuse a fetch with the old epoch, repeatedly until the next poll.
        """
        position, leader = state.position, self._metadata.leader(partition)
        return position is not None and leader.leader != NO_NODE and position.current_leader != leader

    def _is_held(self, what: int | TopicPartition, now_ms: float) -> bool:
        until = self._held_until_ms.get(what)
        if until is None:
            return False
        if until > now_ms:
            return True
        del self._held_until_ms[what]
        return False

    def _hold(self, what: int | TopicPartition, pause_ms: int | None = None) -> None:
        """Back off for this time (`retry_backoff_ms`), then try again."""
        pause_ms = self._cluster.settings.retry_backoff_ms if pause_ms is None else pause_ms
        self._held_until_ms[what] = self._cluster.clock.monotonic_ms() + pause_ms
        if not self._closed:
            # One timer each: a short backoff of one must not end a longer one of another.
            if (timer := self._timers.pop(what, None)) is not None:
                timer.cancel()
            loop = asyncio.get_running_loop()
            self._timers[what] = loop.call_later(pause_ms / 1000 + 0.001, self._pause_over, what)

    def _pause_over(self, what: int | TopicPartition) -> None:
        del self._timers[what]
        self.send()

    def _node_for(self, partition: TopicPartition, state: PartitionState, now_ms: float) -> int | None:
        if state.preferred_read_replica is not None:
            preferred = state.replica_to_read(now_ms)
            if preferred is not None:
                if self._cluster.metadata.is_online(*partition, preferred):
                    return preferred
                self._subscriptions.clear_preferred_read_replica(partition)
                self._rack.failed(now_ms)  # or the leader would name it again at once, and again
                self._metadata.request_update()
        leader = self._cluster.metadata.leader(*partition)
        return leader if leader is not None and leader >= 0 else None

    async def _fetch(self, node_id: int, sent: dict[TopicPartition, _SentFetch]) -> None:
        session = self._sessions.setdefault(node_id, FetchSession())
        sent_at_ms = self._cluster.clock.monotonic_ms()
        try:
            answer: FetchResponse = await self._cluster.request(node_id, self._request(session, sent), purpose=FETCH)
        except ClientError as error:
            self.problems[node_id] = error
            session.failed()
            for partition in sent:
                self._subscriptions.clear_preferred_read_replica(partition)
            if any(each.is_follower for each in sent.values()):
                self._rack.failed(sent_at_ms)
            self._failed(node_id)
        except BaseException:
            session.failed()
            raise
        else:
            self.problems.pop(node_id, None)
            if session.handled(answer.error_code, answer.session_id):
                latency_ms = self._cluster.clock.monotonic_ms() - sent_at_ms
                self._metrics.fetched(
                    latency_ms,
                    sum(len(data.records) for _, data in partitions_in(answer) if data.records),
                    answer.throttle_time_ms,
                )
                if answer.throttle_time_ms:
                    self._hold(node_id, answer.throttle_time_ms)  # its quota is used up (KIP-219)
                self._take(node_id, answer, sent)
            elif answer.error_code not in (
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            ):
                self._failed(node_id)
        finally:
            self._in_flight.pop(node_id, None)
        self.send()
        self._on_data()

    def _failed(self, node_id: int) -> None:
        self._hold(node_id)
        self._metadata.request_update()

    def _request(self, session: FetchSession, sent: Mapping[TopicPartition, _SentFetch]) -> FetchRequest:
        plan = session.build({partition: each.wanted for partition, each in sent.items()})
        return fetch_request(plan, self._limits, rack=self._rack.at(self._cluster.clock.monotonic_ms()))

    def _take(self, node_id: int, answer: FetchResponse, sent: Mapping[TopicPartition, _SentFetch]) -> None:
        self._cluster.metadata.update_nodes(answer.node_endpoints)
        for partition, data in partitions_in(answer):
            each = sent.get(partition)
            if each is None or self._subscriptions.state_or_none(partition) is not each.state:
                continue
            try:
                if data.error_code == ErrorCode.NONE:
                    self._take_data(partition, each, data)
                else:
                    self._take_error(node_id, partition, each, data)
            except Exception as error:  # whatever it is: a poll raises it, and the other partitions are read
                broken = as_client_error(f"what broker {node_id} sent of {partition} cannot be taken in", error)
                self._hold(partition)
                self._add(partition, each, memoryview(b""), [], broken)

    def _take_data(self, partition: TopicPartition, sent: _SentFetch, data: PartitionData) -> None:
        if self.problems:
            self.problems.pop(partition, None)
        if sent.is_follower:
            self._rack.served()
        state = sent.state
        if data.high_watermark >= 0:
            state.high_watermark = data.high_watermark
        if data.last_stable_offset >= 0:
            state.last_stable_offset = data.last_stable_offset
        if data.log_start_offset >= 0:
            state.log_start_offset = data.log_start_offset
        if data.preferred_read_replica >= 0:
            until = self._cluster.clock.monotonic_ms() + self._cluster.settings.metadata_max_age_ms
            self._subscriptions.set_preferred_read_replica(partition, data.preferred_read_replica, until)
        if data.records:
            self._add(partition, sent, memoryview(data.records), aborted_in(data))

    def _add(
        self,
        partition: TopicPartition,
        sent: _SentFetch,
        records: memoryview,
        aborted: list[tuple[int, int]],
        error: ClientError | None = None,
    ) -> None:
        offset = sent.wanted.offset
        fetch = CompletedFetch(partition, sent.state, sent.seeks, offset, records, self._decoding, aborted, error)
        self._buffer.add(fetch)

    def _take_error(self, node_id: int, partition: TopicPartition, sent: _SentFetch, data: PartitionData) -> None:
        code = data.error_code
        self._subscriptions.clear_preferred_read_replica(partition)
        if sent.is_follower:
            self._rack.failed(self._cluster.clock.monotonic_ms())
            if code == ErrorCode.OFFSET_OUT_OF_RANGE:
                return  # the follower lags behind, or begins later: the leader knows whether the offset is there
        error: ClientError = BrokerError(code, f"{partition} cannot be read from broker {node_id}")
        self.problems[partition] = error
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._metadata.request_update()  # another topic may have the name now
            if self._subscriptions.default_reset is OffsetReset.NONE:
                self._begin_to_explain(partition, sent)
                return
        elif code in TRIED_AGAIN:
            leader = data.current_leader
            metadata = self._cluster.metadata
            metadata.update_leader(*partition, leader.leader_id, leader.leader_epoch)
            if metadata.leader(*partition) in (node_id, NO_NODE, None):
                self._hold(partition)  # else another broker is asked
            self._metadata.request_update()
            return
        self._hold(partition)
        self._add(partition, sent, memoryview(b""), [], error)

    def _begin_to_explain(self, partition: TopicPartition, sent: _SentFetch) -> None:
        """Look up the partition's valid offsets, for the error. Other partitions do not wait for that."""
        if (before := self._explaining.pop(partition, None)) is not None:
            before[1].cancel()
        task = asyncio.get_running_loop().create_task(self._explain(partition, sent))
        self._explaining[partition] = (sent, task)

    def _is_explained(self, partition: TopicPartition, state: PartitionState) -> bool:
        """Whether the error of this position is being looked up; seek may have been called meanwhile."""
        found = self._explaining.get(partition)
        return found is not None and found[0].state is state and found[0].seeks == state.seeks

    async def _explain(self, partition: TopicPartition, sent: _SentFetch) -> None:
        offset = sent.wanted.offset
        try:
            async with asyncio.timeout(min(EXPLAIN_TIMEOUT_MS, self._cluster.settings.request_timeout_ms) / 1000):
                error = await out_of_range(self._cluster, partition, offset)
        except (ClientError, TimeoutError):
            error = OffsetOutOfRange(*partition, offset)
        finally:
            if (found := self._explaining.get(partition)) is not None and found[0] is sent:
                del self._explaining[partition]
        if sent.state.seeks == sent.seeks:
            self._hold(partition)
            self._add(partition, sent, memoryview(b""), [], error)
            self._on_data()
