"""`ottla serve` as a process: ready fast, stopped cleanly, refusing in words."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.wire.codec import encode
from ottla.wire.framing import RequestHeader, encode_request_frame
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from support.ports import free_port
from support.raw_client import RawClient, batch_of
from support.waiting import Stopwatch, wait_until, wait_until_ended

#: A second for the stop itself, as promised, and room for a machine that does other things too.
STOP_LIMIT_S = 1.0 + 4.0


def serve(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "ottla", "serve", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ready_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert "listening on" in line, (line, process.stderr.read() if process.stderr else "")
    return line


@pytest.fixture
def heeded_sighup() -> Iterator[None]:
    """What starts under nohup inherits that SIGHUP is ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("heeded_sighup")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_stop_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    process = serve("--port", "0", "--data", str(tmp_path / "data"))
    try:
        line = ready_line(process)
        assert str(tmp_path / "data") in line
        watch = Stopwatch(process.pid)
        process.send_signal(number)
        wait_until_ended(process.pid)
        assert watch.seconds() < STOP_LIMIT_S
        out, err = process.communicate(timeout=240)
        assert process.returncode == 0
        assert "stopped" in out
        assert err == ""
        assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_is_said_when_it_is_ready_comes_together(tmp_path: Path, unbuffered: str) -> None:
    """Who waits for the first line gets no other one later, amid the output of the next command."""
    with subprocess.Popen(
        [sys.executable, "-m", "ottla", "serve", "--port", "0", "--data", str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
    ) as process:
        assert process.stdout is not None
        try:
            said = os.read(process.stdout.fileno(), 65_536).decode()
            assert "listening on" in said
            assert "\ndurability: " in said
            assert said.endswith("\n")
        finally:
            process.kill()


def test_nohup_keeps_it_running_when_the_terminal_goes(tmp_path: Path) -> None:
    process = subprocess.Popen(
        ["nohup", sys.executable, "-m", "ottla", "serve", "--port", "0", "--data", str(tmp_path / "data")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        ready_line(process)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=240)
        assert (process.returncode, "stopped" in out) == (0, True)
    finally:
        process.kill()
        process.communicate()


def test_sigterm_is_obeyed_while_a_request_for_many_topics_is_served(tmp_path: Path) -> None:
    process = serve("--port", "0", "--data", str(tmp_path))
    try:
        port = int(ready_line(process).split("listening on 127.0.0.1:")[1].split(",")[0])
        topics = [CreatableTopic(name=f"t.{n}", num_partitions=1, replication_factor=1) for n in range(40_000)]
        request = CreateTopicsRequest(topics=topics, timeout_ms=60_000)
        frame = encode_request_frame(RequestHeader(19, 7, 1, "many"), encode(request, 7))
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(frame)
            wait_until(lambda: (tmp_path / "t.0-0").exists(), "the first topic")
            watch = Stopwatch(process.pid)
            process.send_signal(signal.SIGTERM)
            wait_until_ended(process.pid)
            assert watch.seconds() < STOP_LIMIT_S
            process.communicate(timeout=240)
        assert process.returncode == 0
        assert not (tmp_path / "t.39999-0").exists()
        assert (tmp_path / ".kafka_cleanshutdown").exists()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.spec("L6")
@pytest.mark.parametrize(
    ("argument", "says"), [((), "forced to disk every 5 s"), (("--durable",), "are on the disk (fsync)")]
)
def test_the_durability_in_force_is_said(tmp_path: Path, argument: tuple[str, ...], says: str) -> None:
    process = serve("--port", "0", "--data", str(tmp_path / "data"), *argument)
    try:
        ready_line(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("durability: acknowledged records ")
        assert says in line
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.spec("L8")
def test_without_its_last_directory_it_ends_and_says_why(tmp_path: Path) -> None:
    settings = ("-c", "log.flush.offset.checkpoint.interval.ms=100")
    process = serve("--port", "0", "--data", str(tmp_path / "data"), *settings)
    try:
        port = int(ready_line(process).split("listening on 127.0.0.1:")[1].split(",")[0])
        with RawClient(port) as client:
            assert client.create_topic("t") == 0
            assert client.produce("t", 0, batch_of(b"x")).error_code == 0
            shutil.rmtree(tmp_path / "data")
        _, err = process.communicate(timeout=240)
        assert process.returncode == 1
        assert f"Shutdown broker because all log dirs in {tmp_path}/data have failed" in err
        assert f"Stopping serving logs in dir {tmp_path}/data" in err
        assert "Traceback" not in err
    finally:
        process.kill()
        process.communicate()


def test_a_port_in_use_is_said_in_one_line(tmp_path: Path) -> None:
    first = serve("--port", "0", "--data", str(tmp_path / "one"))
    try:
        port = ready_line(first).split("listening on 127.0.0.1:")[1].split(",")[0]
        second = subprocess.run(
            [sys.executable, "-m", "ottla", "serve", "--port", port, "--data", str(tmp_path / "two")],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert second.returncode == 1
        assert f"127.0.0.1:{port}" in second.stderr
        assert "in use" in second.stderr
        assert len(second.stderr.splitlines()) == 1
    finally:
        first.kill()
        first.communicate()


@pytest.mark.spec("L3")
def test_a_directory_of_another_broker_is_refused_in_one_line(tmp_path: Path) -> None:
    first = serve("--port", "0", "--data", str(tmp_path / "data"))
    try:
        ready_line(first)
        second = subprocess.run(
            [sys.executable, "-m", "ottla", "serve", "--port", "0", "--data", str(tmp_path / "data")],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert second.returncode == 1
        assert str(tmp_path / "data") in second.stderr
        assert len(second.stderr.splitlines()) == 1
    finally:
        first.kill()
        first.communicate()


def test_an_unknown_setting_names_the_nearest(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "serve", "--data", str(tmp_path), "-c", "num.partitons=3"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 2
    assert "num.partitions" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_properties_of_apache_kafka_is_accepted(tmp_path: Path) -> None:
    port = free_port()
    file = tmp_path / "server.properties"
    file.write_text(
        f"""\
# As it comes with Apache Kafka, but for port and folder.
broker.id=0
listeners=PLAINTEXT://127.0.0.1:{port}
num.network.threads=5
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs={tmp_path / "data"}
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.retention.check.interval.ms=300000
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""
    )
    process = serve("--properties", str(file), "-c", "zookeeper.connect=")
    try:
        line = ready_line(process)
        assert f"broker 0 listening on 127.0.0.1:{port}" in line
        process.terminate()
        _, err = process.communicate(timeout=240)
        warnings = [text for text in err.splitlines() if "warning" in text]
        assert any("num.network.threads" in text for text in warnings)
        assert len(warnings) == len(set(warnings)), "each is said once"
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.spec("Z2")
def test_a_broker_with_its_own_tree_loads_nothing_that_only_a_zookeeper_over_the_wire_needs(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "ottla", "serve", "--port", "0", "--data", str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        ready_line(process)
        process.terminate()
        _, err = process.communicate(timeout=240)
        loaded = {line.rpartition("|")[2].strip() for line in err.splitlines() if line.startswith("import time:")}
        assert "ottla.broker.control.coordination" in loaded
        unwanted = ("kazoo", "ottla.zk.server", "ottla.zk.kazoo", "ipaddress", "urllib.parse")
        assert not [name for name in loaded if name.startswith(unwanted)]
    finally:
        process.kill()
        process.communicate()
