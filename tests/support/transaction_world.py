"""A shard of transactional ids with a log, a clock, and leaders that write markers when asked: no broker."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from ottla.records.control import TransactionMarker
from ottla.txn.events import (
    AddPartitionsToTxn,
    EndTxn,
    EndTxnResult,
    InitProducerId,
    InitProducerIdResult,
    MarkerToken,
    PartitionsResult,
    TransactionRequest,
    TransactionResult,
    TransactionStep,
)
from ottla.txn.machine import TransactionLimits, TransactionMachine
from ottla.txn.metadata import TopicPartition, TransactionMetadata
from ottla.txn.records import TransactionRecord, decode_record, encode_record, value_version
from ottla.txn.shard import TransactionShard
from ottla.txn.states import TransactionState
from ottla.wire.broker_requests import BrokerOutcome, BrokerRequest
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

ID = "mine"
FIRST_PRODUCER_ID = 1000
TIMEOUT_MS = 60_000
T0, T1, OFFSETS = ("t", 0), ("t", 1), ("__consumer_offsets", 7)


class World:
    """One shard; every step is carried out as the broker's runtime does, and the invariants are checked after it.

    The log keeps bytes; a record that cannot be read back as it was written fails the test.
    """

    def __init__(self, transaction_version: int = 0, limits: TransactionLimits | None = None) -> None:
        self.transaction_version = transaction_version
        self.limits = limits or TransactionLimits()
        self.now_ms = 1_000_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.coordinator_epoch = 0
        #: The errors that the next appends are to meet.
        self.errors: list[ErrorCode] = []
        self.ids = count(FIRST_PRODUCER_ID)
        self.has_ids = True
        #: Markers to be written, in the order in which the leaders were asked.
        self.asked: list[BrokerRequest] = []
        self.replies: dict[object, TransactionResult] = {}
        self._tokens = count()
        self.shard = self._new_shard()
        self.shard.loading = False

    def _new_shard(self) -> TransactionShard:
        shard = TransactionShard(0, self.limits, lambda: next(self.ids) if self.has_ids else None)
        shard.context.transaction_version = self.transaction_version
        shard.context.coordinator_epoch = self.coordinator_epoch
        return shard

    @property
    def machine(self) -> TransactionMachine:
        """The one transactional id of most tests."""
        return self.shard.machines[ID]

    @property
    def metadata(self) -> TransactionMetadata:
        """Its state in the log."""
        metadata = self.machine.metadata
        assert metadata is not None
        return metadata

    # Requests

    def ask(self, event: TransactionRequest) -> TransactionResult:
        """The answer to a request; it gets a token of its own."""
        event.token = token = next(self._tokens)
        self.carry_out(self.shard.handle(event, self.now_ms))
        return self.replies.pop(token)

    def init(
        self, transactional_id: str = ID, producer_id: int = -1, epoch: int = -1, timeout_ms: int = TIMEOUT_MS
    ) -> InitProducerIdResult:
        """InitProducerId."""
        result = self.ask(InitProducerId(None, transactional_id, timeout_ms, producer_id, epoch))
        assert isinstance(result, InitProducerIdResult)
        return result

    def add(self, *partitions: TopicPartition, epoch: int | None = None, producer_id: int | None = None) -> ErrorCode:
        """AddPartitionsToTxn by the current producer, unless the call says otherwise."""
        known = self.metadata
        result = self.ask(
            AddPartitionsToTxn(
                None,
                ID,
                known.producer_id if producer_id is None else producer_id,
                known.producer_epoch if epoch is None else epoch,
                partitions,
                self.transaction_version,
            )
        )
        assert isinstance(result, PartitionsResult)
        assert set(result.errors.values()) <= {result.error}
        return result.error

    def end(
        self, is_commit: bool = True, epoch: int | None = None, producer_id: int | None = None
    ) -> tuple[ErrorCode, int, int]:
        """EndTxn by the current producer, unless the call says otherwise: error, producer id, epoch."""
        known = self.metadata
        result = self.ask(
            EndTxn(
                None,
                ID,
                known.producer_id if producer_id is None else producer_id,
                known.producer_epoch if epoch is None else epoch,
                is_commit,
                self.transaction_version,
            )
        )
        assert isinstance(result, EndTxnResult)
        return result.error, result.producer_id, result.producer_epoch

    # Leaders

    @property
    def markers(self) -> dict[TopicPartition, TransactionMarker]:
        """The markers that leaders were asked for and have not answered, by partition."""
        found = {}
        for request in self.asked:
            assert isinstance(request.payload, WriteTxnMarkersRequest)
            (marker,) = request.payload.markers
            (topic,) = marker.topics
            (index,) = topic.partition_indexes
            assert request.destination == (topic.name, index)
            found[topic.name, index] = TransactionMarker(
                marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.transaction_result
            )
        return found

    def write_marker(self, partition: TopicPartition, error: ErrorCode = ErrorCode.NONE) -> None:
        """The leader of a partition answers."""
        request = next(each for each in self.asked if each.destination == partition)
        self.answer(request, response=marker_response(partition, error))

    def write_all_markers(self) -> None:
        """All leaders answer without error."""
        while self.asked:
            destination = self.asked[0].destination
            assert isinstance(destination, tuple)
            self.write_marker(destination)

    def answer(
        self,
        request: BrokerRequest,
        error: ErrorCode = ErrorCode.NONE,
        response: WriteTxnMarkersResponse | None = None,
    ) -> None:
        """One request to a leader has this outcome."""
        self.asked.remove(request)
        assert isinstance(request.token, MarkerToken)
        self.carry_out(self.shard.request_done(BrokerOutcome(request.token, error, response), self.now_ms))

    # Time and log

    def advance(self, by_ms: int) -> None:
        """Let time pass; what is due happens when it is due."""
        end_ms = self.now_ms + by_ms
        while (due_ms := self.shard.next_deadline_ms()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            while (step := self.shard.expire(self.now_ms)) is not None:
                self.carry_out(step)
        self.now_ms = end_ms

    def carry_out(self, step: TransactionStep) -> None:
        """Append, replay, settle, answer."""
        if step.batches and self.errors:
            self.carry_out(self.shard.append_failed(step, self.errors.pop(0), self.now_ms))
            return
        for batch in step.batches:
            for record in batch.records:
                self.log.append(encode_record(record, value_version(self.transaction_version)))
                assert self.decoded(-1) == self.as_written(record)
                self.shard.replay(record, len(self.log) - 1)
                self.check()
        self.shard.settle(step)
        for reply in step.replies:
            assert reply.token not in self.replies
            self.replies[reply.token] = reply.result
        self.asked += step.requests
        self.check()

    def decoded(self, index: int) -> TransactionRecord:
        """A record of the log."""
        return decode_record(*self.log[index])

    def as_written(self, record: TransactionRecord) -> TransactionRecord:
        """The record without what values of its version have no room for."""
        if record.metadata is None or self.transaction_version:
            return record
        metadata = replace(record.metadata, previous_producer_id=-1, next_producer_id=-1, client_transaction_version=0)
        return replace(record, metadata=metadata)

    def check(self) -> None:
        """The invariants of every transactional id."""
        for machine in self.shard.machines.values():
            machine.check_invariants()

    def restored(self) -> TransactionShard:
        """A shard that has loaded the log, before it continues anything."""
        shard = self._new_shard()
        for index in range(len(self.log)):
            shard.replay(self.decoded(index), index)
        return shard

    def restart(self) -> None:
        """Another coordinator takes over; what this one had asked for is answered to nobody."""
        self.coordinator_epoch += 1
        self.asked.clear()
        self.shard = self.restored()
        for step in self.shard.loaded(self.now_ms):
            self.carry_out(step)

    def put(self, state: TransactionState, **fields: object) -> None:
        """Begin with this state in the log."""
        known: dict[str, object] = {
            "producer_id": FIRST_PRODUCER_ID,
            "producer_epoch": 5,
            "timeout_ms": TIMEOUT_MS,
            "state": state,
            "last_update_ms": self.now_ms,
            "client_transaction_version": self.transaction_version,
        }
        if state is not TransactionState.EMPTY:
            known["start_ms"] = self.now_ms
        if state in (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT):
            known["partitions"] = frozenset({T0})
        metadata = TransactionMetadata(**(known | fields))  # type: ignore[arg-type]
        next(self.ids)
        self.log.append(encode_record(TransactionRecord(ID, metadata), value_version(self.transaction_version)))
        self.restart()


def marker_response(partition: TopicPartition, error: ErrorCode) -> WriteTxnMarkersResponse:
    """The answer of a leader that was asked for one marker."""
    result = WritableTxnMarkerPartitionResult(partition_index=partition[1], error_code=int(error))
    topic = WritableTxnMarkerTopicResult(name=partition[0], partitions=[result])
    return WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(topics=[topic])])
