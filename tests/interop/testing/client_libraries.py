"""Four client libraries behind one small interface, so that each test of a fault rule says only what it is about.

What is returned and raised is each library's own; only error codes and offsets are brought into one form.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors

from ottla.client import ConsumerRebalanceListener
from ottla.client.errors import BrokerError
from ottla.client.sync import Consumer, Producer
from ottla.wire.errors import ErrorCode
from support.waiting import wait_until

TIMEOUT_S = 120.0
GROUP = "g"
#: How long a producer waits for a response before it tries again, in milliseconds.
REQUEST_TIMEOUT_MS = 30_000
#: One poll of a consumer, in seconds.
POLL_S = 0.1


class Sender(ABC):
    """A producer of some library."""

    @abstractmethod
    def send(self, topic: str, value: bytes) -> int:
        """Send one record to partition 0 and wait for its offset; raises what the library reports."""

    @abstractmethod
    def error_code(self, error: Exception) -> ErrorCode:
        """The code of an error that `send` raised."""

    def throttled_ms(self) -> float | None:
        """The largest throttle time that the library reports; None where it reports none."""
        return None


class Reader(ABC):
    """A consumer of some library, in the group `GROUP`."""

    #: How often partitions were assigned, by the library's own listener.
    assigned = 0

    @abstractmethod
    def poll(self) -> list[bytes]:
        """The values of the records of one short poll."""

    @abstractmethod
    def member_id(self) -> str:
        """The member id by which the library goes."""

    def read(self, count: int) -> list[bytes]:
        """The next this many values."""
        found: list[bytes] = []

        def polled() -> bool:
            found.extend(self.poll())
            return len(found) >= count

        wait_until(polled, f"{count} records", TIMEOUT_S)
        return found

    def poll_until(self, condition: Any, what: str) -> None:
        """Poll until the condition holds."""

        def polled() -> bool:
            self.poll()
            return bool(condition())

        wait_until(polled, what, TIMEOUT_S)


class Library(ABC):
    """One client library."""

    name: str

    @abstractmethod
    @contextmanager
    def sender(self, bootstrap: str, request_timeout_ms: int = REQUEST_TIMEOUT_MS) -> Iterator[Sender]:
        """An idempotent producer."""

    @abstractmethod
    @contextmanager
    def reader(self, bootstrap: str, topic: str) -> Iterator[Reader]:
        """A consumer that reads from the beginning."""


# ottla


class _OttlaSender(Sender):
    def __init__(self, producer: Producer[Any, Any]) -> None:
        self._producer = producer

    def send(self, topic: str, value: bytes) -> int:
        return self._producer.send(topic, value=value, partition=0).result(TIMEOUT_S).offset

    def error_code(self, error: Exception) -> ErrorCode:
        assert isinstance(error, BrokerError)
        return ErrorCode(error.code)

    def throttled_ms(self) -> float:
        return self._producer.metrics()["produce-throttle-time-max"]


class _OttlaReader(Reader):
    def __init__(self, consumer: Consumer[Any, Any]) -> None:
        self._consumer = consumer

    def poll(self) -> list[bytes]:
        return [record.value for record in self._consumer.poll(int(POLL_S * 1000))]

    def member_id(self) -> str:
        return self._consumer.group_metadata().member_id


class Ottla(Library):
    """Ours."""

    name = "ottla"

    @contextmanager
    def sender(self, bootstrap: str, request_timeout_ms: int = REQUEST_TIMEOUT_MS) -> Iterator[Sender]:
        with Producer(bootstrap_servers=bootstrap, request_timeout_ms=request_timeout_ms) as producer:
            yield _OttlaSender(producer)

    @contextmanager
    def reader(self, bootstrap: str, topic: str) -> Iterator[Reader]:
        with Consumer(
            bootstrap_servers=bootstrap, group_id=GROUP, auto_offset_reset="earliest", heartbeat_interval_ms=100
        ) as consumer:
            reader = _OttlaReader(consumer)

            class Listener(ConsumerRebalanceListener):
                def on_partitions_assigned(self, partitions: Any) -> None:
                    reader.assigned += 1

            consumer.subscribe([topic], Listener())
            yield reader


# kafka-python


class _KafkaPythonSender(Sender):
    def __init__(self, producer: kafka.KafkaProducer) -> None:
        self._producer = producer

    def send(self, topic: str, value: bytes) -> int:
        offset: int = self._producer.send(topic, value, partition=0).get(TIMEOUT_S).offset
        return offset

    def error_code(self, error: Exception) -> ErrorCode:
        assert isinstance(error, kafka.errors.BrokerResponseError)
        return ErrorCode(error.errno)

    def throttled_ms(self) -> float:
        figures: dict[str, float] = self._producer.metrics()["producer-metrics"]
        return figures["throttle-time-max"]


class _KafkaPythonReader(Reader):
    def __init__(self, consumer: kafka.KafkaConsumer) -> None:
        self._consumer = consumer

    def poll(self) -> list[bytes]:
        # A poll must not end while the consumer joins (FINDINGS.md), so that this one lasts longer than others.
        found = self._consumer.poll(1000)
        return [record.value for records in found.values() for record in records]

    def member_id(self) -> str:
        return str(self._consumer.group_metadata().member_id)


class KafkaPython(Library):
    """Pure Python."""

    name = "kafka-python"

    @contextmanager
    def sender(self, bootstrap: str, request_timeout_ms: int = REQUEST_TIMEOUT_MS) -> Iterator[Sender]:
        producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, request_timeout_ms=request_timeout_ms)
        try:
            yield _KafkaPythonSender(producer)
        finally:
            producer.close(TIMEOUT_S)

    @contextmanager
    def reader(self, bootstrap: str, topic: str) -> Iterator[Reader]:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=GROUP,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
            session_timeout_ms=30_000,
        )
        reader = _KafkaPythonReader(consumer)

        class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_revoked(self, revoked: Any) -> None: ...

            def on_partitions_assigned(self, assigned: Any) -> None:
                reader.assigned += 1

        try:
            consumer.partitions_for_topic(topic)
            consumer.subscribe([topic], listener=Listener())
            yield reader
        finally:
            consumer.close(autocommit=False)


# confluent-kafka


class _ConfluentSender(Sender):
    def __init__(self, bootstrap: str, request_timeout_ms: int) -> None:
        self._throttled_ms = 0.0
        self.producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                "socket.timeout.ms": request_timeout_ms,
                "request.timeout.ms": request_timeout_ms,
                "throttle_cb": self._throttled,
                "log_level": 2,
            }
        )

    def _throttled(self, event: Any) -> None:
        self._throttled_ms = max(self._throttled_ms, event.throttle_time * 1000)

    def send(self, topic: str, value: bytes) -> int:
        reports: list[tuple[Any, Any]] = []
        self.producer.produce(topic, value, partition=0, on_delivery=lambda *report: reports.append(report))
        deadline = time.monotonic() + TIMEOUT_S
        while not reports and time.monotonic() < deadline:
            self.producer.poll(POLL_S)
        ((error, message),) = reports
        if error is not None:
            raise confluent_kafka.KafkaException(error)
        return int(message.offset())

    def error_code(self, error: Exception) -> ErrorCode:
        assert isinstance(error, confluent_kafka.KafkaException)
        return ErrorCode(error.args[0].code())

    def throttled_ms(self) -> float:
        wait_until(lambda: (self.producer.poll(POLL_S), self._throttled_ms)[1], "the throttle event", TIMEOUT_S)
        return self._throttled_ms


class _ConfluentReader(Reader):
    def __init__(self, bootstrap: str, topic: str) -> None:
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "heartbeat.interval.ms": 100,
                "log_level": 2,
            }
        )
        self.consumer.subscribe([topic], on_assign=self._on_assign)

    def _on_assign(self, consumer: Any, partitions: Any) -> None:
        self.assigned += 1

    def poll(self) -> list[bytes]:
        messages = self.consumer.consume(100, POLL_S)
        return [message.value() for message in messages if message.error() is None]

    def member_id(self) -> str:
        return str(self.consumer.memberid())


class Confluent(Library):
    """Bindings of librdkafka."""

    name = "confluent-kafka"

    @contextmanager
    def sender(self, bootstrap: str, request_timeout_ms: int = REQUEST_TIMEOUT_MS) -> Iterator[Sender]:
        sender = _ConfluentSender(bootstrap, request_timeout_ms)
        yield sender
        sender.producer.flush(TIMEOUT_S)

    @contextmanager
    def reader(self, bootstrap: str, topic: str) -> Iterator[Reader]:
        reader = _ConfluentReader(bootstrap, topic)
        try:
            yield reader
        finally:
            reader.consumer.close()


# aiokafka


class _AiokafkaSender(Sender):
    def __init__(self, runner: asyncio.Runner, producer: aiokafka.AIOKafkaProducer) -> None:
        self._runner = runner
        self._producer = producer

    def send(self, topic: str, value: bytes) -> int:
        work = asyncio.wait_for(self._producer.send_and_wait(topic, value, partition=0), TIMEOUT_S)
        return int(self._runner.run(work).offset)

    def error_code(self, error: Exception) -> ErrorCode:
        assert isinstance(error, aiokafka.errors.BrokerResponseError)
        return ErrorCode(error.errno)


class _AiokafkaReader(Reader):
    def __init__(self, runner: asyncio.Runner, consumer: aiokafka.AIOKafkaConsumer) -> None:
        self._runner = runner
        self._consumer = consumer

    def poll(self) -> list[bytes]:
        found = self._runner.run(self._consumer.getmany(timeout_ms=int(POLL_S * 1000)))
        return [record.value for records in found.values() for record in records]

    def member_id(self) -> str:
        return str(self._consumer._coordinator.member_id)  # there is no public way


class Aiokafka(Library):
    """Asyncio."""

    name = "aiokafka"

    @contextmanager
    def sender(self, bootstrap: str, request_timeout_ms: int = REQUEST_TIMEOUT_MS) -> Iterator[Sender]:
        with asyncio.Runner() as runner:

            async def started() -> aiokafka.AIOKafkaProducer:
                producer = aiokafka.AIOKafkaProducer(
                    bootstrap_servers=bootstrap, enable_idempotence=True, request_timeout_ms=request_timeout_ms
                )
                await producer.start()
                return producer

            producer = runner.run(started())
            try:
                yield _AiokafkaSender(runner, producer)
            finally:
                runner.run(producer.stop())

    @contextmanager
    def reader(self, bootstrap: str, topic: str) -> Iterator[Reader]:
        with asyncio.Runner() as runner:

            async def started() -> aiokafka.AIOKafkaConsumer:
                consumer = aiokafka.AIOKafkaConsumer(
                    bootstrap_servers=bootstrap,
                    group_id=GROUP,
                    auto_offset_reset="earliest",
                    heartbeat_interval_ms=100,
                    session_timeout_ms=30_000,
                )
                await consumer.start()
                return consumer

            consumer = runner.run(started())
            reader = _AiokafkaReader(runner, consumer)

            class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
                def on_partitions_revoked(self, revoked: Any) -> None: ...

                def on_partitions_assigned(self, assigned: Any) -> None:
                    reader.assigned += 1

            async def subscribe() -> None:
                consumer.subscribe([topic], listener=Listener())

            try:
                runner.run(subscribe())
                yield reader
            finally:
                runner.run(consumer.stop())


LIBRARIES: tuple[Library, ...] = (Ottla(), KafkaPython(), Confluent(), Aiokafka())
