"""The query listener in a classic session, against a running broker."""

from __future__ import annotations

import urllib.request
from typing import TYPE_CHECKING

import pytest

from ottla.client.model import TopicPartition
from ottla.client.sync import Client
from ottla.records.record import Record
from ottla.spark.listening import listen
from ottla.spark.listening.progress import Basis
from support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from support.brokers import RunningBroker


@pytest.mark.spec("D4")
def test_the_last_batch_of_a_query_that_waits_is_committed_and_its_figures_shown(
    spark: SparkSession, shared_ottla_server: RunningBroker, unique: str, tmp_path: Path, fill
) -> None:
    fill(shared_ottla_server, unique, [[Record(0, 1_000 + n, None, b"%d" % n) for n in range(100)], []])
    options = {
        "kafka.bootstrap.servers": shared_ottla_server.bootstrap,
        "subscribe": unique,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "60",
        "kafka.group.id": unique,
    }
    lines: list[str] = []
    partitions = [TopicPartition(unique, 0), TopicPartition(unique, 1)]
    with listen(spark, {unique: options}, port=0, show=lines.append) as listener:
        writer = spark.readStream.format("ottla").options(**options).load().writeStream.format("noop")
        writer = writer.queryName(unique).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(processingTime="1 hour").start()
        with Client(shared_ottla_server.bootstrap) as client:
            # The source itself would commit when it plans the next batch, in an hour.
            wait_until(
                lambda: client.committed(unique, partitions)[partitions[0]] == 60, "the commit of the only batch"
            )

        def measured() -> bool:
            (known,) = [each for each in listener.queries if each.name == unique]
            return known.last is not None and known.last.sources[0].lag.basis is Basis.CLUSTER  # type: ignore[union-attr]

        wait_until(measured, "a lag that the cluster was asked for")
        with urllib.request.urlopen(f"http://127.0.0.1:{listener.port}/metrics") as response:
            metrics = response.read().decode()
        query.stop()
    assert f'ottla_spark_rows_total{{query="{unique}",source="0"}} 60.0' in metrics
    assert f'ottla_spark_lag_rows{{query="{unique}",source="0",topic="{unique}"}} 40.0' in metrics
    assert [line.startswith(f"{unique}: batch 0, 60 rows in ") for line in lines] == [True]
    assert f"{unique}: stopped" in listener.report()
    assert f"{unique} 40 rows behind" in listener.report()
