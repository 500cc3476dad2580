"""`ottla test-broker`: a broker for tests as a process, which leaves nothing behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from support.processes import run_tool
from support.raw_client import RawClient
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.spec("U1")]

COMMAND = [sys.executable, "-m", "ottla", "test-broker"]
END_TIMEOUT_S = 60.0


@contextmanager
def started(*arguments: str, **options: object) -> Iterator[subprocess.Popen[str]]:
    given = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    process = subprocess.Popen([*COMMAND, *arguments], text=True, **given)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_its_first_line_is_its_address_and_it_ends_with_its_input() -> None:
    with started("--topic", "orders:3", "-t", "payments", "-c", "message.max.bytes=1234") as process:
        host, _, port = first_line(process).rpartition(":")
        assert host == "127.0.0.1"
        with RawClient(int(port)) as client:
            topics = {topic.name: len(topic.partitions) for topic in client.metadata().topics}
        assert topics == {"orders": 3, "payments": 1}
        out, err = process.communicate(timeout=END_TIMEOUT_S)
        assert (process.returncode, out, err) == (0, "", "")


def test_json_has_more() -> None:
    with started("--json", "-t", "orders:3") as process:
        shown = json.loads(first_line(process))
        assert shown["bootstrap_servers"] == f"127.0.0.1:{shown['port']}"
        assert (shown["pid"], shown["topics"]) == (process.pid, {"orders": 3})


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it(number: signal.Signals) -> None:
    with started(stdin=subprocess.DEVNULL) as process:
        assert first_line(process)
        process.send_signal(number)
        assert process.wait(END_TIMEOUT_S) == 0


#: Starts a broker whose standard input is not a pipe, prints its process id, and waits to be killed.
PARENT = """
import json, subprocess, sys
command = [sys.executable, "-m", "ottla", "test-broker", "--json"]
broker = subprocess.Popen(command, stdin=getattr(subprocess, sys.argv[1]), stdout=subprocess.PIPE, text=True)
print(json.loads(broker.stdout.readline())["pid"], flush=True)
broker.wait()
"""


@pytest.mark.parametrize("stdin", ["PIPE", "DEVNULL"])
def test_it_ends_when_its_parent_is_killed(stdin: str) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, stdin], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent:
        broker = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        parent.wait()
        wait_until(lambda: not broker.is_running(), "the end of the broker", END_TIMEOUT_S)


def test_without_a_pipe_it_stays_while_its_parent_does() -> None:
    with started(stdin=subprocess.DEVNULL) as process, tempfile.TemporaryFile() as file:
        port = int(first_line(process).rpartition(":")[2])
        with started(stdin=file) as other:
            for each in (port, int(first_line(other).rpartition(":")[2])):
                with RawClient(each) as client:
                    assert client.metadata().topics == []
            assert process.poll() is None
            assert other.poll() is None


def test_data_in_a_directory_are_there_for_the_next_one(tmp_path: Path) -> None:
    for _ in range(2):
        with started("--data", str(tmp_path / "data"), "-t", "orders:2") as process:
            assert first_line(process)
            process.communicate(timeout=END_TIMEOUT_S)
    assert (tmp_path / "data" / "orders-1").is_dir()


def test_a_command_runs_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_CLUSTER", "prod")
    script = (
        "import os, sys; print(os.environ['OTTLA_BOOTSTRAP_SERVER']); "
        "sys.exit(int(sys.argv[1]) + ('OTTLA_CLUSTER' in os.environ))"
    )
    done = run_tool([*COMMAND, "-t", "orders:3", sys.executable, "-c", script, "7"], check=False)
    assert done.returncode == 7
    assert done.stdout.startswith("127.0.0.1:")
    assert run_tool([*COMMAND, "--", "no-such-program", "-x"], check=False).returncode == 127


def test_a_command_ended_by_a_signal_has_the_status_of_shells() -> None:
    script = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert run_tool([*COMMAND, sys.executable, "-c", script], check=False).returncode == 128 + signal.SIGKILL


def test_sigterm_is_passed_on_to_the_command() -> None:
    script = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"
    with started(sys.executable, "-c", script) as process:
        child = int(first_line(process))
        process.terminate()
        assert process.wait(END_TIMEOUT_S) == 128 + signal.SIGTERM
        assert not psutil.pid_exists(child)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--topic", "orders:many"], "--topic orders:many: expected NAME or NAME:PARTITIONS"),
        (["-c", "num.partition=4"], "num.partition is not a known setting; did you mean num.partitions?"),
        (["-t", "a/b"], "the topic a/b cannot be created"),
        (["--host", "192.0.2.1"], "192.0.2.1"),
    ],
)
def test_mistakes_are_named_and_nothing_is_printed(arguments: list[str], message: str) -> None:
    done = run_tool([*COMMAND, *arguments], stdin="", check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("ottla test-broker: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
