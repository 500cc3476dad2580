"""Markers of transactions: written to partitions that this broker leads, and sent to the leaders of the others.

A coordinator's markers for one other broker go out together: one request is in work at a time, and what comes meanwhile
is in the next. Source: Apache Kafka 3.9, `KafkaApis.handleWriteTxnMarkersRequest`, `TransactionMarkerChannelManager`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.coordinators.broker_requests import FAILURE_PAUSE_S
from ottla.broker.coordinators.group_kind import OFFSETS_TOPIC
from ottla.cluster.topics import TRANSACTION_STATE_TOPIC
from ottla.records.control import TransactionMarker, end_transaction_batch
from ottla.storage.results import AppendRefusal
from ottla.storage.validation import COORDINATOR
from ottla.wire.apis import ApiKey
from ottla.wire.broker_requests import BrokerOutcome, BrokerRequest
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from ottla.broker.coordinators.groups import GroupCoordinatorService
    from ottla.broker.coordinators.shard import BrokerRequests
    from ottla.broker.replicas.manager import ReplicaManager
    from ottla.cluster.image import ClusterImage
    from ottla.env.clock import Clock

ABSENCE_S = 5.0
"""How long metadata lack a partition before it counts as deleted: they may come later than those of other brokers."""
MOST_MARKERS = 1_000
"""Most markers of one request to another broker."""

_Done = Callable[[ErrorCode], None]
_Waiting = tuple[BrokerRequest, Callable[[BrokerOutcome], None]]
_Written = tuple[int, str, int]
"""Producer id, topic, partition."""


class MarkerWriter:
    """Appends markers to the partitions that this broker leads."""

    def __init__(
        self, partitions: ReplicaManager, groups: GroupCoordinatorService, clock: Clock, timeout_ms: int
    ) -> None:
        self._partitions = partitions
        self._groups = groups
        self._clock = clock
        self._timeout_ms = timeout_ms

    def write(self, topic: str, index: int, marker: TransactionMarker, done: _Done) -> None:
        """Append a marker; call `done` once, when it is committed or with the error, possibly at once."""
        partition = self._partitions.get(topic, index)
        if partition is None:
            done(self._partitions.missing(topic, index))
        elif topic == OFFSETS_TOPIC:
            self._groups.runtime.append_marker(index, marker, self._timeout_ms, done)
        elif partition.leader is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif not partition.leader.has_enough(partition.log.config.min_insync_replicas):
            done(ErrorCode.NOT_ENOUGH_REPLICAS)
        else:
            batch = bytearray(end_transaction_batch(marker, self._clock.now_ms()))
            appended = self._partitions.append(partition, memoryview(batch), COORDINATOR)
            if isinstance(appended, AppendRefusal):
                done(appended.error)
            elif partition.log.high_watermark > appended.last_offset:
                done(ErrorCode.NONE)
            else:
                partition.when_committed(appended.last_offset, _Once(done, self._timeout_ms))


class _Once:
    """Calls `done` with the outcome, or with REQUEST_TIMED_OUT if none comes in time; it may be committed then."""

    __slots__ = ("_done", "_timer")

    def __init__(self, done: _Done, timeout_ms: int) -> None:
        self._done: _Done | None = done
        self._timer = asyncio.get_running_loop().call_later(timeout_ms / 1000, self, ErrorCode.REQUEST_TIMED_OUT)

    def __call__(self, error: ErrorCode) -> None:
        done, self._done = self._done, None
        self._timer.cancel()
        if done is not None:
            done(error)


class MarkerRequests:
    """`BrokerRequests` of a transaction coordinator, each for one marker: to this broker directly, to others together.

    `others` sends to other brokers.
    """

    def __init__(self, broker_id: int, image: ClusterImage, writer: MarkerWriter, others: BrokerRequests) -> None:
        self._broker_id = broker_id
        self._image = image
        self._writer = writer
        self._others = others
        #: By broker: the markers for the next request; there is an entry as long as one is in work.
        self._queues: dict[int, list[_Waiting]] = {}
        self._is_closed = False

    def send(self, request: BrokerRequest, done: Callable[[BrokerOutcome], None]) -> None:
        """See `BrokerRequests`."""
        leader = self._leader_of(request)
        if leader is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            asyncio.get_running_loop().call_later(ABSENCE_S, self._look_again, request, done)
        elif isinstance(leader, ErrorCode):
            self._pass_on(FAILURE_PAUSE_S, done, BrokerOutcome(request.token, leader))
        elif leader == self._broker_id:
            self._write_here(request, done)
        elif leader in self._queues:
            self._queues[leader].append((request, done))
        else:
            self._queues[leader] = [(request, done)]
            # What comes in the same turn of the loop goes out together.
            asyncio.get_running_loop().call_soon(self._send_next, leader)

    def close(self) -> None:
        """See `BrokerRequests`."""
        self._is_closed = True
        self._others.close()

    def _look_again(self, request: BrokerRequest, done: Callable[[BrokerOutcome], None]) -> None:
        if self._is_closed:
            return
        leader = self._leader_of(request)
        if leader is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            done(BrokerOutcome(request.token, leader))
        else:
            self.send(request, done)

    def _leader_of(self, request: BrokerRequest) -> int | ErrorCode:
        assert isinstance(request.destination, tuple)
        name, index = request.destination
        topic = self._image.topics.get(name)
        if TRANSACTION_STATE_TOPIC not in self._image.topics:
            return ErrorCode.LEADER_NOT_AVAILABLE  # no topics are known yet: a partition would count as deleted
        if topic is None or index >= len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        leader = topic.partitions[index].leader
        return leader if leader in self._image.brokers else ErrorCode.LEADER_NOT_AVAILABLE

    def _write_here(self, request: BrokerRequest, done: Callable[[BrokerOutcome], None]) -> None:
        ((topic, index), marker), wanted = _destination_and_marker(request)

        def written(error: ErrorCode) -> None:
            outcome = BrokerOutcome(request.token, ErrorCode.NONE, _response(wanted.producer_id, topic, index, error))
            self._pass_on(0, done, outcome)

        self._writer.write(topic, index, marker, written)

    def _pass_on(self, delay_s: float, done: Callable[[BrokerOutcome], None], outcome: BrokerOutcome) -> None:
        def pass_on() -> None:
            if not self._is_closed:
                done(outcome)

        asyncio.get_running_loop().call_later(delay_s, pass_on)

    def _send_next(self, leader: int) -> None:
        queue = self._queues[leader]
        if not queue or self._is_closed:
            del self._queues[leader]
            return
        sent, self._queues[leader] = queue[:MOST_MARKERS], queue[MOST_MARKERS:]
        payload = WriteTxnMarkersRequest(markers=_joined(request for request, _ in sent))
        request = BrokerRequest(ApiKey.WRITE_TXN_MARKERS, leader, payload, None)
        self._others.send(request, partial(self._answered, leader, sent))

    def _answered(self, leader: int, sent: list[_Waiting], outcome: BrokerOutcome) -> None:
        errors = _errors_of(outcome.response)
        for request, done in sent:
            (destination, _), wanted = _destination_and_marker(request)
            error = errors.get((wanted.producer_id, *destination))
            if error is None:
                missing = outcome.error if outcome.error is not ErrorCode.NONE else ErrorCode.UNKNOWN_SERVER_ERROR
                done(BrokerOutcome(request.token, missing))
            else:
                response = _response(wanted.producer_id, *destination, error)
                done(BrokerOutcome(request.token, ErrorCode.NONE, response))
        self._send_next(leader)


def marker_of(wanted: WritableTxnMarker) -> TransactionMarker:
    """The control record that a marker of a request asks for."""
    return TransactionMarker(
        wanted.producer_id, wanted.producer_epoch, wanted.coordinator_epoch, wanted.transaction_result
    )


def _destination_and_marker(
    request: BrokerRequest,
) -> tuple[tuple[tuple[str, int], TransactionMarker], WritableTxnMarker]:
    assert isinstance(request.payload, WriteTxnMarkersRequest)
    assert isinstance(request.destination, tuple)
    (wanted,) = request.payload.markers
    return (request.destination, marker_of(wanted)), wanted


def _joined(requests: Iterable[BrokerRequest]) -> list[WritableTxnMarker]:
    """The markers of several requests, those of one transaction as one."""
    topics: dict[TransactionMarker, dict[str, list[int]]] = {}
    for request in requests:
        ((topic, index), marker), _ = _destination_and_marker(request)
        topics.setdefault(marker, {}).setdefault(topic, []).append(index)
    return [
        WritableTxnMarker(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            transaction_result=marker.is_commit,
            topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in by_topic.items()],
            coordinator_epoch=marker.coordinator_epoch,
        )
        for marker, by_topic in topics.items()
    ]


def _errors_of(response: object) -> dict[_Written, int]:
    if not isinstance(response, WriteTxnMarkersResponse):
        return {}
    return {
        (marker.producer_id, topic.name, partition.partition_index): partition.error_code
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    }


def _response(producer_id: int, topic: str, index: int, error: int) -> WriteTxnMarkersResponse:
    written = WritableTxnMarkerPartitionResult(partition_index=index, error_code=error)
    of_topic = WritableTxnMarkerTopicResult(name=topic, partitions=[written])
    return WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(producer_id=producer_id, topics=[of_topic])])
