"""A backfill in Spark, and a stream that continues where it ended, while the topic is written, rolled and compacted."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.client.sync import Client, Producer
from ottla.spark.backfill import ending_offsets
from support.ottla_server import OttlaServer
from support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spec("D5")

TOPIC = "compacted"
SETTINGS = {"log.cleaner.backoff.ms": "50", "log.segment.delete.delay.ms": "200"}
SMALL_SEGMENTS = {
    "cleanup.policy": "compact",
    "segment.bytes": "20000",
    "min.cleanable.dirty.ratio": "0.01",
    "index.interval.bytes": "500",
}
Row = tuple[int, int, bytes, bytes]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OttlaServer]:
    server = OttlaServer(tmp_path / "ottla", overrides=SETTINGS)
    yield server.start()
    server.stop()


@pytest.fixture
def written(broker: OttlaServer) -> Iterator[threading.Event]:
    """A topic that is written to until the event is set."""
    stopping = threading.Event()

    def write() -> None:
        with Producer(bootstrap_servers=broker.bootstrap, linger_ms=1) as producer:
            number = 0
            while not stopping.wait(0.05):  # a pace that leaves the processor to Spark
                for _ in range(200):
                    number += 1
                    # Most are superseded soon; a few stay.
                    key = b"%d" % number if number % 10 < 2 else b"key%d" % (number % 300)
                    producer.send(TOPIC, b"%d" % number, key, number % 2)
                producer.flush()

    with Client(broker.bootstrap) as client:
        client.create_topic(TOPIC, 2, config=SMALL_SEGMENTS)
    thread = threading.Thread(target=write)
    thread.start()
    yield stopping
    stopping.set()
    thread.join()


def rows_of(frame: DataFrame) -> list[Row]:
    return [tuple(row) for row in frame.select("partition", "offset", "key", "value").collect()]


def test_a_stream_goes_on_where_a_backfill_ended(
    spark: SparkSession, broker: OttlaServer, written: threading.Event, tmp_path: Path
) -> None:
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": TOPIC}
    segments = options | {"segments": str(broker.log_dir)}
    wait_until(lambda: list(broker.log_dir.glob(f"{TOPIC}-*/*.deleted")), "compaction", timeout_s=300)
    end = ending_offsets(segments)
    old = spark.read.format("ottla").options(**segments, endingOffsets=end).load()
    assert old.rdd.getNumPartitions() >= 2
    before = rows_of(old)
    after: list[Row] = []
    new = spark.readStream.format("ottla").options(**options, startingOffsets=end).load()
    query = (
        new.writeStream.foreachBatch(lambda batch, _: after.extend(rows_of(batch)))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    query.start().awaitTermination()
    written.set()
    final = rows_of(spark.read.format("ottla").options(**options).load())
    places = [row[:2] for row in before + after]
    assert len(places) == len(set(places)), "no row twice"
    ends = json.loads(end)[TOPIC]
    assert all(offset < ends[str(partition)] for partition, offset, _, _ in before)
    last = {partition: max(offset for number, offset in places if number == partition) for partition in (0, 1)}
    assert {row for row in final if row[1] <= last[row[0]]} <= set(before + after), "no gap"
    assert after, "it was written to meanwhile"


def test_damage_reaches_the_user_as_one_sentence(spark: SparkSession, broker: OttlaServer, tmp_path: Path) -> None:
    with Client(broker.bootstrap) as client:
        client.create_topic("broken", 1)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send("broken", b"value")
    [segment] = (broker.log_dir / "broken-0").glob("*.log")
    content = bytearray(segment.read_bytes())
    content[-1] ^= 0xFF
    segment.write_bytes(content)
    frame = (
        spark.read.format("ottla")
        .options(
            **{"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "broken", "segments": str(broker.log_dir)}
        )
        .load()
    )
    with pytest.raises(Exception, match="is damaged at position 0, offset 0: the batch has a wrong checksum") as caught:
        frame.collect()
    assert "Traceback" not in str(caught.value)
