"""Code of the user's that sees, and may change, what producers send and consumers read.

What an interceptor raises is logged and disturbs nothing, and the next interceptor gets what the one before it gave:
so Java has it, and an interceptor must never be the reason why records are lost. Source: KIP-42.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

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
"""Where a record failed before a partition was chosen."""


class _Interceptor:
    """What every interceptor can do, and mostly need not."""

    def configure(self, config: Mapping[str, Any]) -> None:
        """Take settings of the client, by Kafka's names; `client.id` is among them."""

    def close(self) -> None:
        """The client was closed."""


class ProducerInterceptor(_Interceptor):
    """Derive from it, or write a class with these methods. Named in `interceptor.classes` of a producer."""

    def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        """The record to send in place of this one; called in `send`, before keys and values are serialized."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """A record was delivered, or (`error`) was not; then its offset is -1, and its partition may be.

        Called before the record's own callback, where that is called: be quick.
        """


class ConsumerInterceptor(_Interceptor):
    """Derive from it, or write a class with these methods. Named in `interceptor.classes` of a consumer."""

    def on_consume(self, records: ConsumerRecords[Any, Any]) -> ConsumerRecords[Any, Any]:
        """The records to give in place of these; called in `poll` where there are any."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These offsets were committed."""


class _Chain:
    """Interceptors in the order of `interceptor.classes`. A method that one of them lacks is passed over."""

    def __init__(self, interceptors: list[Any]) -> None:
        self._interceptors = interceptors

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def _replaced(self, method: str, given: Any) -> Any:
        """What comes out where each interceptor is given what the one before it gave."""
        for interceptor in self._interceptors:
            called = getattr(interceptor, method, None)
            if called is None:
                continue
            try:
                result = called(given)
                if not self._can_be(result):
                    raise TypeError(f"{method} gave {result!r:.80} in place of what it was given")
            except Exception:
                logger.exception("%s of interceptor %s failed", method, type(interceptor).__qualname__)
            else:
                given = result
        return given

    def _can_be(self, result: Any) -> bool:
        """Whether an interceptor may give this; what was given to it stays where it may not."""
        return result is not None

    def _tell(self, method: str, *arguments: Any) -> None:
        for interceptor in self._interceptors:
            called = getattr(interceptor, method, None)
            if called is None:
                continue
            try:
                called(*arguments)
            except Exception:
                logger.exception("%s of interceptor %s failed", method, type(interceptor).__qualname__)

    def close(self) -> None:
        """Close all of them, once."""
        self._tell("close")
        self._interceptors = []


class ProducerInterceptors(_Chain):
    """The interceptors of a producer; falsy where there are none."""

    @classmethod
    def of(cls, config: ProducerConfig) -> ProducerInterceptors:
        """Those of `interceptor.classes`, made and configured. InvalidConfigError."""
        return cls(_made(PRODUCER, config.interceptor_classes, config.originals, config.client_id))

    def _can_be(self, result: Any) -> bool:
        return isinstance(result, ProducerRecord)

    def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        """The record to send."""
        replaced: ProducerRecord[Any, Any] = self._replaced("on_send", record)
        return replaced

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Tell all of them what became of a record."""
        self._tell("on_acknowledgement", metadata, error)

    @contextmanager
    def sending(
        self, record: ProducerRecord[Any, Any], callback: Callback | None
    ) -> Iterator[tuple[ProducerRecord[Any, Any], Callback]]:
        """For `send`: the record to send and the callback to send it with. They are told of what the block raises."""
        record = self.on_send(record)
        try:
            yield record, self._before(record, callback)
        except Exception as error:
            self.on_acknowledgement(_nowhere(record), error)
            raise

    def _before(self, record: ProducerRecord[Any, Any], callback: Callback | None) -> Callback:
        """A callback for the record that tells the interceptors, then calls `callback`."""
        if callback is None:
            return _Acknowledged(self, record)

        def acknowledged(metadata: RecordMetadata | None, error: Exception | None) -> None:
            self.on_acknowledgement(_nowhere(record) if metadata is None else metadata, error)
            callback(metadata, error)

        return acknowledged


class _Acknowledged(Watcher):
    """Tells the interceptors of a record."""

    def __init__(self, interceptors: ProducerInterceptors, record: ProducerRecord[Any, Any]) -> None:
        self._interceptors = interceptors
        self._record = record

    def __call__(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        self._interceptors.on_acknowledgement(_nowhere(self._record) if metadata is None else metadata, error)


class ConsumerInterceptors(_Chain):
    """The interceptors of a consumer; falsy where there are none."""

    @classmethod
    def of(cls, config: ConsumerConfig) -> ConsumerInterceptors:
        """Those of `interceptor.classes`, made and configured. InvalidConfigError."""
        return cls(_made(CONSUMER, config.interceptor_classes, config.originals, config.client_id))

    def on_consume(self, records: ConsumerRecords[Any, Any]) -> ConsumerRecords[Any, Any]:
        """The records to give."""
        replaced: ConsumerRecords[Any, Any] = self._replaced("on_consume", records)
        return replaced

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Tell all of them what was committed."""
        self._tell("on_commit", offsets)


def _nowhere(record: ProducerRecord[Any, Any]) -> RecordMetadata:
    partition = NO_PARTITION if record.partition is None else record.partition
    return RecordMetadata(record.topic, partition, NO_OFFSET, NO_TIMESTAMP)


def _made(kind: str, given: tuple[Any, ...], originals: Mapping[str, Any], client_id: str) -> list[Any]:
    made = []
    for each in given:
        interceptor, is_new = make_instance(kind, "interceptor.classes", each, {})
        if is_new:
            configure(kind, "interceptor.classes", interceptor, {**originals, "client.id": client_id})
        made.append(interceptor)
    return made
