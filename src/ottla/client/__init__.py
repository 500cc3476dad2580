"""Clients of a Kafka cluster, ours or Apache's: asyncio first, with a thin synchronous shell in `ottla.client.sync`.

The names below are imported when they are first used, so that a program that needs one client does not pay for all.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

#: Where each public name is defined.
_EXPORTS = {
    "Admin": "ottla.client.admin",
    "ConfigOperation": "ottla.client.admin",
    "ConfigResource": "ottla.client.admin",
    "Consumer": "ottla.client.consumer.consumer",
    "ConsumerRebalanceListener": "ottla.client.consumer.listener",
    "ConsumerHealth": "ottla.client.consumer.health",
    "ConsumerRecord": "ottla.records.consumed",
    "ConsumerRecords": "ottla.client.consumer.records",
    "NewPartitions": "ottla.client.admin",
    "NewTopic": "ottla.client.admin",
    "OffsetAndMetadata": "ottla.client.model",
    "OffsetAndTimestamp": "ottla.client.model",
    "Producer": "ottla.client.producer.producer",
    "ProducerRecord": "ottla.client.producer.record",
    "RecordFuture": "ottla.client.producer.futures",
    "RecordMetadata": "ottla.client.model",
    "SimpleConsumer": "ottla.client.simple",
    "TopicPartition": "ottla.client.model",
}


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
