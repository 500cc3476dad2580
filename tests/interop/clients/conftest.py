"""Clients of both kinds, with an event loop and without, and brokers behind a proxy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.proxied import ProxiedBroker

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "log.retention.ms": "-1",
    "offsets.topic.num.partitions": "4",
}


@pytest.fixture(scope="session")
def proxied_ottla(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedBroker]:
    """Our broker behind a proxy, for the whole run: use topics and groups of your own, and heal the proxy."""
    broker = ProxiedBroker(tmp_path_factory.mktemp("proxied-ottla"), settings=SETTINGS)
    try:
        yield broker.start()
    finally:
        broker.close()


@pytest.fixture(scope="session")
def proxied_kafka(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[ProxiedBroker]:
    """Apache Kafka behind a proxy, likewise."""
    zookeeper = request.getfixturevalue("apache_zookeeper")
    broker = ProxiedBroker(tmp_path_factory.mktemp("proxied-kafka"), zookeeper, settings=SETTINGS)
    try:
        yield broker.start()
    finally:
        broker.close()


@pytest.fixture(params=["ottla", pytest.param("apache", marks=pytest.mark.needs_kafka)])
def proxied(request: pytest.FixtureRequest) -> Iterator[ProxiedBroker]:
    """Both in turn, with a proxy that is healed before and after."""
    broker: ProxiedBroker = request.getfixturevalue(
        {"ottla": "proxied_ottla", "apache": "proxied_kafka"}[request.param]
    )
    broker.proxy.heal()
    yield broker
    broker.proxy.heal()
