"""What a type checker makes of programs that use the clients; checked with everything else, never run."""

from __future__ import annotations

from typing import Any, assert_type

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


async def without_types() -> None:
    """Programs that name no types: keys and values are anything."""
    producer = ottla.client.Producer(bootstrap_servers="h:1")
    assert_type(producer, ottla.client.Producer[Any, Any])
    assert_type(await producer.send("t", 1, "k"), RecordFuture)
    consumer: ottla.client.Consumer = ottla.client.Consumer({"bootstrap.servers": "h:1"})
    assert_type(await consumer.poll(timeout_ms=100), ConsumerRecords[Any, Any])
    simple = ottla.client.SimpleConsumer(bootstrap_servers="h:1")
    assert_type((await simple.fetch("t", 0, 0)).records, list[ConsumerRecord[Any, Any]])


def without_types_or_loop(records: list[ConsumerRecord]) -> list[ProducerRecord]:
    """The sync clients, and functions that take and give records."""
    with ottla.client.sync.Producer(bootstrap_servers="h:1") as producer:
        assert_type(producer, ottla.client.sync.Producer[Any, Any])
        producer.send("t", 1, "k").result(1.0)
    with ottla.client.sync.Consumer(bootstrap_servers="h:1") as consumer:
        assert_type(consumer, ottla.client.sync.Consumer[Any, Any])
        records += consumer.poll(timeout_ms=100)
    return [ProducerRecord("t", each.value) for each in records]
