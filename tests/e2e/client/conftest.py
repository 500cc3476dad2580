"""What tests of clients against brokers share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from support.brokers import RunningBroker
from support.client_facades import FACADES, Facade
from support.told_listener import Polled, ToldListener

TIMEOUT_S = 20.0


@pytest.fixture(params=FACADES)
def facade(request: pytest.FixtureRequest) -> Iterator[Facade]:
    """Makes clients of one kind; see `support.client_facades`."""
    made = Facade(request.param)
    yield made
    made.close()


class Topics:
    """Makes and changes topics of a broker."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(self, name: str, partitions: int = 3) -> None:
        """A new topic."""
        self._admin.create_topics([NewTopic(name, partitions, 1)])[name].result(TIMEOUT_S)

    def add_partitions(self, name: str, partitions: int) -> None:
        """More partitions: so many in all."""
        self._admin.create_partitions([NewPartitions(name, partitions)])[name].result(TIMEOUT_S)

    def delete(self, name: str) -> None:
        """A topic goes."""
        self._admin.delete_topics([name])[name].result(TIMEOUT_S)


@pytest.fixture
def topics(broker: RunningBroker) -> Topics:
    """Topics of the broker under test."""
    return Topics(broker.bootstrap)


Join = Callable[..., Polled]


@pytest.fixture
def join(broker: RunningBroker, facade: Facade, unique: str) -> Iterator[Join]:
    """Starts consumers of one group: `join("c0", ["t"], partition_assignment_strategy="range")`; closes them all."""
    made: list[Polled] = []

    def start(client_id: str, subscribed: Any, listener: ToldListener | None = None, **settings: Any) -> Polled:
        defaults = {"heartbeat_interval_ms": 100, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 50}
        consumer = facade.consumer(
            bootstrap_servers=broker.bootstrap, group_id=unique, client_id=client_id, **{**defaults, **settings}
        )
        one = Polled(consumer, listener)
        made.append(one)
        consumer.subscribe(subscribed, one.listener)
        return one

    yield start
    for one in made:
        one.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Both kinds of client against ottla, one of them against Apache Kafka; the other in long runs."""
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if parameters.get("broker") == "apache" and parameters.get("facade") == "asyncio":
            item.add_marker(pytest.mark.long)
