"""What a type checker makes of programs that use the clients; checked with everything else, never run."""

from __future__ import annotations

from typing import assert_type

import ottla.client
import ottla.client.sync
from ottla.client import ConsumerRecord, ConsumerRecords, ProducerRecord, RecordFuture, RecordMetadata


async def with_an_event_loop(
    producer: ottla.client.Producer[str, int], consumer: ottla.client.Consumer[str, int]
) -> None:
    """`ottla.client`: keys are texts, values are numbers."""
    future = await producer.send(ProducerRecord("t", 1, "k"))
    assert_type(future, RecordFuture)
    assert_type(await future, RecordMetadata)
    await producer.send("t", "a text is no number")  # type: ignore[call-overload]
    assert_type(await consumer.poll(timeout_ms=100), ConsumerRecords[str, int])
    async for record in consumer:
        assert_type(record, ConsumerRecord[str, int])
        assert_type(record.key, str)
        assert_type(record.value, int)


def without(producer: ottla.client.sync.Producer[str, int], consumer: ottla.client.sync.Consumer[str, int]) -> None:
    """`ottla.client.sync`: the same."""
    assert_type(producer.send("t", 1, "k").result(1.0), RecordMetadata)
    producer.send("t", 1, 2)  # type: ignore[call-overload]
    assert_type(consumer.poll(timeout_ms=100), ConsumerRecords[str, int])
    for record in consumer:
        assert_type(record.value, int)
