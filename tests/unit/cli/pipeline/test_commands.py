"""`ottla pipeline` as typed: exit codes, messages, JSON, and no secret in any of it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ottla.cli.command import CommandError
from ottla.cli.main import app
from ottla.cli.pipeline import load, spark_refusals
from ottla.spark.pipelines.running.control import RunnerHeartbeat, RunnerNotes, RunState
from ottla.spark.pipelines.running.process import host_name, process_start
from support.ports import free_port

pytestmark = pytest.mark.spec("D3")

FILE = """
name = "p"
checkpoint = "checkpoint"
[source]
topics = ["a"]
[source.options]
kafka.client.id = "${env:PASSWORD}"
[[steps]]
sql = "SELECT * FROM sourc"
[sink]
kind = "console"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "p.toml"
    path.write_text(FILE)
    return path


def _run(*arguments: str, password: str = "hunter2") -> Result:
    return CliRunner().invoke(app, ["pipeline", *arguments], env={"PASSWORD": password})


def _beat(
    folder: Path,
    state: RunState = RunState.running,
    pid: int | None = None,
    age_s: float = 0,
    start: str | None = None,
) -> None:
    beat_ms = round((time.time() - age_s) * 1_000)
    heartbeat = RunnerHeartbeat("run", host_name(), pid or os.getpid(), beat_ms, beat_ms, state, start)
    RunnerNotes(str(folder / "checkpoint")).beat(heartbeat)


@pytest.mark.parametrize("command", ["run", "check", "status", "stop", "submit"])
def test_a_mistake_in_the_file_is_one_sentence(command: str, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text('nam = "p"\n')
    done = _run(command, str(tmp_path / "p.toml"))
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "ottla pipeline: p.toml: unknown key 'nam' at the top of the file; did you mean 'name'?\n"


@pytest.mark.parametrize("command", ["run", "check", "status", "stop", "submit"])
def test_a_file_that_is_not_there_is_named(command: str, tmp_path: Path) -> None:
    done = _run(command, str(tmp_path / "none.toml"))
    assert done.exit_code == 2
    assert "cannot read" in done.stderr


def test_a_secret_that_is_missing_is_named(file: Path) -> None:
    done = CliRunner().invoke(app, ["pipeline", "check", str(file), "-b", "127.0.0.1:1"], env={"PASSWORD": None})
    assert done.exit_code == 2
    assert "the environment has no variable PASSWORD; set it" in done.stderr


@pytest.mark.slow
def test_check_says_what_is_wrong(file: Path) -> None:
    servers = f"127.0.0.1:{free_port()}"
    done = _run("check", str(file), "-b", servers, "--timeout", "0.5", password=servers)
    assert done.exit_code == 1
    assert "there is no view 'sourc'; did you mean source?" in done.stdout
    assert servers not in done.output
    as_json = _run("check", str(file), "-b", servers, "--timeout", "0.5", "--json")
    rows = {row["what"]: row["ok"] for row in map(json.loads, as_json.stdout.splitlines())}
    assert rows == {
        "file": True,
        "packages": True,
        "checkpoint": True,
        "runner": True,
        "source source": False,
        "step step1": False,
        "sink": True,
    }


@pytest.mark.slow
def test_status_without_a_cluster_shows_the_checkpoint(file: Path, tmp_path: Path) -> None:
    _beat(tmp_path, RunState.stopped)
    servers = f"127.0.0.1:{free_port()}"
    done = _run("status", str(file), "-b", servers, "--timeout", "0.5")
    assert done.exit_code == 2
    assert "runner      no (process" in done.stdout
    assert "batch       none has finished yet" in done.stdout
    assert done.stderr.startswith("ottla pipeline: source: ")
    as_json = _run("status", str(file), "-b", servers, "--timeout", "0.5", "--json")
    row = json.loads(as_json.stdout)
    assert (row["name"], row["runner"]["alive"], row["runner"]["pid"]) == ("p", "no", os.getpid())


def test_stop_of_what_does_not_run(file: Path, tmp_path: Path) -> None:
    done = _run("stop", str(file), "-b", "a:1")
    assert (done.exit_code, done.stderr) == (1, "ottla pipeline: p does not run: no runner has been here\n")
    _beat(tmp_path, pid=2**22 + 1)
    killed = _run("stop", str(file), "-b", "a:1")
    assert killed.exit_code == 1
    assert "is gone, and did not say that it ends: killed?" in killed.stderr


def test_stop_asks_the_run_that_is_there(file: Path, tmp_path: Path) -> None:
    _beat(tmp_path)
    done = _run("stop", str(file), "-b", "a:1")
    assert done.exit_code == 0
    assert "p is asked to end after the batch in work" in done.stdout
    assert RunnerNotes(str(tmp_path / "checkpoint")).is_stop_requested("run")


@pytest.mark.slow
def test_stop_does_not_wait_for_ever(file: Path, tmp_path: Path) -> None:
    _beat(tmp_path)
    done = _run("stop", str(file), "-b", "a:1", "--wait", "--timeout", "0.3")
    assert done.exit_code == 1
    assert "p has not ended in 0 s" in done.stderr


def test_run_refuses_a_second_runner_here(file: Path, tmp_path: Path) -> None:
    _beat(tmp_path, pid=os.getppid())
    done = _run("run", str(file), "-b", "a:1")
    assert done.exit_code == 2
    assert "p runs already" in done.stderr
    assert "--take-over" in done.stderr


def test_run_refuses_a_second_runner_whose_process_is_there_however_old_its_heartbeat(
    file: Path, tmp_path: Path
) -> None:
    _beat(tmp_path, RunState.starting, pid=os.getppid(), age_s=3_600, start=process_start(os.getppid()))
    done = _run("run", str(file), "-b", "a:1")
    assert done.exit_code == 2
    assert f"p runs already (process {os.getppid()} on {host_name()}, starting, last heard of" in done.stderr


def test_run_looks_for_the_report_s_folder_first(file: Path, tmp_path: Path) -> None:
    done = _run("run", str(file), "-b", "a:1", "--report", str(tmp_path / "none" / "r.html"))
    assert done.exit_code == 2
    assert "there is no folder" in done.stderr


def test_submit_shows_the_line_without_secrets(file: Path) -> None:
    done = _run("submit", str(file), "-b", "a:1")
    assert done.exit_code == 0
    words = done.stdout.replace("\\\n", "").split()
    assert words[:3] == ["spark-submit", "--master", "'local[2]'"]
    assert words[-4:] == ["run", str(file), "--bootstrap-server", "a:1"]
    assert "hunter2" not in done.output


def test_submit_runs_the_line(file: Path) -> None:
    assert _run("submit", str(file), "-b", "a:1", "--spark-submit", "true", "--run").exit_code == 0
    assert _run("submit", str(file), "-b", "a:1", "--spark-submit", "false", "--run").exit_code == 1
    missing = _run("submit", str(file), "-b", "a:1", "--spark-submit", "/none/spark-submit", "--run")
    assert missing.exit_code == 2
    assert "name it by --spark-submit" in missing.stderr


def test_submit_takes_one_archive(file: Path) -> None:
    done = _run("submit", str(file), "-b", "a:1", "--pack", "a.tar.gz", "--archive", "b.tar.gz")
    assert done.exit_code == 2
    assert "contradict each other" in done.stderr


def test_what_spark_refuses_at_the_start_is_one_sentence_without_secrets(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = pytest.importorskip("pyspark.errors")
    monkeypatch.setenv("PASSWORD", "hunter2")
    said = "[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION] Invalid mode, hunter2. SQLSTATE: 42KDE;\nAggregate\n+- x\n"
    with pytest.raises(CommandError) as refused, spark_refusals(load(file, "127.0.0.1:1", {})):
        raise errors.AnalysisException(said)
    assert str(refused.value) == ("p cannot start: [STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION] Invalid mode, ***.")


def test_an_error_that_is_not_sparks_is_not_hidden(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "hunter2")
    with pytest.raises(ZeroDivisionError), spark_refusals(load(file, "127.0.0.1:1", {})):
        raise ZeroDivisionError
