"""One local Spark for all tests of this folder, and ways to fill and read topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

from ottla.client.model import EARLIEST, LATEST, TopicPartition
from ottla.client.sync import Client, Producer
from ottla.records.record import Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.brokers import RunningBroker

# Starting Java, and the first query on it, may take long on a machine that is busy.
SPARK_TIMEOUT_S = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test here runs Spark."""
    for item in items:
        if "e2e/spark" in item.path.as_posix():
            item.add_marker(pytest.mark.needs_java)
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(SPARK_TIMEOUT_S))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark with `format("ottla")`."""
    import ottla.spark
    from ottla.spark.local import stop

    folder = tmp_path_factory.mktemp("spark")
    made = ottla.spark.session("tests", folder=folder, log_file=folder / "spark.log")
    yield made
    stop(made)


@pytest.fixture
def fill() -> Callable[..., None]:
    """Make a topic and send records (key, value, timestamp, headers) to the partitions of a mapping."""

    def fill(broker: RunningBroker, topic: str, partitions: Sequence[Sequence[Record]], *, create: bool = True) -> None:
        with Client(broker.bootstrap) as client:
            if create:
                config = {"retention.ms": "-1", "message.timestamp.after.max.ms": str((1 << 63) - 1)}
                client.create_topic(topic, len(partitions), config=config)
            with Producer(bootstrap_servers=broker.bootstrap, linger_ms=5) as producer:
                for number, records in enumerate(partitions):
                    for record in records:
                        producer.send(topic, record.value, record.key, number, record.timestamp, record.headers)

    return fill


@pytest.fixture
def read() -> Callable[..., list[list[Record]]]:
    """All records of a topic, by partition."""

    def read(broker: RunningBroker, topic: str) -> list[list[Record]]:
        with Client(broker.bootstrap) as client:
            partitions = [TopicPartition(topic, number) for number in client.partitions([topic])[topic]]
            first, last = client.offsets_at(partitions, EARLIEST), client.offsets_at(partitions, LATEST)
            return [
                [record for batch in client.read_range(each, first[each], last[each]) for record in batch]
                for each in partitions
            ]

    return read
