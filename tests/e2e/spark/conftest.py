"""Ways to fill and read topics, and more time for Spark."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.records.record import Record
from support.brokers import RunningBroker
from support.filled_topics import fill_topic, read_topic

# Starting Java, and the first query on it, may take long on a machine that is busy.
SPARK_TIMEOUT_S = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test here runs Spark."""
    for item in items:
        if "e2e/spark" in item.path.as_posix():
            item.add_marker(pytest.mark.needs_java)
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(SPARK_TIMEOUT_S))


@pytest.fixture(params=["ottla", pytest.param("apache", marks=[pytest.mark.needs_kafka, pytest.mark.long])])
def broker(request: pytest.FixtureRequest) -> RunningBroker:
    """Ours, and in long runs Apache Kafka: tests/interop/spark has our source and sink on it in each run."""
    name = {"ottla": "shared_ottla_server", "apache": "apache_kafka"}[request.param]
    found: RunningBroker = request.getfixturevalue(name)
    return found


@pytest.fixture
def fill() -> Callable[..., None]:
    """Make a topic and send records (key, value, timestamp, headers) to the partitions of a mapping."""
    return fill_topic


@pytest.fixture
def read() -> Callable[..., list[list[Record]]]:
    """All records of a topic, by partition."""
    return read_topic
