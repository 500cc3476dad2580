"""A connector on a broker: the same test runs for ours and Spark's own, on ottla and Apache Kafka."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.brokers import Bootstrapped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

OURS, OFFICIAL = "ottla", "kafka"

#: Where a row came from, and what it says.
Place = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Side:
    """A connector (the name of its format) on a broker."""

    connector: str
    broker: Bootstrapped

    def frame(self, spark: SparkSession, **options: str) -> DataFrame:
        """A batch read."""
        return spark.read.format(self.connector).options(**self._with_servers(options)).load()

    def stream(self, spark: SparkSession, **options: str) -> DataFrame:
        """A streaming read."""
        return spark.readStream.format(self.connector).options(**self._with_servers(options)).load()

    def write(self, frame: DataFrame, **options: str) -> None:
        """Write a frame."""
        frame.write.format(self.connector).mode("append").options(**self._with_servers(options)).save()

    def write_available(self, stream: DataFrame, checkpoint: Path, **options: str) -> None:
        """Write what a stream has now."""
        writer = stream.writeStream.format(self.connector).options(**self._with_servers(options))
        writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()

    def _with_servers(self, options: Mapping[str, str]) -> dict[str, str]:
        named = {name.replace("__", "."): value for name, value in options.items()}
        return named | {"kafka.bootstrap.servers": self.broker.bootstrap}


def sides(*, in_long_runs: Collection[str]) -> list[Any]:
    """Parameters of the fixture `side`: each connector on each broker, of which some run with --long only."""
    made = []
    for connector, name in ((OURS, "ours"), (OFFICIAL, "official")):
        for broker, where in (("shared_ottla_server", "ottla"), ("apache_kafka", "apache")):
            each = f"{name}-on-{where}"
            marks = [pytest.mark.needs_connector] if connector == OFFICIAL else []
            marks += [pytest.mark.needs_kafka] if where == "apache" else []
            marks += [pytest.mark.long] if each in in_long_runs else []
            made.append(pytest.param((connector, broker), id=each, marks=marks))
    return made


#: For tests whose run with our connector on Apache Kafka is worth its time in each run.
OURS_ON_BOTH = sides(in_long_runs=["official-on-apache"])


@dataclass(slots=True)
class Batches:
    """The places of the rows of each batch of a stream, in order; batches without rows are left out."""

    places: list[list[Place]] = field(default_factory=list)

    def run(self, stream: DataFrame, checkpoint: Path) -> list[list[Place]]:
        """What a stream has now, batch by batch."""
        self.places.clear()
        self._writer(stream, checkpoint).trigger(availableNow=True).start().awaitTermination()
        return list(self.places)

    def start(self, stream: DataFrame, checkpoint: Path, *, interval: str = "0 seconds") -> StreamingQuery:
        """Start a query that notes its batches until it is stopped."""
        return self._writer(stream, checkpoint).trigger(processingTime=interval).start()

    def _writer(self, stream: DataFrame, checkpoint: Path) -> DataStreamWriter:
        return stream.writeStream.foreachBatch(self._note).option("checkpointLocation", str(checkpoint))

    @property
    def seen(self) -> list[Place]:
        """All places of all batches, sorted; one that was seen twice is in it twice."""
        return sorted(place for places in self.places for place in places)

    def _note(self, batch: DataFrame, batch_id: int) -> None:
        found = sorted((row.topic, row.partition, row.offset) for row in batch.collect())
        if found:
            self.places.append(found)


def places(topic: str, *ranges: tuple[int, int, int]) -> list[Place]:
    """Places by partition, first offset, end."""
    return [(topic, partition, offset) for partition, first, end in ranges for offset in range(first, end)]
