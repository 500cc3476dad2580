"""Idempotent producers on a network that misbehaves: no loss, no duplicate, no reorder, and every future resolves."""

from __future__ import annotations

import pytest

from interop.clients.topics import create_topic, values_of
from support.client_facades import Facade
from support.proxied import ProxiedBroker
from support.proxy import SeededPlan

pytestmark = [pytest.mark.slow, pytest.mark.spec("P5")]

PARTITIONS = 3
COUNT = 1200
TIMEOUT_S = 200.0
#: The lesser half of the seeds runs every day; all of them in long runs.
EVERYDAY_SEEDS = {"ottla": 8, "apache": 4}
LONG_SEEDS = 100
#: Batches of a few records, five requests in flight, little patience: many requests, many attempts.
SETTINGS = {
    "batch.size": 200,
    "linger.ms": 1,
    "request.timeout.ms": 700,
    "socket.connection.setup.timeout.ms": 700,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "delivery.timeout.ms": 180_000,
    "max.block.ms": 120_000,
}


def plans(side: str) -> list[object]:
    """The seeds of one side, those beyond the everyday ones marked long."""
    everyday = EVERYDAY_SEEDS[side]
    beyond = [pytest.param(side, seed, marks=pytest.mark.long) for seed in range(everyday, LONG_SEEDS)]
    return [pytest.param(side, seed) for seed in range(everyday)] + beyond


@pytest.mark.needs_kafka
@pytest.mark.parametrize(("proxied", "seed"), plans("ottla") + plans("apache"), indirect=["proxied"])
def test_no_loss_no_duplicate_no_reorder(proxied: ProxiedBroker, unique: str, seed: int) -> None:
    topic = create_topic(proxied.direct, unique, PARTITIONS)
    proxied.proxy.begin(SeededPlan(seed, chance=0.15, most=6))
    facade = Facade("asyncio" if seed % 2 else "sync")
    told: list[object] = []
    values = [b"%06d" % number for number in range(COUNT)]
    producer = facade.producer({**SETTINGS, "bootstrap.servers": proxied.bootstrap})
    try:
        futures = []
        for number, value in enumerate(values):
            callback = lambda metadata, error, number=number: told.append((number, error))  # noqa: E731
            futures.append(producer.send(topic, value, partition=number % PARTITIONS, callback=callback))
        producer.flush()
        assert all(future.done() for future in futures)
        places = [future.result(TIMEOUT_S) for future in futures]
    finally:
        producer.close()
        facade.close()

    assert proxied.proxy.faults, "nothing happened"
    for partition in range(PARTITIONS):
        assert values_of(proxied.direct, topic, partition) == values[partition::PARTITIONS]
        offsets = [place.offset for place in places[partition::PARTITIONS]]
        assert offsets == list(range(len(offsets)))
        numbers = [number for number, _ in told if number % PARTITIONS == partition]
        assert numbers == list(range(partition, COUNT, PARTITIONS)), "callbacks come once, in order"
    assert {error for _, error in told} == {None}
