"""`ottla profile` as a user runs it: own brokers or given ones, one killed, and what cannot be done."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from ottla.client.sync import Client
from ottla.testing.embedded import EmbeddedBroker
from support.ports import LOOPBACK, free_port
from support.processes import ServerProcess, run_tool

pytestmark = [pytest.mark.slow, pytest.mark.spec("D6")]

#: On a busy machine everything takes long; what is promised of the latency is measured, not tested.
PATIENT = ("--p99-ms", "100000", "--timeout", "60")


def run(*arguments: str, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ottla", "profile", *arguments]
    return run_tool(command, check=False, timeout_s=timeout_s)


def figures(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_payments_on_brokers_of_their_own() -> None:
    done = run("payments", "--records", "30000", "--producers", "2", "--json", *PATIENT)
    found = figures(done)
    assert done.returncode == 0, found
    assert (found["acknowledged"], found["read"], found["replication_factor"]) == (30_000, 30_000, 3)
    assert found["lost"] == found["doubled"] == found["reordered"] == found["strange"] == 0
    assert found["p50_ms"] <= found["p99_ms"] <= found["p999_ms"]
    assert found["records_per_s"] > 0
    assert found["producers_cpu_s"] > 0
    assert found["brokers_cpu_s"] is None or found["brokers_cpu_s"] > 0


def test_clicks_on_given_brokers_at_a_rate(ottla_fresh_broker: EmbeddedBroker) -> None:
    address = ottla_fresh_broker.bootstrap_servers
    arguments = ("--records", "4000", "--rate", "5000", "--partitions", "150", "--record-bytes", "120")
    done = run("clicks", "-b", address, *arguments)
    assert done.returncode == 0, done.stderr
    assert "clicks: 150 partitions with 1 replica, " in done.stdout
    assert "  read back" in done.stdout
    assert "kept: all that the profile promises" in done.stdout
    with Client(address) as client:
        assert client.topics() == [], "the topic is left behind"


@pytest.mark.spec("S6")
def test_the_named_cluster_has_tls_and_logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedBroker(tls=True, sasl={"alice": "hunter2"}) as broker:
        settings = broker.client_settings()
        clusters = tmp_path / "clusters.toml"
        clusters.write_text("[c]\n" + "".join(f"{name} = {json.dumps(each)}\n" for name, each in settings.items()))
        monkeypatch.setenv("OTTLA_CLUSTERS_FILE", str(clusters))
        done = run("clicks", "--cluster", "c", "--records", "2000", "--producers", "1", "--json", *PATIENT)
    assert done.returncode == 0, done.stderr
    assert figures(done)["read"] == 2_000
    assert "hunter2" not in done.stdout + done.stderr


def test_a_broken_promise_ends_with_1(ottla_fresh_broker: EmbeddedBroker) -> None:
    done = run("clicks", "-b", ottla_fresh_broker.bootstrap_servers, "--records", "2000", "--p99-ms", "0.1")
    assert done.returncode == 1, done.stderr
    assert "broken: p99 is " in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("payments", "--brokers", "2"), "payments needs 3 brokers, a replica on each, and the cluster has 2"),
        (("payments", "--replication-factor", "1"), "replication factor 1: payments promises 3 replicas"),
        (("clicks", "--records", "1", "--seconds", "1"), "--records and --seconds contradict each other"),
        (("clicks", "-b", "h:1", "--kill"), "--kill is for brokers started here"),
        (("clicks", "-b", "h:1", "--brokers", "3"), "--brokers is for brokers started here"),
        (("payments", "--record-bytes", "50"), "--record-bytes 50: a value of payments has 119 at least"),
        (("clicks", "-b", f"{LOOPBACK}:{free_port()}", "--timeout", "1"), "cannot connect to"),
    ],
)
def test_what_cannot_be_done(arguments: tuple[str, ...], message: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1, "one sentence"


def test_given_brokers_that_are_too_few(ottla_broker: EmbeddedBroker) -> None:
    done = run("payments", "-b", ottla_broker.bootstrap_servers)
    assert done.returncode == 2
    assert "payments needs 3 brokers, a replica on each, and the cluster has 1; start more of them" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_nothing_is_left_of_a_run_that_is_stopped(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-u", "-m", "ottla", "profile", "clicks", "--brokers", "1", "--rate", "1000"]
    run = ServerProcess("profile", command, tmp_path, env={"TMPDIR": str(scratch)})
    try:
        run.wait_until_ready(lambda: "producing to" in run.output_tail(), 60)
        started = psutil.Process(run.pid).children(recursive=True)
        assert len(started) == 3, "ZooKeeper, a broker, a producer"
        run.signal(signal.SIGTERM)
        assert run.wait() == 130, run.output_tail()
        assert not any(each.is_running() for each in started)
        assert list(scratch.iterdir()) == []
    finally:
        run.kill9()


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["payments", "clicks"])
def test_a_broker_is_killed_halfway(name: str) -> None:
    done = run(name, "--seconds", "20", "--kill", "--json", *PATIENT, timeout_s=500)
    found = figures(done)
    assert done.returncode == 0, found
    assert "is killed, and started again" in done.stderr
    assert "is back" in done.stderr
    assert found["disturbed"]
    assert found["acknowledged"] > 0
    if name == "payments":
        assert found["lost"] == found["doubled"] == found["reordered"] == 0
