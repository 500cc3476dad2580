"""Source and sink on a standalone Spark cluster: the driver, a master and two workers are processes of their own.

What Spark starts elsewhere (Kubernetes, YARN) is not tested here.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.client.model import TopicPartition
from ottla.client.sync import Client
from ottla.records.record import Record
from support.examples import EXAMPLES
from support.processes import run_tool
from support.spark_cluster import PROGRAM_TIMEOUT_S, spark_environment

if TYPE_CHECKING:
    from support.brokers import RunningBroker
    from support.spark_cluster import SparkCluster

JOBS = Path(__file__).parent / "jobs"
RECORDS = 1_000


def _records(partition: int) -> list[Record]:
    return [Record(0, 1_000 + n, b"k%d" % (n % 7), b"p%d v%d" % (partition, n)) for n in range(RECORDS // 2)]


@pytest.mark.spec("D1")
def test_a_job_of_spark_submit_reads_and_writes_in_executors(
    cluster: SparkCluster, shared_ottla_server: RunningBroker, unique: str, fill, read
) -> None:
    fill(shared_ottla_server, unique, [_records(0), _records(1)])
    results = f"{unique}-counts"
    fill(shared_ottla_server, results, [[], []])
    done = cluster.submit(EXAMPLES / "spark" / "submit.py", shared_ottla_server.bootstrap, unique, results)
    assert f"{RECORDS} records of {unique} counted in {results}" in done.stdout
    counts = {record.key: record.value for partition in read(shared_ottla_server, results) for record in partition}
    expected = Counter(record.key for partition in (0, 1) for record in _records(partition))
    assert counts == {key: b"%d" % count for key, count in expected.items()}


@pytest.mark.spec("D1", "D4")
def test_a_client_of_spark_connect_runs_a_query_on_the_cluster_and_listens_to_it(
    cluster: SparkCluster, shared_ottla_server: RunningBroker, unique: str, tmp_path: Path, fill
) -> None:
    fill(shared_ottla_server, unique, [_records(0), _records(1)])
    environment = spark_environment(tmp_path)
    with cluster.connect_server() as remote:
        arguments = [remote, shared_ottla_server.bootstrap, unique, str(tmp_path / "archive")]
        command = [environment["PYSPARK_PYTHON"], str(EXAMPLES / "spark" / "connect.py"), *arguments]
        done = run_tool(command, env=environment, timeout_s=PROGRAM_TIMEOUT_S)
    assert f"{RECORDS} rows in the archive" in done.stdout
    assert f"archive: batch 0, {RECORDS:,} rows in " in done.stdout, "the listener's line, in the client"
    assert f"source 0: {unique} read to the end; {RECORDS:,} rows" in done.stdout
    with Client(shared_ottla_server.bootstrap) as client:
        partitions = [TopicPartition(unique, 0), TopicPartition(unique, 1)]
        assert client.committed("archive", partitions) == dict.fromkeys(partitions, RECORDS // 2)


@pytest.mark.long
@pytest.mark.spec("D1")
def test_a_worker_killed_in_the_middle_of_a_query_changes_no_row(
    cluster: SparkCluster, shared_ottla_server: RunningBroker, unique: str, tmp_path: Path, fill, read
) -> None:
    fill(shared_ottla_server, unique, [_records(0), _records(1)])
    copies = f"{unique}-copies"
    fill(shared_ottla_server, copies, [[], []])
    rows = tmp_path / "rows"
    job = cluster.start_submit("archive", JOBS / "archive.py", shared_ottla_server.bootstrap, unique, copies, str(rows))
    job.wait_until_ready(lambda: "batch 2 has ended" in job.stdout, PROGRAM_TIMEOUT_S)
    cluster.replace_worker(0)
    assert job.wait(PROGRAM_TIMEOUT_S) == 0, job.output_tail()
    last = int(job.stdout.split("batch ")[-1].split()[0])
    assert last > 5, "it went on after the kill"

    import pyarrow.parquet

    table = pyarrow.parquet.ParquetDataset(sorted(str(each) for each in _committed_files(rows))).read()
    expected = [(p, n, b"p%d v%d" % (p, n)) for p in (0, 1) for n in range(RECORDS // 2)]
    found = zip(*(table.column(name).to_pylist() for name in ("partition", "offset", "value")), strict=True)
    assert sorted(found) == expected, "each row once: files are written exactly once"
    copied = {record.value for partition in read(shared_ottla_server, copies) for record in partition}
    assert copied == {value for _, _, value in expected}, "none is missing in the topic: at least once"


def _committed_files(folder: Path) -> list[Path]:
    """The files that Spark's file sink committed; an attempt that failed may have left others."""
    import json

    entries = [
        json.loads(line)
        for log in (folder / "_spark_metadata").iterdir()
        if not log.name.startswith(".")
        for line in log.read_text().splitlines()[1:]
    ]
    return sorted({Path(entry["path"].removeprefix("file://")) for entry in entries})
