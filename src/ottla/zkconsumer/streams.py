"""Streams: what a thread of the application iterates over.

Source: Apache Kafka 0.8.2.2, `kafka.consumer.KafkaStream`, `ConsumerIterator`, `kafka.message.MessageAndMetadata`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any, Generic, Self

from ottla.client.errors import ClientError, ClientTimeoutError, CorruptBatchError, SerializationError
from ottla.client.model import TopicPartition
from ottla.records.batch import TimestampType
from ottla.records.consumed import ConsumerRecord
from ottla.records.headers import Headers
from ottla.records.type_variables import K, V
from ottla.zkconsumer.chunk_queue import ChunkQueue, FetchedDataChunk

_log = logging.getLogger("ottla.zkconsumer")


Decode = Callable[[str, Headers, bytes | None], Any]


class ConsumerTimeoutError(ClientTimeoutError):
    """No record came within `consumer.timeout.ms`; the stream can be read on."""


class Decoders:
    """The functions that decode keys and values; None leaves the bytes."""

    __slots__ = ("key", "value")

    def __init__(self, key: Decode | None = None, value: Decode | None = None) -> None:
        self.key = key
        self.value = value


class MessageAndMetadata(Generic[K, V]):
    """A record and where it comes from. Key and value are decoded when they are asked for.

    So a record that cannot be decoded raises SerializationError there, and the stream continues after it.
    """

    __slots__ = ("_decoders", "_record")

    def __init__(self, record: ConsumerRecord[bytes | None, bytes | None], decoders: Decoders) -> None:
        self._record = record
        self._decoders = decoders

    @property
    def topic(self) -> str:
        """The topic."""
        return self._record.topic

    @property
    def partition(self) -> int:
        """The partition's number."""
        return self._record.partition

    @property
    def offset(self) -> int:
        """The record's offset."""
        return self._record.offset

    @property
    def timestamp(self) -> int:
        """Milliseconds since the Unix epoch, -1 where the record is older than timestamps are."""
        return self._record.timestamp

    @property
    def timestamp_type(self) -> TimestampType:
        """Whose clock that was."""
        return self._record.timestamp_type

    @property
    def headers(self) -> Headers:
        """The record's headers."""
        return self._record.headers

    @property
    def key(self) -> K:
        """The key, None where the record has none."""
        return self._decoded("key", self._decoders.key, self._record.key)  # type: ignore[no-any-return]

    @property
    def value(self) -> V:
        """The value, None for null."""
        return self._decoded("value", self._decoders.value, self._record.value)  # type: ignore[no-any-return]

    @property
    def message(self) -> V:
        """The value, by its older name."""
        return self.value

    def _decoded(self, what: str, decode: Decode | None, data: bytes | None) -> Any:
        if decode is None or data is None:
            return data
        try:
            return decode(self.topic, self.headers, data)
        except Exception as error:  # a decoder of the user's may raise whatever it likes
            raise SerializationError(
                f"the {what} of the record at offset {self.offset} of {self.topic}-{self.partition} cannot be decoded "
                f"({type(error).__name__}: {error}); the stream continues behind it"
            ) from error

    def __repr__(self) -> str:
        return f"MessageAndMetadata({self.topic}-{self.partition}, offset {self.offset})"


class _Current:
    """The chunk that a stream's thread is in, and its decoded records."""

    __slots__ = ("chunk", "index", "records")

    def __init__(self) -> None:
        self.drop()

    def drop(self) -> None:
        """Hand out none of it any more."""
        self.chunk: FetchedDataChunk | None = None
        self.records: list[ConsumerRecord[Any, Any]] = []
        self.index = 0

    def begin(self, chunk: FetchedDataChunk) -> None:
        """Hand out this chunk; one that was begun before, and whose removal was interrupted, is drained by now."""
        info, fetch = chunk.info, chunk.fetch
        if info.consumed_offset < fetch.position:
            _log.error(
                "%s was consumed up to offset %d, and its next chunk begins at %d: records may be lost",
                info.partition, info.consumed_offset, fetch.position,
            )  # fmt: skip
        info.consumed_offset = fetch.position
        self.chunk = chunk

    def next(self, generation: int) -> ConsumerRecord[Any, Any] | None:
        """The next record, which is consumed then; None where there is none of that generation. CorruptBatchError."""
        chunk = self.chunk
        if chunk is None:
            return None
        if chunk.generation != generation:
            self.drop()
            return None
        try:
            return self._next_of(chunk)
        except Exception:
            raise
        except BaseException:  # Ctrl-C: begin again behind what was handed out
            self.records, self.index = [], 0
            chunk.fetch.rewind(chunk.info.consumed_offset)
            raise

    def _next_of(self, chunk: FetchedDataChunk) -> ConsumerRecord[Any, Any] | None:
        while self.index >= len(self.records):
            if chunk.fetch.is_drained:
                # What holds no records (markers of transactions, what was compacted away) is passed over, too.
                chunk.info.consumed_offset = max(chunk.info.consumed_offset, chunk.fetch.position)
                self.drop()
                return None
            try:
                if chunk.fetch.error is not None:
                    raise chunk.fetch.error
                self.records, self.index = chunk.fetch.take(sys.maxsize), 0
            except CorruptBatchError as error:
                raise _unreadable(chunk.info.partition, error) from error
        record = self.records[self.index]
        self.index += 1
        chunk.info.consumed_offset = record.offset + 1
        return record


class ConsumerIterator(Generic[K, V]):
    """Hands out the records of a stream, chunk by chunk. It ends when the connector is shut down."""

    def __init__(self, queue: ChunkQueue, decoders: Decoders, timeout_ms: int, connector: object = None) -> None:
        self._queue = queue
        self._step = queue.step
        self._decoders = decoders
        self._timeout_s = timeout_ms / 1000 if timeout_ms >= 0 else None
        self._current = _Current()
        #: Keeps the connector alive for the reader of the stream, even without other references.
        self._connector = connector

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> MessageAndMetadata[K, V]:
        """The next record; it counts as consumed from now on.

        Waits for it, up to `consumer.timeout.ms`: ConsumerTimeoutError. CorruptBatchError, again and again, where a
        batch is damaged. ForkedError in another process than the connector's.
        """
        queue = self._queue
        while True:
            with self._step:
                record = self._current.next(queue.generation)
            if record is not None:
                return MessageAndMetadata(record, self._decoders)
            chunk = queue.take(self._timeout_s)
            if chunk is not None:
                with self._step:
                    if chunk.generation == queue.generation:
                        self._current.begin(chunk)
                    queue.began(chunk)
            elif queue.ended:
                raise StopIteration
            else:
                raise ConsumerTimeoutError(
                    f"no record within {self._timeout_s or 0:g} s (consumer.timeout.ms)", retriable=True
                )


class KafkaStream(Generic[K, V]):
    """The records of the partitions that one thread of a consumer owns: iterate over it, in a thread of your own.

    Records of one partition come in the order of their offsets; partitions take turns by chunks.
    """

    def __init__(
        self, queue: ChunkQueue, decoders: Decoders, timeout_ms: int, client_id: str, connector: object = None
    ) -> None:
        self.queue = queue
        self.client_id = client_id
        self._iterator: ConsumerIterator[K, V] = ConsumerIterator(queue, decoders, timeout_ms, connector)

    def __iter__(self) -> ConsumerIterator[K, V]:
        """The stream's one iterator: a second loop continues where the first one stopped."""
        return self._iterator


def _unreadable(partition: TopicPartition, error: CorruptBatchError) -> ClientError:
    return CorruptBatchError(
        f"{partition} cannot be read on: {str(error).partition('; ')[0]}; to leave it out, commit a later offset for "
        "the partition (commit_offsets) and open the connector again"
    )
