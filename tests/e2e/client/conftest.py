"""What tests of clients against brokers share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.brokers import RunningBroker
from support.client_facades import Facade
from support.ottla_server import OttlaServer
from support.recording_listener import Polled, RecordingListener
from support.topics import Topics


@pytest.fixture
def topics(broker: RunningBroker) -> Topics:
    """Topics of the broker under test."""
    return Topics(broker.bootstrap)


@pytest.fixture
def quick_server(tmp_path: Path) -> Iterator[OttlaServer]:
    """A broker of the test's own, whose groups do not wait for more members; its rack is r1."""
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1", "broker.rack": "r1"}
    server = OttlaServer(tmp_path / "ottla", overrides=settings)
    try:
        yield server.start()
    finally:
        server.stop()


Join = Callable[..., Polled]


@pytest.fixture
def join(broker: RunningBroker, facade: Facade, unique: str) -> Iterator[Join]:
    """Starts consumers of one group: `join("c0", ["t"], partition_assignment_strategy="range")`; closes them all."""
    made: list[Polled] = []

    def start(client_id: str, subscribed: Any, listener: RecordingListener | None = None, **settings: Any) -> Polled:
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
