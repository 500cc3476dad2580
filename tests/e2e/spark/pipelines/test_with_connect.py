"""The same queries by Spark Connect: batches run in Python on the server, which knows nothing of the client."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset
import pytest

from ottla.records.record import Record
from support.filled_topics import fill_topic, read_topic
from support.pipeline_settings import json_record
from support.ports import LOOPBACK, free_port
from support.processes import ServerProcess, run_tool
from support.spark_cluster import (
    CONNECT_SERVER,
    PROGRAM_TIMEOUT_S,
    SMALL,
    START_TIMEOUT_S,
    conf_arguments,
    spark_environment,
    spark_program,
)

if TYPE_CHECKING:
    from support.ottla_server import OttlaServer

PROGRAM = Path(__file__).parent / "jobs" / "pipelines_by_connect.py"


@pytest.mark.long
@pytest.mark.spec("D3")
def test_pipelines_run_by_spark_connect(shared_ottla_server: OttlaServer, unique: str, tmp_path: Path) -> None:
    records = [json_record(1_700_000_000_000, id=n, user="ab"[n % 2]) for n in range(50)]
    records[7] = Record(0, 1_700_000_000_000, None, b"{broken")
    fill_topic(shared_ottla_server, unique, [records])
    port = free_port()
    conf = SMALL | {
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
    }
    command = [spark_program("spark-submit"), "--master", "local[2]", *conf_arguments(conf), "--class", CONNECT_SERVER]
    environment = spark_environment(tmp_path)
    server = ServerProcess("connect", command, tmp_path, env=environment)
    try:
        server.wait_until_ready(lambda: f"server started at: {LOOPBACK}" in server.stderr, START_TIMEOUT_S)
        done = run_tool(
            [
                sys.executable,
                str(PROGRAM),
                f"sc://{LOOPBACK}:{port}",
                shared_ottla_server.bootstrap,
                unique,
                str(tmp_path),
            ],
            env=environment,
            cwd=tmp_path,
            timeout_s=PROGRAM_TIMEOUT_S,
        )
    finally:
        server.terminate_group()
    assert done.stdout.splitlines() == [
        "a 25, b 24",
        "refused: source events: field user, first in " + f"{unique}-0@0, is not in the schema; add it to schema, or "
        "set new_fields = add or ignore",
    ]
    [letters] = read_topic(shared_ottla_server, f"{unique}-bad")
    assert [each.value for each in letters] == [b"{broken"]
    table = pyarrow.dataset.dataset(tmp_path / "table", format="parquet", partitioning="hive").to_table()
    assert sorted(table["id"].to_pylist()) == [n for n in range(50) if n != 7]
