"""The examples of ways to run that need no cluster: a session of one's own, and a declarative pipeline."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.records.record import Record
from support.examples import EXAMPLES
from support.processes import run_tool
from support.spark_cluster import PROGRAM_TIMEOUT_S, SMALL, conf_arguments, spark_environment, spark_program

if TYPE_CHECKING:
    from support.brokers import RunningBroker

SPARK = EXAMPLES / "spark"


def _records(count: int) -> list[Record]:
    return [Record(0, 1_000 + n, None, b"v%d" % n) for n in range(count)]


@pytest.mark.spec("D1")
def test_a_session_that_knows_nothing_of_ottla_finds_the_format(
    shared_ottla_server: RunningBroker, unique: str, tmp_path: Path, fill
) -> None:
    fill(shared_ottla_server, unique, [_records(30), _records(12)])
    command = [sys.executable, str(SPARK / "session.py"), shared_ottla_server.bootstrap, unique]
    done = run_tool(command, env=spark_environment(tmp_path), cwd=tmp_path, timeout_s=PROGRAM_TIMEOUT_S)
    assert done.stdout.splitlines() == ["partition 0: 30 records", "partition 1: 12 records"]


@pytest.mark.spec("D1")
def test_a_declarative_pipeline_reads_a_topic_into_a_streaming_table(
    shared_ottla_server: RunningBroker, unique: str, tmp_path: Path, fill
) -> None:
    fill(shared_ottla_server, unique, [_records(30), _records(12)])
    pipeline = tmp_path / "pipeline"
    shutil.copytree(SPARK / "pipeline", pipeline)
    spec = pipeline / "spark-pipeline.yml"
    text = spec.read_text().replace("127.0.0.1:9092", shared_ottla_server.bootstrap)
    text = text.replace("example.topic: readings", f"example.topic: {unique}")
    spec.write_text(text.replace("/tmp/readings-pipeline", str(tmp_path / "storage")))
    conf = conf_arguments(SMALL)
    command = [spark_program("spark-pipelines"), *conf, "run"]
    run_tool(command, env=spark_environment(tmp_path), cwd=pipeline, timeout_s=PROGRAM_TIMEOUT_S)

    import pyarrow.parquet

    warehouse = pipeline / "spark-warehouse"
    per_partition = pyarrow.parquet.read_table(str(warehouse / "per_partition")).to_pylist()
    assert sorted((row["partition"], row["readings"]) for row in per_partition) == [(0, 30), (1, 12)]
    files = [str(each) for each in (warehouse / "readings").glob("part-*")]
    values = pyarrow.parquet.ParquetDataset(files).read().column("value").to_pylist()
    assert sorted(values) == sorted([*(f"v{n}" for n in range(30)), *(f"v{n}" for n in range(12))])
