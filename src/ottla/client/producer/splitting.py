"""Two smaller batches in the place of one that the broker refused for its size."""

from __future__ import annotations

from ottla.client.producer.batch import ProducerBatch
from ottla.env.threads import Lock
from ottla.records.batch import BATCH_OVERHEAD
from ottla.records.record import decode_columns

MOST_GROWTH = 16
"""By how much a record may grow with another base of its timestamp: none may find no room."""


def split_batch(batch: ProducerBatch, lock: Lock) -> list[ProducerBatch]:
    """Two closed batches with the records of one that has at least two, in their order."""
    builder = batch.builder
    records = decode_columns(builder.payload(), builder.count)
    middle = builder.count // 2
    parts = []
    for start, stop in ((0, middle), (middle, builder.count)):
        limit = builder.size + MOST_GROWTH * builder.count
        part = ProducerBatch(batch.partition, limit, 0, batch.created_ms, lock, batch.result.home)
        for at in range(start, stop):
            timestamp = builder.base_timestamp + records.timestamp_deltas[at]
            part.builder.append(timestamp, records.keys[at], records.values[at], records.headers[at])
        part.reserved = part.builder.size + BATCH_OVERHEAD
        part.close()
        parts.append(part)
    return parts
