"""A broker that accepts everything and answers nothing: clients say so, and close in time."""

from __future__ import annotations

import time

import pytest

from interop.clients.topics import create_topic, values_of
from ottla.client import TopicPartition
from ottla.client.errors import ClientError, DeliveryError
from support.client_facades import Facade
from support.proxied import ProxiedBroker
from support.waiting import Stopwatch

pytestmark = [pytest.mark.slow, pytest.mark.spec("P5", "C1")]

CLOSE_MS = 500
#: What a busy machine adds.
SLACK_S = 4.0


def test_a_producer_reports_what_it_could_not_deliver(
    proxied_ottla: ProxiedBroker, facade: Facade, unique: str
) -> None:
    topic = create_topic(proxied_ottla.direct, unique)
    proxied_ottla.proxy.heal()
    told: list[tuple[int, ClientError | None]] = []
    producer = facade.producer({"bootstrap.servers": proxied_ottla.bootstrap, "linger.ms": 1})
    try:
        producer.send(topic, b"before").result(60)
        proxied_ottla.proxy.hang()
        futures = [
            producer.send(topic, b"%d" % number, callback=lambda _, error, number=number: told.append((number, error)))
            for number in range(20)
        ]
        watch = Stopwatch()
        with pytest.raises(DeliveryError):
            producer.close(timeout_ms=CLOSE_MS)
        assert watch.seconds() < CLOSE_MS / 1000 + SLACK_S
        assert [number for number, _ in told] == list(range(20))
        assert all(isinstance(error, ClientError) for _, error in told)
        assert all(isinstance(future.exception(0), ClientError) for future in futures)
    finally:
        proxied_ottla.proxy.heal()
        producer.close()
    assert values_of(proxied_ottla.direct, topic, 0) == [b"before"], "the proxy kept what it was given"


def test_a_consumer_says_so_and_closes_in_a_second(proxied_ottla: ProxiedBroker, facade: Facade, unique: str) -> None:
    topic = create_topic(proxied_ottla.direct, unique)
    proxied_ottla.proxy.heal()
    settings = {"bootstrap.servers": proxied_ottla.bootstrap, "group.id": unique, "heartbeat.interval.ms": 100}
    consumer = facade.consumer({**settings, "request.timeout.ms": 1000, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.poll(50)
        assert consumer.position(TopicPartition(topic, 0)) == 0
        proxied_ottla.proxy.hang()
        deadline = time.monotonic() + 120
        while consumer.health().is_progressing:
            assert time.monotonic() < deadline, consumer.health()
            watch = Stopwatch()
            assert not consumer.poll(200)
            assert watch.seconds() < 0.2 + SLACK_S, "poll keeps its time"
        assert consumer.health().findings
        watch = Stopwatch()
        consumer.close()
        assert watch.seconds() < 1.0 + SLACK_S
    finally:
        proxied_ottla.proxy.heal()
        consumer.close()
