"""Interceptors: user code that sees, and may change, records of producers and consumers.

An interceptor's error is logged and otherwise ignored, and the next interceptor gets the result of the previous one,
as in Java: an interceptor must never cause a loss of records. Source: KIP-42.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from ottla.client.configs.consumer import ConsumerConfig
from ottla.client.configs.instances import configure, make_instance
from ottla.client.configs.producer import ProducerConfig
from ottla.client.configs.settings import CONSUMER, PRODUCER
from ottla.client.model import NO_OFFSET, OffsetAndMetadata, RecordMetadata, TopicPartition
from ottla.client.producer.futures import Callback, Watcher
from ottla.client.producer.record import ProducerRecord
from ottla.records.batch import NO_TIMESTAMP

if TYPE_CHECKING:
    from ottla.client.consumer.records import ConsumerRecords

logger = logging.getLogger(__name__)

NO_PARTITION = -1
"""Partition of a record that failed before its partition was chosen."""


class _Interceptor:
    """Base of all interceptors, with empty methods."""

    def configure(self, config: Mapping[str, Any]) -> None:
        """Read settings of the client, by Kafka's names; `client.id` is included."""

    def close(self) -> None:
        """Called when the client was closed."""


class ProducerInterceptor(_Interceptor):
    """Base class, or pattern for a class with these methods. Named in `interceptor.classes` of a producer."""

    def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        """Return the record to send instead of this one; called in `send`, before keys and values are serialized."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Called when a record was acknowledged, or failed (`error`); then its offset is -1, and its partition may be.

        Called before the record's own callback, if that is called: be quick.
        """


class ConsumerInterceptor(_Interceptor):
    """Base class, or pattern for a class with these methods. Named in `interceptor.classes` of a consumer."""

    def on_consume(self, records: ConsumerRecords[Any, Any]) -> ConsumerRecords[Any, Any]:
        """Return the records to pass on instead of these; called in `poll` if there are any."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Called when these offsets were committed."""


class _Chain:
    """Interceptors in the order of `interceptor.classes`. Missing methods are skipped."""

    def __init__(self, interceptors: list[Any]) -> None:
        self._interceptors = interceptors

    @classmethod
    def of(cls, config: ProducerConfig | ConsumerConfig) -> Self:
        """Create and configure those of `interceptor.classes`. Raises InvalidConfigError."""
        kind = PRODUCER if isinstance(config, ProducerConfig) else CONSUMER
        made = []
        for each in config.interceptor_classes:
            interceptor, is_new = make_instance(kind, "interceptor.classes", each, {})
            if is_new:
                settings = {**config.originals, "client.id": config.client_id}
                configure(kind, "interceptor.classes", interceptor, settings)
            made.append(interceptor)
        return cls(made)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def _replaced(self, method: str, value: Any) -> Any:
        """Return the result of the method, called along the chain."""
        for interceptor in self._interceptors:
            called = getattr(interceptor, method, None)
            if called is None:
                continue
            try:
                result = called(value)
                if not self._can_be(result):
                    raise TypeError(f"{method} gave {result!r:.80} in place of what it was given")
            except Exception:
                logger.exception("%s of interceptor %s failed", method, type(interceptor).__qualname__)
            else:
                value = result
        return value

    def _can_be(self, result: Any) -> bool:
        """Whether an interceptor may return this; otherwise the previous value is kept."""
        return result is not None

    def _call_all(self, method: str, *arguments: Any) -> None:
        for interceptor in self._interceptors:
            called = getattr(interceptor, method, None)
            if called is None:
                continue
            try:
                called(*arguments)
            except Exception:
                logger.exception("%s of interceptor %s failed", method, type(interceptor).__qualname__)

    def close(self) -> None:
        """Close all interceptors, once."""
        self._call_all("close")
        self._interceptors = []


class ProducerInterceptors(_Chain):
    """The interceptors of a producer; falsy without any."""

    def _can_be(self, result: Any) -> bool:
        return isinstance(result, ProducerRecord)

    def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        """Return the record to send."""
        replaced: ProducerRecord[Any, Any] = self._replaced("on_send", record)
        return replaced

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Notify all interceptors of a record's result."""
        self._call_all("on_acknowledgement", metadata, error)

    @contextmanager
    def sending(
        self, record: ProducerRecord[Any, Any], callback: Callback | None
    ) -> Iterator[tuple[ProducerRecord[Any, Any], Callback]]:
        """For `send`: yields the record and its callback. Errors of the block are reported to the interceptors."""
        record = self.on_send(record)
        try:
            yield record, self._before(record, callback)
        except Exception as error:
            self.on_acknowledgement(_nowhere(record), error)
            raise

    def _before(self, record: ProducerRecord[Any, Any], callback: Callback | None) -> Callback:
        """Return a callback for the record that notifies the interceptors, then calls `callback`."""
        if callback is None:
            return _Acknowledged(self, record)

        def acknowledged(metadata: RecordMetadata | None, error: Exception | None) -> None:
            self.on_acknowledgement(_nowhere(record) if metadata is None else metadata, error)
            callback(metadata, error)

        return acknowledged


class _Acknowledged(Watcher):
    """Notifies the interceptors of a record's result."""

    def __init__(self, interceptors: ProducerInterceptors, record: ProducerRecord[Any, Any]) -> None:
        self._interceptors = interceptors
        self._record = record

    def __call__(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        self._interceptors.on_acknowledgement(_nowhere(self._record) if metadata is None else metadata, error)


class ConsumerInterceptors(_Chain):
    """The interceptors of a consumer; falsy without any."""

    def on_consume(self, records: ConsumerRecords[Any, Any]) -> ConsumerRecords[Any, Any]:
        """Return the records to pass on."""
        replaced: ConsumerRecords[Any, Any] = self._replaced("on_consume", records)
        return replaced

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Notify all interceptors of committed offsets."""
        self._call_all("on_commit", offsets)


def _nowhere(record: ProducerRecord[Any, Any]) -> RecordMetadata:
    partition = NO_PARTITION if record.partition is None else record.partition
    return RecordMetadata(record.topic, partition, NO_OFFSET, NO_TIMESTAMP)
