"""A backfill from segment files to Parquet. Each task notes where it runs and waits until it may continue.

python backfill.py sc://host:15002|- 127.0.0.1:9092 TOPIC LOG_DIRECTORY FOLDER
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow
from pyspark.sql import SparkSession

TASKS = "6"

remote, servers, topic, log_dir, folder = sys.argv[1:]
builder = SparkSession.builder.appName("backfill")
spark = (builder if remote == "-" else builder.remote(remote)).getOrCreate()


def noted(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """The rows, with the worker that the task runs on."""
    # Each worker has a folder, and in it its executors theirs.
    (worker,) = [name for name in Path.cwd().parts if name.startswith("work-")]
    for number, batch in enumerate(batches):
        if not number:
            (Path(folder) / f"began-in-{worker}").touch()
            while not (Path(folder) / "go-on").exists():
                time.sleep(0.02)  # sleep: a poll in a process without the tests' helpers
        yield batch.append_column("worker", pyarrow.array([worker] * batch.num_rows))


options = {"segments": log_dir, "kafka.bootstrap.servers": servers, "subscribe": topic}
# Small batches: a task stands in the middle of its range when it has handed on the first one.
options |= {"minPartitions": TASKS, "rowsPerBatch": "50"}
old = spark.read.format("ottla").options(**options).load()
rows = old.select("offset", "key", "value").mapInArrow(noted, "offset long, key binary, value binary, worker string")
rows.write.parquet(f"{folder}/rows")
spark.stop()
