"""Sends the accumulated batches: grouped by leader, retried without loss of order and without duplicates.

With idempotence (KIP-98) each batch carries producer id, epoch and sequence number; it is encoded once and sent again
byte for byte, so the broker recognises what it has. A batch whose fate stays unknown makes the sender go on under a new
producer id, since the sequence of the old one can no longer be known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

from ottla.client.accumulator import Accumulator, ProducerBatch, ProducerIdentity
from ottla.client.cluster import PRODUCE, Cluster
from ottla.client.errors import (
    BrokerError,
    ClientClosedError,
    ClientError,
    DeliveryError,
    InvalidArgumentError,
    ProtocolError,
    RecordTooLargeError,
)
from ottla.client.model import NO_OFFSET, RecordMetadata, TopicPartition
from ottla.client.settings import ProducerSettings
from ottla.records.batch import MAX_INT32, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from ottla.records.compression import Compression
from ottla.records.record import encode_batch
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

ALL = -1
ACKS = {"0": 0, "1": 1, "-1": ALL, "all": ALL}
LOST_SEQUENCE = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)


def parse_acks(acks: int | str) -> int:
    """0, 1 or -1 of a number or of Kafka's words; InvalidArgumentError otherwise."""
    try:
        return ACKS[str(acks)]
    except KeyError:
        raise InvalidArgumentError(f"acks is {acks!r}; it can be 0, 1 or all (-1)") from None


def parse_compression(name: str) -> Compression:
    """The codec of a name such as `zstd`; InvalidArgumentError otherwise."""
    try:
        return Compression[name.upper()]
    except KeyError:
        names = ", ".join(codec.name.lower() for codec in Compression)
        raise InvalidArgumentError(f"compression_type is {name!r}; it can be one of {names}") from None


class Sender:
    """Works off an accumulator as long as it is started; lives in one event loop, that of its cluster."""

    def __init__(self, cluster: Cluster, settings: ProducerSettings, accumulator: Accumulator) -> None:
        self._cluster = cluster
        self._settings = settings
        self._accumulator = accumulator
        self._compression = parse_compression(settings.compression_type)
        wanted = settings.enable_idempotence
        if wanted and settings.acks != ALL:
            raise InvalidArgumentError("enable_idempotence needs acks=all")
        self._idempotent = settings.acks == ALL if wanted is None else wanted
        self._identity: ProducerIdentity | None = None
        self._identifying = asyncio.Lock()
        self._wake = asyncio.Event()
        self._room: dict[int, asyncio.Semaphore] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._first_failure: ClientError | None = None
        self._failed_records = 0

    def start(self) -> None:
        """Begin to send."""
        self._spawn(self._run())

    def wake(self) -> None:
        """There may be something to send."""
        self._wake.set()

    @property
    def has_failed(self) -> bool:
        """Whether records were given up that no `flush` has told of yet."""
        return self._first_failure is not None

    async def flush(self) -> None:
        """Send everything and wait until it is acknowledged. Raises DeliveryError for what was not, since the last."""
        batches = self._accumulator.begin_flush()
        try:
            waiting = [self._waiter(batch) for batch in batches]
            self.wake()
            await asyncio.gather(*waiting, return_exceptions=True)
        finally:
            self._accumulator.end_flush()
        self.raise_failure()

    def raise_failure(self) -> None:
        """DeliveryError, once, if records were given up."""
        failure, count = self._first_failure, self._failed_records
        self._first_failure, self._failed_records = None, 0
        if failure is not None:
            raise DeliveryError(f"{count} records were not acknowledged: {failure}") from failure

    async def result(self, batch: ProducerBatch) -> RecordMetadata:
        """Where the first record of the batch went, once it is acknowledged; the error where it is not."""
        batch.is_awaited = True
        waiter = self._waiter(batch)
        self.wake()
        return await waiter

    async def close(self) -> None:
        """Stop; what is not sent yet is not sent any more. `flush` first to keep it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for batch in self._accumulator.begin_flush():
            for waiter in batch.waiters:
                if not waiter.done():
                    waiter.set_exception(ClientClosedError("the producer was closed before the records were sent"))

    def _waiter(self, batch: ProducerBatch) -> asyncio.Future[RecordMetadata]:
        waiter: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        batch.waiters.append(waiter)
        return waiter

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            if batches := self._accumulator.take():
                self._spawn(self._send_all(batches))
            due_in_ms = self._accumulator.next_due_in_ms()
            timer = None if due_in_ms is None else loop.call_later(due_in_ms / 1000, self._wake.set)
            await self._wake.wait()
            if timer is not None:
                timer.cancel()

    async def _send_all(self, batches: list[ProducerBatch]) -> None:
        by_leader: dict[int, list[ProducerBatch]] = {}
        for batch in batches:
            try:
                leader = await self._cluster.leader(batch.partition)
            except ClientError as error:
                self._attempt_failed(batch, error)
            else:
                by_leader.setdefault(leader, []).append(batch)
        for leader, group in by_leader.items():
            for together in _requests(group, self._settings.max_request_size):
                self._spawn(self._send(leader, together))

    async def _send(self, leader: int, batches: list[ProducerBatch]) -> None:
        most = self._settings.max_in_flight_requests_per_connection
        room = self._room.setdefault(leader, asyncio.Semaphore(most))
        async with room:
            try:
                request = await self._request(batches)
                acks = self._settings.acks
                answer: ProduceResponse | None = await self._cluster.request(
                    leader, request, purpose=PRODUCE, awaits_response=acks != 0
                )
            except Exception as error:
                # Whatever it was, nobody shall wait for these batches in vain.
                known = error if isinstance(error, ClientError) else ClientError(f"cannot send records: {error!r}")
                for batch in batches:
                    self._attempt_failed(batch, known)
                return
        if answer is None:
            for batch in batches:
                self._acknowledged(batch, NO_OFFSET, NO_TIMESTAMP)
            return
        told = {
            TopicPartition(topic.name, each.index): each
            for topic in answer.responses
            for each in topic.partition_responses
        }
        for batch in batches:
            self._answered(batch, told.get(batch.partition), leader)

    async def _request(self, batches: list[ProducerBatch]) -> ProduceRequest:
        topics: dict[str, list[PartitionProduceData]] = {}
        for batch in batches:
            if batch.encoded is None:
                await self._encode(batch)
            batch.attempts += 1
            topic, partition = batch.partition
            topics.setdefault(topic, []).append(PartitionProduceData(index=partition, records=batch.encoded))
        return ProduceRequest(
            acks=self._settings.acks,
            timeout_ms=self._cluster.settings.request_timeout_ms,
            topic_data=[TopicProduceData(name=name, partition_data=data) for name, data in topics.items()],
        )

    async def _encode(self, batch: ProducerBatch) -> None:
        producer_id, producer_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        if self._idempotent:
            identity = batch.identity = await self._producer_identity()
            producer_id, producer_epoch = identity.producer_id, identity.producer_epoch
            batch.base_sequence = identity.sequences.get(batch.partition, 0)
        batch.encoded = encode_batch(
            batch.records,
            compression=self._compression,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=batch.base_sequence,
        )

    async def _producer_identity(self) -> ProducerIdentity:
        async with self._identifying:
            if self._identity is None:
                self._identity = await self._cluster.retry("getting a producer id", self._init_producer_id)
            return self._identity

    async def _init_producer_id(self) -> ProducerIdentity:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=MAX_INT32)
        answer: InitProducerIdResponse = await self._cluster.request_any(request)
        if answer.error_code != ErrorCode.NONE:
            raise BrokerError(answer.error_code, f"{self._cluster.name} gives out no producer id")
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    def _answered(self, batch: ProducerBatch, told: PartitionProduceResponse | None, leader: int) -> None:
        if told is None:
            self._attempt_failed(batch, ProtocolError(f"broker {leader} left {batch.partition} out of its answer"))
        elif told.error_code == ErrorCode.NONE:
            self._acknowledged(batch, told.base_offset, told.log_append_time_ms)
        elif told.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._acknowledged(batch, NO_OFFSET, NO_TIMESTAMP)
        elif told.error_code == ErrorCode.MESSAGE_TOO_LARGE and len(batch.records) > 1:
            self._spawn(self._finish_halves(batch, self._accumulator.split(batch)))
            self.wake()
        elif told.error_code == ErrorCode.MESSAGE_TOO_LARGE:
            limit = "max.message.bytes of the topic (message.max.bytes of the broker)"
            self._give_up(batch, RecordTooLargeError(batch.partition.topic, len(batch.encoded or b""), limit))
        else:
            detail = "; ".join(filter(None, [told.error_message, *_record_errors(told)]))
            self._attempt_failed(
                batch, BrokerError(told.error_code, f"{batch.partition} at broker {leader}", detail or None)
            )

    def _attempt_failed(self, batch: ProducerBatch, error: ClientError) -> None:
        """Send the batch again, under a new identity where the sequence is lost and nothing can be doubled, or not."""
        now_ms = self._cluster.clock.monotonic_ms()
        lost = batch.identity is not None and getattr(error, "code", None) in LOST_SEQUENCE
        if lost and batch.attempts == 1:
            self._forget_identity(batch)
            batch.encoded = batch.identity = None
            self._accumulator.put_back(batch, now_ms)
        elif error.retriable and now_ms - batch.created_ms < self._settings.delivery_timeout_ms:
            self._cluster.metadata.expire([batch.partition.topic])
            settings = self._cluster.settings
            growth = min(2 ** min(batch.attempts, 16), settings.retry_backoff_max_ms // settings.retry_backoff_ms)
            self._accumulator.put_back(batch, now_ms + settings.retry_backoff_ms * growth)
        else:
            self._give_up(batch, error)
        self.wake()

    def _acknowledged(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int) -> None:
        if batch.identity is not None:
            following = (batch.base_sequence + len(batch.records)) & MAX_INT32
            batch.identity.sequences[batch.partition] = following
        self._accumulator.finish(batch)
        timestamp = log_append_time_ms if log_append_time_ms != NO_TIMESTAMP else batch.records[0].timestamp
        for waiter in batch.waiters:
            if not waiter.done():
                waiter.set_result(RecordMetadata(*batch.partition, base_offset, timestamp))
        self.wake()

    def _give_up(self, batch: ProducerBatch, error: ClientError) -> None:
        if batch.attempts:
            self._forget_identity(batch)
        self._accumulator.finish(batch)
        if not batch.is_awaited:
            self._first_failure = self._first_failure or error
            self._failed_records += len(batch.records)
        for waiter in batch.waiters:
            if not waiter.done():
                waiter.set_exception(error)
        self.wake()

    async def _finish_halves(self, batch: ProducerBatch, halves: list[ProducerBatch]) -> None:
        """Tell those who wait for a batch what became of its halves."""
        for half in halves:
            half.is_awaited = batch.is_awaited
        results = await asyncio.gather(*(self._waiter(half) for half in halves), return_exceptions=True)
        failure = next((result for result in results if isinstance(result, BaseException)), None)
        for waiter in batch.waiters:
            if waiter.done():
                continue
            if failure is not None:
                waiter.set_exception(failure)
            elif isinstance(results[0], RecordMetadata):
                waiter.set_result(results[0])

    def _forget_identity(self, batch: ProducerBatch) -> None:
        if self._identity is batch.identity:
            self._identity = None


def _requests(batches: Sequence[ProducerBatch], most_bytes: int) -> Iterator[list[ProducerBatch]]:
    """Batches that fit into one request together; a single one may be larger."""
    together: list[ProducerBatch] = []
    size = 0
    for batch in batches:
        if together and size + batch.size > most_bytes:
            yield together
            together, size = [], 0
        together.append(batch)
        size += batch.size
    if together:
        yield together


def _record_errors(told: PartitionProduceResponse) -> Iterator[str]:
    for each in told.record_errors:
        yield f"record {each.batch_index} of the batch: {each.batch_index_error_message or 'refused'}"
