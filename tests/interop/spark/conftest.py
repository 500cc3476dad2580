"""Brokers that Spark reads from and writes to: ours, and Apache Kafka to compare with."""

from __future__ import annotations

import pytest

from interop.spark.sides import Side, sides
from support.brokers import RunningBroker

#: Starting Java, and the first query on it, may take long on a machine that is busy.
SPARK_TIMEOUT_S = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test here runs Spark."""
    for item in items:
        if "interop/spark" in item.path.as_posix():
            item.add_marker(pytest.mark.needs_java)
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(SPARK_TIMEOUT_S))


@pytest.fixture(params=["ottla", pytest.param("apache", marks=pytest.mark.needs_kafka)])
def broker(request: pytest.FixtureRequest) -> RunningBroker:
    """Ours and Apache Kafka in turn."""
    name = {"ottla": "shared_ottla_server", "apache": "apache_kafka"}[request.param]
    found: RunningBroker = request.getfixturevalue(name)
    return found


@pytest.fixture(params=sides(in_long_runs=["ours-on-apache", "official-on-apache"]))
def side(request: pytest.FixtureRequest) -> Side:
    """Each connector on our broker; in long runs on Apache Kafka, too, to see that the test is right."""
    connector, broker = request.param
    return Side(connector, request.getfixturevalue(broker))
