"""`ottla pipeline` as processes: one runs a pipeline, others look at it and stop it."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import urllib.request
import uuid
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow.dataset
import pytest

from ottla.client.model import TopicPartition
from ottla.client.sync import Client
from ottla.records.record import Record
from support.processes import ServerProcess
from support.waiting import wait_until

if TYPE_CHECKING:
    from support.ottla_server import OttlaServer

pytestmark = [pytest.mark.spec("D3")]

START_TIMEOUT_S = 240.0
COMMAND_TIMEOUT_S = 120
SECRET = "hunter2-not-to-be-shown"

FILE = """
name = "{name}"
kind = "online"
checkpoint = "checkpoint"

[trigger]
interval = "200 milliseconds"

[source]
topics = ["{name}"]
value_format = "json"
schema = "sensor INT"
options.kafka.client.id = "${{env:PIPELINE_SECRET}}"

[[steps]]
sql = "SELECT sensor, count(*) AS readings FROM source GROUP BY sensor"

[sink]
kind = "database"
url = "sqlite:totals.db"
table = "totals"
key_columns = ["sensor"]
"""

#: The fast path: no row goes through Spark.
ARCHIVE = """
name = "{name}"
kind = "archive"
checkpoint = "checkpoint"

[trigger]
interval = "200 milliseconds"

[source]
topics = ["{name}"]
value_format = "json"
schema = "sensor INT"

[[steps]]
sql = "SELECT sensor FROM source"

[sink]
kind = "parquet"
path = "archive"
partition_by = []
"""


def _records(numbers: range) -> list[Record]:
    return [Record(0, 0, None, json.dumps({"sensor": number % 5}).encode()) for number in numbers]


#: Ends once all is read; a checkpoint in Spark's own way if the file says so.
UNTIL_READ = ARCHIVE.replace('interval = "200 milliseconds"', "available_now = true")
SPARKS_OWN_WAY = """
[spark.conf]
"spark.sql.streaming.checkpointFileManagerClass" = "{package}.FileContextBasedCheckpointFileManager"
""".format(package="org.apache.spark.sql.execution.streaming.checkpointing")


class Typed:
    """The commands for one file against one broker, as a user types them."""

    def __init__(self, folder: Path, broker: OttlaServer, file: str = FILE) -> None:
        self.name = f"totals-{uuid.uuid4().hex[:8]}"
        self._folder = folder
        self._broker = broker
        self._environment = {"OTTLA_BOOTSTRAP_SERVER": broker.bootstrap, "PIPELINE_SECRET": SECRET}
        self._shown: list[str] = []
        self.write(file)

    def write(self, file: str) -> None:
        """Replace the pipeline's file."""
        (self._folder / "totals.toml").write_text(file.format(name=self.name))

    def run(self, name: str, *arguments: str) -> ServerProcess:
        command = [sys.executable, "-m", "ottla", "pipeline", "run", str(self._folder / "totals.toml"), *arguments]
        return ServerProcess(name, command, self._folder, self._environment)

    def type(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        typed = [sys.executable, "-m", "ottla", "pipeline", command, str(self._folder / "totals.toml"), *arguments]
        environment = {**os.environ, **self._environment}
        done = subprocess.run(
            typed, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False, env=environment
        )
        self._shown.append(done.stdout + done.stderr)
        return done

    def status(self) -> dict[str, Any]:
        done = self.type("status", "--json")
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def has_read_all(self) -> dict[str, Any] | None:
        """The status once there is no lag."""
        found = self.status()
        return found if found["lag"] == 0 else None

    def totals(self) -> dict[int, int]:
        with closing(sqlite3.connect(self._folder / "totals.db")) as database:
            return dict(database.execute("SELECT sensor, readings FROM totals").fetchall())

    def shown(self) -> str:
        return "".join(self._shown)


def _metrics(run: ServerProcess) -> str:
    """What Prometheus gets of a run."""
    said = "metrics at "
    page = next(line for line in run.stdout.splitlines() if line.startswith(said)).removeprefix(said)
    with urllib.request.urlopen(page, timeout=COMMAND_TIMEOUT_S) as answer:
        return str(answer.read().decode())


def test_run_status_and_stop_are_processes_of_their_own(
    shared_ottla_server: OttlaServer, tmp_path: Path, fill: Any
) -> None:
    typed = Typed(tmp_path, shared_ottla_server)
    fill(shared_ottla_server, typed.name, [_records(range(0, 100, 2)), _records(range(1, 100, 2))])
    assert typed.type("check").returncode == 0, typed.shown()
    before = typed.status()
    assert (before["runner"]["alive"], before["finished_batch"]) == ("never", None)

    report = tmp_path / "report.html"
    first = typed.run("first", "--report", str(report), "--metrics-port", "0")
    found = first.wait_until_ready(typed.has_read_all, START_TIMEOUT_S)
    assert (found["runner"]["alive"], found["runner"]["pid"]) == ("yes", first.pid)
    assert [each["position"] for each in found["partitions"]] == [50, 50]
    assert f'ottla_spark_query_state{{query="{typed.name}",state="running"}}' in _metrics(first)
    second = typed.type("run")
    assert second.returncode == 2
    assert "runs already" in second.stderr

    stopped = typed.type("stop", "--wait")
    assert stopped.returncode == 0, stopped.stderr
    assert first.wait(COMMAND_TIMEOUT_S) == 0, first.output_tail()
    assert f"pipeline {typed.name} stopped; it continues where it was when it is run again" in first.stdout
    assert typed.totals() == dict.fromkeys(range(5), 20)
    after = typed.status()
    assert (after["runner"]["alive"], after["runner"]["state"], after["lag"]) == ("no", "stopped", 0)
    assert after["planned_batch"] == after["finished_batch"]
    with Client(shared_ottla_server.bootstrap) as client:
        partitions = [TopicPartition(typed.name, number) for number in (0, 1)]
        assert client.committed(typed.name, partitions) == dict.fromkeys(partitions, 50)
    assert "<svg" in report.read_text()

    fill(shared_ottla_server, typed.name, [_records(range(100, 200)), []], create=False)
    assert typed.status()["lag"] == 100
    again = typed.run("again")
    again.wait_until_ready(typed.has_read_all, START_TIMEOUT_S)
    os.killpg(again.pid, signal.SIGTERM)  # As systemd stops it: Java must not end before the batch does.
    assert again.wait(COMMAND_TIMEOUT_S) == 130, again.output_tail()
    assert again.stderr == ""
    assert typed.totals() == dict.fromkeys(range(5), 40)
    assert SECRET not in "".join(
        (typed.shown(), first.stdout, first.stderr, again.stdout, again.stderr, report.read_text())
    )


def test_an_archive_counts_the_rows_that_spark_does_not_see(
    shared_ottla_server: OttlaServer, tmp_path: Path, fill: Any
) -> None:
    typed = Typed(tmp_path, shared_ottla_server, ARCHIVE)
    fill(shared_ottla_server, typed.name, [_records(range(70)), _records(range(50))])
    run = typed.run("archive", "--metrics-port", "0")
    run.wait_until_ready(typed.has_read_all, START_TIMEOUT_S)
    wanted = f'ottla_spark_rows_total{{query="{typed.name}",source="0"}} 120.0'
    wait_until(lambda: wanted in _metrics(run), lambda: _metrics(run))
    fill(shared_ottla_server, typed.name, [_records(range(3)), []], create=False)
    wanted = wanted.replace("120.0", "123.0")
    wait_until(lambda: wanted in _metrics(run), lambda: _metrics(run))
    assert typed.type("stop", "--wait").returncode == 0, typed.shown()
    assert run.wait(COMMAND_TIMEOUT_S) == 0, run.output_tail()
    shown = [line for line in run.stdout.splitlines() if " rows in " in line]
    assert sum(int(line.split(": batch ")[1].split(" ")[1]) for line in shown) == 123, shown


def test_when_java_is_killed_the_end_says_so_and_the_next_run_goes_on(
    shared_ottla_server: OttlaServer, tmp_path: Path, fill: Any
) -> None:
    typed = Typed(tmp_path, shared_ottla_server)
    fill(shared_ottla_server, typed.name, [_records(range(50)), []])
    killed = typed.run("killed")
    killed.wait_until_ready(typed.has_read_all, START_TIMEOUT_S)
    [java] = [each for each in psutil.Process(killed.pid).children() if "java" in each.name()]
    java.kill()
    assert killed.wait(COMMAND_TIMEOUT_S) == 1, killed.output_tail()
    assert "Spark's Java process ended by SIGKILL." in killed.stderr
    assert killed.stderr.count("\n") == 1, killed.stderr
    assert typed.status()["runner"]["state"] == "failed"

    fill(shared_ottla_server, typed.name, [_records(range(50, 100)), []], create=False)
    next_run = typed.run("next")
    next_run.wait_until_ready(typed.has_read_all, START_TIMEOUT_S)
    next_run.signal(signal.SIGINT)
    assert next_run.wait(COMMAND_TIMEOUT_S) == 130, next_run.output_tail()
    assert typed.totals() == dict.fromkeys(range(5), 20)


def test_a_query_that_fails_ends_with_one_sentence_and_1(
    shared_ottla_server: OttlaServer, tmp_path: Path, fill: Any
) -> None:
    typed = Typed(tmp_path, shared_ottla_server)
    fill(shared_ottla_server, typed.name, [_records(range(3))])
    text = (tmp_path / "totals.toml").read_text()
    broken = "SELECT sensor, assert_true(sensor < 0, '${env:PIPELINE_SECRET}') AS readings FROM source"
    (tmp_path / "totals.toml").write_text(
        text.replace("SELECT sensor, count(*) AS readings FROM source GROUP BY sensor", broken)
    )
    failed = typed.run("failed")
    assert failed.wait(START_TIMEOUT_S) == 1, failed.output_tail()
    assert failed.stderr.count("\n") == 1, failed.stderr
    assert failed.stderr.startswith(f"ottla pipeline: {typed.name} ended: ")
    assert SECRET not in failed.stderr + failed.stdout
    assert typed.status()["runner"]["state"] == "failed"


@pytest.mark.parametrize(
    ("files", "checksums"),
    [
        ((UNTIL_READ + SPARKS_OWN_WAY, UNTIL_READ), [".0.crc"]),
        pytest.param((UNTIL_READ, UNTIL_READ + SPARKS_OWN_WAY), [".1.crc"], marks=pytest.mark.long),
    ],
    ids=["theirs, then ours", "ours, then theirs"],
)
def test_a_checkpoint_is_read_by_sparks_own_way_and_by_ours(
    shared_ottla_server: OttlaServer, tmp_path: Path, fill: Any, files: tuple[str, str], checksums: list[str]
) -> None:
    """Ours keeps no checksums; releases before did, and settings may."""
    typed = Typed(tmp_path, shared_ottla_server, files[0])
    for number, file in enumerate(files):
        typed.write(file)
        fill(shared_ottla_server, typed.name, [_records(range(100)), _records(range(20))], create=number == 0)
        run = typed.run(f"run {number}")
        assert run.wait(START_TIMEOUT_S) == 0, run.output_tail()
        assert typed.status()["finished_batch"] == number
    assert sorted(each.name for each in (tmp_path / "checkpoint" / "commits").glob(".*.crc")) == checksums
    found = pyarrow.dataset.dataset(tmp_path / "archive", format="parquet").to_table()
    assert found.num_rows == 240
