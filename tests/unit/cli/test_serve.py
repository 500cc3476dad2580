"""`ottla serve`: how file, -c and flags come together, and what is said of mistakes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli.serve import (
    DEFAULT_DATA,
    DEFAULT_HOST,
    DEFAULT_PORT,
    ServeOptions,
    UsageProblem,
    durability,
    read_config,
    run,
)


def options(
    *settings: str,
    host: str | None = None,
    port: int | None = None,
    data: str | None = None,
    broker_id: int | None = None,
    properties_file: str | None = None,
    durable: bool = False,
) -> ServeOptions:
    return ServeOptions(host, port, data, broker_id, settings, properties_file, durable)


def test_defaults_stay_on_this_machine_and_in_sight() -> None:
    config = read_config(options())
    assert [(e.host, e.port) for e in config.listeners] == [(DEFAULT_HOST, DEFAULT_PORT)]
    assert config.log_dirs == [DEFAULT_DATA]
    assert config.broker_id == -1
    assert config.warnings == []


def test_flags_are_kafka_settings() -> None:
    config = read_config(options("num.partitions=4", host="127.0.0.2", port=0, data="d", broker_id=7))
    assert [(e.listener_name, e.host, e.port) for e in config.listeners] == [("PLAINTEXT", "127.0.0.2", 0)]
    assert config.get_int("num.partitions") == 4
    assert (config.log_dirs, config.broker_id) == (["d"], 7)


def test_an_ipv6_host_is_put_in_brackets() -> None:
    assert read_config(options(host="::1")).listeners[0].host == "::1"


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nlisteners=PLAINTEXT://127.0.0.1:1234\nlog.retention.hours=5\n")
    config = read_config(options("num.partitions=3", properties_file=str(file)))
    assert config.get_int("num.partitions") == 3
    assert config.listeners[0].port == 1234
    assert read_config(options(port=99, properties_file=str(file))).listeners[0].port == 99


def test_log_dir_of_a_file_is_not_overridden_by_our_default(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"log.dir={tmp_path}/elsewhere\n")
    assert read_config(options(properties_file=str(file))).log_dirs == [f"{tmp_path}/elsewhere"]


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_file_in_the_encoding_of_java_is_read_as_well(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes("# für Gäste\r\nnum.partitions=2\r\nlog.dirs=/däta\r\n".encode(encoding))
    config = read_config(options(properties_file=str(file)))
    assert (config.get_int("num.partitions"), config.log_dirs) == (2, ["/däta"])


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "program"
    file.write_bytes(b"\x7fELF\0\0=\xff\n")
    with pytest.raises(UsageProblem, match="program: it is not a text file"):
        read_config(options(properties_file=str(file)))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (options("num.partitions"), "expected key=value"),
        (options("ottla.log.flush.on.ack=false", durable=True), "contradict each other"),
        (options("broker.id=2", broker_id=1), "contradict each other"),
        (options("log.dirs=/x", data="d"), "--data and -c log.dirs=… both say where the data is"),
        (options("log.dir=/x", data="d"), "--data and -c log.dir=… both say where the data is"),
        (options("=4"), "expected key=value"),
        (options("listeners=PLAINTEXT://:1", port=9), "give one of them"),
        (options(port=70000), "from 0 to 65535"),
        (options(port=-1), "from 0 to 65535"),
        (options("num.partition=4"), "num.partitions"),
        (options("num.partitions=many"), "num.partitions"),
        (options(properties_file="/nowhere/server.properties"), "cannot read /nowhere/server.properties"),
        (options("process.roles=broker,controller"), "process.roles"),
        (options("authorizer.class.name=org.example.Authorizer"), "authorizer.class.name"),
        (options("listeners=SSL://127.0.0.1:9093"), "SSL"),
    ],
)
def test_mistakes_name_cause_and_cure(given: ServeOptions, says: str) -> None:
    with pytest.raises(UsageProblem, match="(?s).*" + says.replace(".", r"\.")):
        read_config(given)


def test_a_mistake_ends_with_a_message_and_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(options("num.partition=4")) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("ottla serve: ")
    assert "num.partitions" in captured.err
    assert "Traceback" not in captured.err


def test_a_binary_properties_file_is_refused_in_words(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageProblem, match="cannot read"):
        read_config(options(properties_file=str(file)))


@pytest.mark.spec("L6")
@pytest.mark.parametrize(
    ("given", "says"),
    [
        (options(), "survive the end of the process; they are forced to disk every 5 s. A loss of power may take"),
        (options("ottla.flush.interval.ms=500"), "every 0.5 s"),
        (options("log.flush.interval.messages=100"), "every 5 s and with every 100 records"),
        (options("log.flush.interval.messages=1"), "are on the disk (fsync), because log.flush.interval.messages=1"),
        (options("log.flush.interval.ms=250"), "0.25 s after they came"),
        (options(durable=True), "are on the disk (fsync) and survive a loss of power"),
        (options("ottla.log.flush.on.ack=true"), "are on the disk (fsync) and survive a loss of power"),
        (options("ottla.log.flush.on.ack=TRUE", durable=True), "are on the disk (fsync)"),
    ],
)
def test_the_durability_in_force_is_said(given: ServeOptions, says: str) -> None:
    assert says in durability(read_config(given))


def test_a_broker_starts_without_modules_that_it_may_never_need() -> None:
    """Those of archives (behind `shutil`), OpenSSL's digests, logins, transactions, and `ottla.metrics.port`."""
    names = [
        "shutil",
        "bz2",
        "lzma",
        "hashlib",
        "hmac",
        "ottla.broker.metrics.catalogue",
        "ottla.broker.metrics.endpoint",
        "ottla.security",
        "ottla.txn",
    ]
    code = f"import sys, ottla.cli.serve, ottla.broker.server; print(sorted({set(names)} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert done.stdout.strip() == "[]"
