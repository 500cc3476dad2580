"""Backfills by executors in other processes than the driver, which read the segment files of one shared folder."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet
import pytest
from confluent_kafka import Consumer

from support.ottla_server import OttlaServer
from support.processes import run_tool
from support.spark_cluster import PROGRAM_TIMEOUT_S, SparkCluster, spark_environment
from support.storage_logs import TOPIC
from support.transacted_logs import TransactedLog
from support.waiting import wait_until

pytestmark = pytest.mark.spec("D5")

JOB = Path(__file__).parent / "jobs" / "backfill.py"
TURNS = 300
POLL_S = 30.0
#: For both executors to be there before the first task starts, on a machine that is busy.
BOTH_EXECUTORS = {
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
}

Row = tuple[int, bytes | None, bytes | None]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaServer]:
    """A broker with a topic in many segments, compacted, with aborted transactions and one that is open."""
    folder = tmp_path_factory.mktemp("backfill")
    (folder / "data").mkdir()
    log = TransactedLog(folder / "data", segment_bytes=60_000)
    for turn in range(TURNS):
        log.write(keys=[b"key %d" % ((turn * 7 + n) % 500) for n in range(30)], size=60)
        log.write(10, producer_id=1, size=60)
        if turn % 4 == 3:
            log.end(1, commit=turn % 3 != 0)
        if turn == TURNS // 2:
            log.clean()
    log.write(10, producer_id=2)
    log.write(10)
    log.checkpoint()
    assert log.open_producers == [2]
    server = OttlaServer(folder, overrides={"log.retention.ms": "-1"})
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture(scope="module")
def committed(broker: OttlaServer) -> list[Row]:
    """What a read_committed consumer gets."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "judge", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": "true"})
    rows: list[Row] = []
    try:
        consumer.subscribe([TOPIC])
        while True:
            message = consumer.poll(POLL_S)
            assert message is not None, "no end of the partition"
            error = message.error()
            if error is not None:
                assert error.name() == "_PARTITION_EOF"
                break
            rows.append((message.offset(), message.key(), message.value()))
    finally:
        consumer.close()
    assert TURNS * 20 < len(rows) < TURNS * 40, "some are gone by compaction and by aborts"
    return rows


def _rows_in(folder: Path) -> tuple[list[Row], set[str]]:
    """The rows that a job has written, by offset, and the workers whose executors read them."""
    table = pyarrow.parquet.read_table(folder / "rows").sort_by("offset")
    rows = list(zip(*(table.column(name).to_pylist() for name in ("offset", "key", "value")), strict=True))
    return rows, set(table.column("worker").to_pylist())


def test_both_workers_read_segments_of_a_shared_folder_at_once(
    cluster: SparkCluster, broker: OttlaServer, committed: list[Row], tmp_path: Path
) -> None:
    job = cluster.start_submit("backfill", JOB, *_arguments("-", broker, tmp_path), conf=BOTH_EXECUTORS)
    job.wait_until_ready(lambda: _began(tmp_path) == {"work-0", "work-1"}, PROGRAM_TIMEOUT_S)
    (tmp_path / "go-on").touch()
    assert job.wait(PROGRAM_TIMEOUT_S) == 0, job.output_tail()
    assert _rows_in(tmp_path) == (committed, {"work-0", "work-1"})


@pytest.mark.long
def test_a_worker_killed_while_it_reads_changes_no_row(
    cluster: SparkCluster, broker: OttlaServer, committed: list[Row], tmp_path: Path
) -> None:
    job = cluster.start_submit("backfill-killed", JOB, *_arguments("-", broker, tmp_path), conf=BOTH_EXECUTORS)
    job.wait_until_ready(lambda: _began(tmp_path) == {"work-0", "work-1"}, PROGRAM_TIMEOUT_S)
    cluster.replace_worker(0)
    (tmp_path / "go-on").touch()
    assert job.wait(PROGRAM_TIMEOUT_S) == 0, job.output_tail()
    assert "Lost executor" in job.stderr
    assert _rows_in(tmp_path)[0] == committed


@pytest.mark.long
def test_a_client_of_spark_connect_reads_segments_though_a_worker_is_killed(
    cluster: SparkCluster, broker: OttlaServer, committed: list[Row], tmp_path: Path
) -> None:
    def kill() -> None:
        wait_until(lambda: _began(tmp_path) == {"work-0", "work-1"}, "tasks of both workers", PROGRAM_TIMEOUT_S)
        cluster.replace_worker(1)
        (tmp_path / "go-on").touch()

    environment = spark_environment(tmp_path)
    with cluster.connect_server(BOTH_EXECUTORS) as remote:
        killing = threading.Thread(target=kill)
        killing.start()
        command = [environment["PYSPARK_PYTHON"], str(JOB), *_arguments(remote, broker, tmp_path)]
        run_tool(command, env=environment, timeout_s=PROGRAM_TIMEOUT_S)
        killing.join()
    assert _rows_in(tmp_path)[0] == committed


def _arguments(remote: str, broker: OttlaServer, folder: Path) -> list[str]:
    return [remote, broker.bootstrap, TOPIC, str(broker.log_dir), str(folder)]


def _began(folder: Path) -> set[str]:
    """The workers that have a task in its middle."""
    return {each.name.removeprefix("began-in-") for each in folder.glob("began-in-*")}
