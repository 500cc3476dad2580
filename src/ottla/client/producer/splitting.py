"""Splits a batch that the broker refused for its size."""

from __future__ import annotations

from ottla.client.producer.batch import ProducerBatch
from ottla.env.threads import Lock
from ottla.records.batch import BATCH_OVERHEAD
from ottla.records.record import decode_columns

MOST_GROWTH = 16
"""Upper bound of a record's growth with another base timestamp, so that every record has room."""


def split_batch(batch: ProducerBatch, lock: Lock) -> list[ProducerBatch]:
    """Split a batch of at least two records into two closed ones, in order."""
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
