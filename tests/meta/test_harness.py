"""The harness itself: servers of Apache Kafka start, answer and stop, and failures tell why."""

from __future__ import annotations

import gc
import socket
import struct
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from support import java
from support.apache import ApacheKafka
from support.brokers import RunningBroker
from support.controller import brokers_and_controller, knows_its_controller, wait_until_all_are_known
from support.cpu_clock import process_cpu_seconds
from support.fake_cluster import FakeCluster
from support.java import QUICK_START, archive_made_of, class_archive, java_command, java_tool
from support.ottla_server import OttlaServer
from support.ports import LOOPBACK, accepts_connections, free_port
from support.processes import ServerDied, ServerProcess, run_tool
from support.spec_report import SpecReport, requirement_ids
from support.waiting import Stopwatch, wait_until, wait_until_ended


def test_a_server_that_dies_shows_its_last_words(tmp_path: Path) -> None:
    server = ServerProcess("liar", [sys.executable, "-c", "print('no luck'); raise SystemExit(3)"], tmp_path)
    with pytest.raises(ServerDied, match=r"liar ended with status 3:\nno luck"):
        server.wait_until_ready(lambda: False, 20)


def test_a_server_that_is_never_ready_is_killed(tmp_path: Path) -> None:
    server = ServerProcess("sleeper", [sys.executable, "-c", "import time; time.sleep(60)"], tmp_path)
    with pytest.raises(ServerDied, match=r"not ready after 0\.1 s"):
        server.wait_until_ready(lambda: False, 0.1)
    assert not server.running


def test_terminate_gives_the_exit_status(tmp_path: Path) -> None:
    server = ServerProcess("sleeper", [sys.executable, "-c", "import time; time.sleep(60)"], tmp_path)
    assert server.memory_bytes() > 0
    assert server.terminate() == -15


def test_a_tool_that_fails_is_reported_with_its_output() -> None:
    with pytest.raises(AssertionError, match="status 2:\nhello"):
        run_tool([sys.executable, "-c", "print('hello'); raise SystemExit(2)"])


def test_a_tool_that_hangs_is_killed() -> None:
    with pytest.raises(AssertionError, match=r"longer than 0\.2 s"):
        run_tool([sys.executable, "-c", "import time; time.sleep(60)"], timeout_s=0.2)


def test_waiting_in_vain_names_what_for() -> None:
    with pytest.raises(AssertionError, match=r"waited 0\.05 s in vain for a miracle"):
        wait_until(lambda: False, "a miracle", timeout_s=0.05)


def test_a_stopwatch_leaves_out_the_wait_for_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    waited_s = iter([1.0, 1.75])
    monkeypatch.setattr(Stopwatch, "_without_core_s", lambda self: next(waited_s))
    times = iter([10.0, 12.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    watch = Stopwatch()
    seconds = watch.seconds()
    monkeypatch.undo()
    assert seconds == 1.25


def test_a_stopwatch_of_other_processes() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.2)"])
    watch = Stopwatch(process.pid)
    wait_until_ended(process.pid)
    assert 0 <= watch.seconds() < 30
    assert process.wait() == 0


@pytest.mark.needs_kafka
@pytest.mark.slow
def test_apache_kafka_without_zookeeper(tmp_path: Path, unique: str) -> None:
    kafka = ApacheKafka(tmp_path, zookeeper=None)
    try:
        kafka.start()
        kafka.tool("org.apache.kafka.tools.TopicCommand", "--create", "--topic", unique)
        assert kafka.tool("org.apache.kafka.tools.TopicCommand", "--list").split() == [unique]
    finally:
        kafka.stop()


@pytest.mark.needs_kafka
@pytest.mark.slow
def test_both_brokers_take_a_record_and_give_it_back(broker: RunningBroker, unique: str) -> None:
    server = ("--bootstrap-server", broker.bootstrap, "--topic", unique)
    java_tool("org.apache.kafka.tools.TopicCommand", "--create", *server)
    java_tool("kafka.tools.ConsoleProducer", *server, stdin="one\ntwo\n")
    consumer = java_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", *server, "--from-beginning", "--max-messages", "2"
    )
    assert consumer.stdout == "one\ntwo\n"


@pytest.mark.slow
def test_our_broker_can_be_killed_restarted_and_stopped(ottla_server: OttlaServer) -> None:
    port = ottla_server.port
    assert port > 0
    assert ottla_server.ready_after_s > 0
    assert ottla_server.server.memory_bytes() > 1024 * 1024
    assert ottla_server.server.cpu_seconds() > 0
    assert knows_its_controller(LOOPBACK, port)
    wait_until_all_are_known([ottla_server.bootstrap])
    ottla_server.kill9()
    assert not accepts_connections(LOOPBACK, port)
    ottla_server.restart()
    assert ottla_server.port == port
    assert ottla_server.stop() == 0


def test_brokers_and_controller_are_read_from_metadata() -> None:
    one = struct.pack(">ih4si", 7, 4, b"host", 9092)
    rack = struct.pack(">h1s", 1, b"r")
    response = struct.pack(">ii", 0, 2) + one + rack + one + struct.pack(">hi", -1, 7)
    assert brokers_and_controller(response) == ([7, 7], 7)
    with pytest.raises(struct.error):
        brokers_and_controller(response[:-1])


def test_nobody_there_knows_no_controller() -> None:
    assert not knows_its_controller(LOOPBACK, free_port())


class TestSpecReport:
    def test_the_worst_phase_counts(self) -> None:
        report = SpecReport()
        report.expect("a", ["L1", "L2"])
        report.record("a", "passed")
        report.record("a", "failed")
        report.record("a", "passed")
        assert report.by_requirement() == {"L1": {"a": "failed"}, "L2": {"a": "failed"}}
        assert report.shown() == []

    def test_shown_needs_a_pass_and_no_failure(self) -> None:
        report = SpecReport()
        for test, requirement, outcome in [
            ("a", "L10", "passed"),
            ("b", "L2", "passed"),
            ("c", "L3", "skipped"),
            ("d", "L10", "skipped"),
        ]:
            report.expect(test, [requirement])
            report.record(test, outcome)
        assert report.shown() == ["L2", "L10"]

    def test_tests_without_a_mark_are_left_out(self) -> None:
        report = SpecReport()
        report.record("a", "passed")
        assert report.by_requirement() == {}

    def test_text_names_what_has_no_test(self) -> None:
        report = SpecReport()
        report.expect("a", ["L1"])
        report.record("a", "passed")
        text = report.text(["L1", "G2", "L7"])
        assert "L1: 1 passed\n    passed  a\n" in text
        assert text.endswith("Without a test in this run: G2, L7\n")

    @pytest.mark.parametrize("wrong", ["", "L", "4", "l4", "L4 "])
    def test_an_id_that_is_none_is_refused(self, wrong: str) -> None:
        with pytest.raises(ValueError, match="an id is letters and a number"):
            SpecReport().expect("a", [wrong])

    def test_ids_are_read_from_the_document(self, tmp_path: Path) -> None:
        document = tmp_path / "requirements.md"
        document.write_text("# R\n\n- **L1** a\n- **G12** b\n- other\n")
        assert requirement_ids(document) == ["L1", "G12"]
        assert requirement_ids(tmp_path / "none.md") == []


def test_the_processor_time_of_another_process_is_exact() -> None:
    """A clock tick is 10 ms; shorter work, of threads that have ended, counts too."""
    code = (
        "import sys, threading, time\n"
        "def work():\n"
        "    while time.thread_time() < 0.025: pass\n"
        "sys.stdin.readline()\n"
        "thread = threading.Thread(target=work); thread.start(); thread.join()\n"
        "print(time.process_time(), flush=True)\n"
        "sys.stdin.readline()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        told = float(process.stdout.readline())
        found = process_cpu_seconds(process.pid)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.wait() == 0
    assert told >= 0.025
    assert told <= found < told + 1


def test_an_archive_of_classes_is_used_while_it_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    libs, archive = tmp_path / "libs", tmp_path / "classes.jsa"
    libs.mkdir()
    (libs / "kafka_2.13-3.9.1.jar").write_bytes(b"jar")
    monkeypatch.setenv("OTTLA_KAFKA_LIBS", str(libs))
    monkeypatch.setattr(java, "java_executable", lambda: sys.executable)
    monkeypatch.setattr(java, "CLASS_ARCHIVE", archive)
    used = f"-XX:SharedArchiveFile={archive}"
    try:
        class_archive.cache_clear()
        assert used not in java_command("A")
        archive.write_bytes(b"classes")
        archive.with_suffix(".made-of").write_text(archive_made_of())
        class_archive.cache_clear()
        assert used in java_command("A")
        assert used in java_command("A", options=(*QUICK_START, "-Xmx1g"))
        assert used not in java_command("A", options=("-Xmx1g",)), "others are measured as they are"
        (libs / "another.jar").write_bytes(b"jar")
        class_archive.cache_clear()
        assert used not in java_command("A")
    finally:
        class_archive.cache_clear()


@pytest.mark.needs_kafka
def test_java_takes_classes_from_the_archive() -> None:
    if class_archive() is None:
        pytest.skip("no archive of classes (./run test makes it)")
    command = java_command("-Xlog:class+load:stdout", "org.apache.kafka.tools.TopicCommand", "--version")
    loaded = run_tool(command, timeout_s=50).stdout
    assert "org.apache.kafka.tools.TopicCommand source: shared objects file" in loaded


def test_fake_brokers_leave_no_connection_open_that_they_accept_as_they_close() -> None:
    gc.collect()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(20):
            fakes = FakeCluster(1)
            with socket.create_connection((LOOPBACK, fakes.ports[0])):
                fakes.close()
            del fakes
        gc.collect()
    assert [str(each.message) for each in seen] == []
