"""Clients of Kafka clusters, ours or Apache's: asyncio first, with a thin sync layer in `ottla.client.sync`.

The names below are imported at first use, so that a program that needs one client does not load all.
Type checkers read the imports instead; a test keeps the two in step.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.client.admin import Admin as Admin
    from ottla.client.admin import ConfigOperation as ConfigOperation
    from ottla.client.admin import ConfigResource as ConfigResource
    from ottla.client.admin import NewPartitions as NewPartitions
    from ottla.client.admin import NewTopic as NewTopic
    from ottla.client.consumer.consumer import Consumer as Consumer
    from ottla.client.consumer.health import ConsumerHealth as ConsumerHealth
    from ottla.client.consumer.health import HealthCause as HealthCause
    from ottla.client.consumer.listener import ConsumerRebalanceListener as ConsumerRebalanceListener
    from ottla.client.consumer.records import ConsumerRecords as ConsumerRecords
    from ottla.client.errors import ClientError as ClientError
    from ottla.client.errors import InvalidConfigError as InvalidConfigError
    from ottla.client.errors import SerializationError as SerializationError
    from ottla.client.exporting import ClientCollector as ClientCollector
    from ottla.client.exporting import observe_metrics as observe_metrics
    from ottla.client.exporting import serve_metrics as serve_metrics
    from ottla.client.interceptors import ConsumerInterceptor as ConsumerInterceptor
    from ottla.client.interceptors import ProducerInterceptor as ProducerInterceptor
    from ottla.client.model import EARLIEST as EARLIEST
    from ottla.client.model import LATEST as LATEST
    from ottla.client.model import OffsetAndMetadata as OffsetAndMetadata
    from ottla.client.model import OffsetAndTimestamp as OffsetAndTimestamp
    from ottla.client.model import RecordMetadata as RecordMetadata
    from ottla.client.model import TopicPartition as TopicPartition
    from ottla.client.producer.bulk_future import BulkFuture as BulkFuture
    from ottla.client.producer.futures import RecordFuture as RecordFuture
    from ottla.client.producer.producer import Producer as Producer
    from ottla.client.producer.record import ProducerRecord as ProducerRecord
    from ottla.client.serialization import Deserializer as Deserializer
    from ottla.client.serialization import Serializer as Serializer
    from ottla.client.simple import SimpleConsumer as SimpleConsumer
    from ottla.records.consumed import ConsumerRecord as ConsumerRecord

#: Where each public name is defined.
_EXPORTS = {
    name: module
    for module, names in {
        "ottla.client.admin": "Admin ConfigOperation ConfigResource NewPartitions NewTopic",
        "ottla.client.consumer.consumer": "Consumer",
        "ottla.client.consumer.health": "ConsumerHealth HealthCause",
        "ottla.client.consumer.listener": "ConsumerRebalanceListener",
        "ottla.client.consumer.records": "ConsumerRecords",
        "ottla.client.errors": "ClientError InvalidConfigError SerializationError",
        "ottla.client.exporting": "ClientCollector observe_metrics serve_metrics",
        "ottla.client.interceptors": "ConsumerInterceptor ProducerInterceptor",
        "ottla.client.model": "EARLIEST LATEST OffsetAndMetadata OffsetAndTimestamp RecordMetadata TopicPartition",
        "ottla.client.producer.bulk_future": "BulkFuture",
        "ottla.client.producer.futures": "RecordFuture",
        "ottla.client.producer.producer": "Producer",
        "ottla.client.producer.record": "ProducerRecord",
        "ottla.client.serialization": "Deserializer Serializer",
        "ottla.client.simple": "SimpleConsumer",
        "ottla.records.consumed": "ConsumerRecord",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
