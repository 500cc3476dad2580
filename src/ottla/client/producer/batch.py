"""A batch of records of one partition, encoded on append, and split where the broker refuses its size."""

from __future__ import annotations

from ottla.client.model import TopicPartition
from ottla.client.producer.futures import BatchResult, SenderHome
from ottla.env.threads import Lock
from ottla.records.batch import BATCH_OVERHEAD, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from ottla.records.building import RecordsBuilder, finish_batch, finish_in_place
from ottla.records.compression import Compression
from ottla.records.record import decode_columns

MOST_GROWTH = 16
"""Upper bound of a record's growth with another base timestamp, so that every record has room."""


class ProducerBatch:
    """A batch in the accumulator or in flight. The accumulator's lock guards it while records are added.

    `limit` is the maximal size of its encoded records; `reserved` its share of `buffer.memory`. Times are
    milliseconds of the monotonic clock.
    """

    __slots__ = (
        "_was_framed",
        "attempts",
        "base_sequence",
        "builder",
        "created_ms",
        "drained_ms",
        "encoded",
        "last_error",
        "not_before_ms",
        "other_bytes",
        "partition",
        "producer_epoch",
        "producer_id",
        "record_count",
        "reserved",
        "result",
        "was_renumbered",
    )

    def __init__(
        self,
        partition: TopicPartition,
        limit: int,
        reserved: int,
        created_ms: float,
        lock: Lock,
        home: SenderHome | None = None,
    ) -> None:
        self.partition = partition
        self.builder = RecordsBuilder(limit)
        self.result = BatchResult(partition, lock, home)
        self.reserved = reserved
        #: Bytes of records not meant for the sticky partition: with a key, or with a given partition.
        self.other_bytes = 0
        self.created_ms = created_ms
        self.drained_ms = 0.0
        self.not_before_ms = 0.0
        self.attempts = 0
        #: Why the last attempt failed.
        self.last_error: Exception | None = None
        #: Set when the batch is closed, that is when it is taken to be sent.
        self.record_count = 0
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE
        #: Whether its sequence number has changed since it was first sent.
        self.was_renumbered = False
        self.encoded: bytes | memoryview[int] | None = None
        #: Whether it was framed in place, in the buffer of its records: done only once, as the bytes may be in flight.
        self._was_framed = False

    @property
    def size(self) -> int:
        """Size in a request; for records not compressed yet, their uncompressed size."""
        return len(self.encoded) if self.encoded is not None else self.builder.size + BATCH_OVERHEAD

    @property
    def is_closed(self) -> bool:
        """Whether the batch accepts no more records."""
        return self.builder.is_closed

    def close(self) -> None:
        """Stop accepting records."""
        self.builder.close()  # before it counts: a thread that appends to an open batch holds no lock
        self.record_count = self.builder.count

    def renumber(self, producer_id: int, producer_epoch: int, base_sequence: int, *, is_new: bool = False) -> None:
        """Set producer id, epoch and sequence number; the batch is framed again when it is next sent."""
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, producer_epoch, base_sequence
        self.was_renumbered = not is_new
        self.encoded = None

    def encode(
        self, compression: Compression, level: int | None, *, is_transactional: bool = False
    ) -> bytes | memoryview[int]:
        """Return the batch as it is sent; encoded once, unless it is renumbered."""
        if self.encoded is None:
            identity = self.producer_id, self.producer_epoch, self.base_sequence
            if compression == Compression.NONE and not self._was_framed:
                self._was_framed = True
                self.encoded = finish_in_place(self.builder, *identity, is_transactional=is_transactional)
            else:
                self.encoded = finish_batch(
                    self.builder,
                    compression=compression,
                    producer_id=identity[0],
                    producer_epoch=identity[1],
                    base_sequence=identity[2],
                    compression_level=level,
                    is_transactional=is_transactional,
                )
        return self.encoded


def split_batch(batch: ProducerBatch, lock: Lock) -> list[ProducerBatch]:
    """Split a batch of at least two records, which the broker refused for its size, into two closed ones, in order."""
    builder = batch.builder
    records = decode_columns(builder.payload(), builder.count)
    middle = builder.count // 2
    splits = []
    for start, stop in ((0, middle), (middle, builder.count)):
        limit = builder.size + MOST_GROWTH * builder.count
        split = ProducerBatch(batch.partition, limit, 0, batch.created_ms, lock, batch.result.home)
        for at in range(start, stop):
            timestamp = builder.base_timestamp + records.timestamp_deltas[at]
            split.builder.append(timestamp, records.keys[at], records.values[at], records.headers[at])
        split.reserved = split.builder.size + BATCH_OVERHEAD
        split.close()
        splits.append(split)
    return splits
