"""Serializers, interceptors and figures of producers, with and without an event loop."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from ottla.client import Producer as AsyncProducer
from ottla.client import ProducerRecord, RecordMetadata
from ottla.client.errors import BrokerError, InvalidArgumentError, InvalidConfigError, SerializationError
from ottla.client.serialization import StringSerializer
from ottla.client.sync import Producer
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from support.quick_settings import QUICK_PRODUCER


def send_all(kind: str, fake: Any, records: list[Any], **settings: Any) -> tuple[list[Any], dict[str, float]]:
    """Send the records one by one; their metadata or errors, and the producer's figures after the last."""
    settings = {"bootstrap_servers": fake.bootstrap, **QUICK_PRODUCER, **settings}

    def blocking() -> tuple[list[Any], dict[str, float]]:
        outcomes: list[Any] = []
        with Producer(**settings) as producer:
            for record in records:
                try:
                    outcomes.append(producer.send(record).result(60))
                except Exception as error:
                    outcomes.append(error)
            return outcomes, producer.metrics()

    async def waiting() -> tuple[list[Any], dict[str, float]]:
        outcomes: list[Any] = []
        async with AsyncProducer(settings) as producer:
            for record in records:
                try:
                    outcomes.append(await (await producer.send(record)))
                except Exception as error:
                    outcomes.append(error)
            return outcomes, producer.metrics()

    return blocking() if kind == "sync" else asyncio.run(waiting())


kinds = pytest.mark.parametrize("kind", ["sync", "asyncio"])


class Seeing:
    """An interceptor that writes down what it sees, and adds to values."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        self.seen.append(record.value)
        return record._replace(value=f"{record.value}!")

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        self.seen.append((metadata.offset, type(error)))

    def close(self) -> None:
        self.seen.append("closed")


class Closing(StringSerializer):
    closed = 0

    def close(self) -> None:
        self.closed += 1


@pytest.mark.spec("P2")
@kinds
def test_keys_and_values_are_serialized(fake: Any, kind: str) -> None:
    [partition] = fake.topic("t", 0)
    closing = Closing("utf-16-be")
    outcomes, _ = send_all(
        kind,
        fake,
        [ProducerRecord("t", {"a": 1}, "k"), ProducerRecord("t", None, None)],
        key_serializer=closing,
        value_serializer=lambda value: json.dumps(value).encode(),
    )
    assert [outcome.offset for outcome in outcomes] == [0, 1]
    assert [(record.key, record.value) for record in fake.logs[partition].records()] == [
        (b"\0k", b'{"a": 1}'),
        (None, None),
    ]
    assert closing.closed == 1


@pytest.mark.spec("P2")
@kinds
def test_what_a_serializer_cannot_do_is_reported(fake: Any, kind: str) -> None:
    fake.topic("t", 0)
    records = [ProducerRecord("t", object()), ProducerRecord("t", b"x", 5)]
    outcomes, _ = send_all(
        kind, fake, records, key_serializer="StringSerializer", value_serializer=lambda value: json.dumps(value)
    )
    assert all(isinstance(outcome, SerializationError) for outcome in outcomes)
    assert str(outcomes[0]).startswith("the value of a record for topic t cannot be serialized by ")
    assert "TypeError: Object of type object is not JSON serializable" in str(outcomes[0])
    assert str(outcomes[1]) == "StringSerializer takes text, not int: 5"


def test_partitioners_are_given_keys_and_values_as_they_were(fake: Any) -> None:
    fake.topic("t", 0)
    asked = []

    def choose(topic: str, key: Any, key_bytes: Any, value: Any, value_bytes: Any, cluster: Any) -> int:
        asked.append((key, key_bytes, value, value_bytes))
        return 0

    settings = {"key_serializer": StringSerializer, "value_serializer": "IntegerSerializer"}
    send_all("sync", fake, [ProducerRecord("t", 7, "k")], partitioner_class=choose, **settings)
    assert asked == [("k", b"k", 7, b"\0\0\0\x07")]


def test_a_serializer_that_is_not_there_is_reported_at_once() -> None:
    with pytest.raises(InvalidConfigError, match=r"key\.serializer=nowhere\.Serializer"):
        Producer(bootstrap_servers="a:1", key_serializer="nowhere.Serializer")


@pytest.mark.spec("P4")
@kinds
def test_interceptors_see_records_before_and_after(fake: Any, kind: str) -> None:
    [partition] = fake.topic("t", 0)
    seeing = Seeing()
    outcomes, _ = send_all(
        kind,
        fake,
        [ProducerRecord("t", "a"), ProducerRecord("t", "b", partition=9)],
        interceptor_classes=[seeing],
        value_serializer="org.apache.kafka.common.serialization.StringSerializer",
    )
    assert isinstance(outcomes[1], InvalidArgumentError)
    assert [record.value for record in fake.logs[partition].records()] == [b"a!"]
    assert seeing.seen == ["a", (0, type(None)), "b", (-1, InvalidArgumentError), "closed"]


@kinds
def test_figures_report_what_was_sent(fake: Any, kind: str) -> None:
    fake.topic("t", 0)
    fake.faults[ApiKey.PRODUCE].extend([ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.INVALID_RECORD])
    records = [ProducerRecord("t", b"x" * 100)] * 3
    outcomes, figures = send_all(kind, fake, records, buffer_memory=1_000_000, enable_idempotence=False)
    assert [isinstance(outcome, BrokerError) for outcome in outcomes] == [True, False, False]
    assert figures["record-send-total"] == figures["request-total"] == 4
    assert figures["record-error-total"] == figures["record-retry-total"] == 1
    assert figures["requests-in-flight"] == 0
    assert figures["records-per-request-avg"] == 1
    assert 100 < figures["batch-size-avg"] == figures["batch-size-max"] < 300
    assert figures["buffer-total-bytes"] == figures["buffer-available-bytes"] == 1_000_000
    assert 0 <= figures["request-latency-avg"] <= figures["request-latency-max"] < 5000
    assert figures["record-send-rate"] > 0
    assert figures["compression-rate-avg"] == 1
    assert 0 <= figures["metadata-age"] < 60
    assert figures["buffer-exhausted-total"] == 0


@kinds
def test_figures_report_how_well_records_compress(fake: Any, kind: str) -> None:
    fake.topic("t", 0)
    _, figures = send_all(kind, fake, [ProducerRecord("t", b"x" * 10_000)], compression_type="zstd")
    assert 0 < figures["compression-rate-avg"] < 0.05
    assert figures["batch-size-avg"] < 500
