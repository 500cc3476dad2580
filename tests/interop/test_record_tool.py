"""`ottla produce` and `ottla consume` with brokers of both makes, and with kcat at the other end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.client.sync import Admin
from support.brokers import RunningBroker
from support.java import kcat_executable
from support.processes import ServerProcess, run_tool
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.needs_kafka, pytest.mark.spec("U2")]


@pytest.fixture(params=["shared_ottla_server", "apache_kafka"], ids=["ottla", "apache"])
def served(request: pytest.FixtureRequest) -> RunningBroker:
    """Both brokers: the commands are for either."""
    found: RunningBroker = request.getfixturevalue(request.param)
    return found


def line(served: RunningBroker, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "ottla", *arguments, "-b", served.bootstrap]


def ottla(served: RunningBroker, *arguments: str, stdin: str | None = None) -> str:
    return run_tool(line(served, *arguments), stdin=stdin, timeout_s=60).stdout


@contextmanager
def following(served: RunningBroker, folder: Path, *arguments: str) -> Iterator[ServerProcess]:
    process = ServerProcess("consume", line(served, "consume", *arguments), folder)
    try:
        yield process
    finally:
        process.kill9()


def test_records_go_round(served: RunningBroker, unique: str) -> None:
    """Null and empty, bytes that are not text, headers and times come back as they were written."""
    rows = [
        {"key": "a", "value": None, "timestamp": 1_000, "headers": [{"key": "h", "value_hex": "ff"}]},
        {"key": None, "value": "", "timestamp": 2_000, "headers": []},
        {"key_hex": "00ff", "value": "é\n", "timestamp": 3_000, "headers": [{"key": "h", "value": None}]},
    ]
    text = "".join(json.dumps(each) + "\n" for each in rows)
    written = ottla(served, "produce", unique, "--format", "json", "-p", "0", stdin=text)
    assert written == f"3 records written to {unique}: partition 0 offsets 0 to 2\n"
    found = [
        json.loads(each) for each in ottla(served, "consume", unique, "-o", "beginning", "-e", "--json").splitlines()
    ]
    where = {"topic": unique, "partition": 0, "timestamp_type": "CreateTime"}
    assert found == [{**where, "offset": offset, **row} for offset, row in enumerate(rows)]
    assert ottla(served, "consume", unique, "-o", "@2000", "-e", "-f", r"%o %S\n") == "1 0\n2 3\n"


def test_records_are_searched_copied_and_counted(served: RunningBroker, unique: str, tmp_path: Path) -> None:
    ottla(served, "produce", unique, "--format", "csv", "--key-column", "id", stdin="id,city\n1,Oslo\n2,Rome\n")
    assert ottla(served, "search", unique, "Rome", "-f", r"%o %k\n") == "1 2\n"
    assert ottla(served, "consume", unique, "-o", "0", "-e", "--filter", "value.city == 'Oslo'", "-f", "%k") == "1"
    copied, path = f"{unique}-copy", str(tmp_path / "copy.parquet")
    ottla(served, "topic", "create", copied, "-p", "1")
    assert ottla(served, "copy", unique, copied).startswith(f"2 records copied from {unique} to {copied}")
    assert ottla(served, "topic", "count", copied, "--exact") == f"{copied}: 2 records\n"
    ottla(served, "consume", copied, "-o", "0", "-e", "--to", path)
    assert ottla(served, "produce", copied, "--format", "parquet", path).endswith("partition 0 offsets 2 to 3\n")


@pytest.mark.needs_kcat
def test_kcat_writes_and_reads_the_same(served: RunningBroker, unique: str) -> None:
    kcat = [str(kcat_executable()), "-b", served.bootstrap, "-t", unique]
    run_tool([*kcat, "-P", "-K:", "-Z", "-H", "a=b"], stdin="k:v\nn:\n", timeout_s=60)
    assert ottla(served, "produce", unique, "-K", ":", "-Z", "", "-H", "a=b", stdin="k:v\nn:") == (
        f"2 records written to {unique}: partition 0 offsets 2 to 3\n"
    )
    shown = r"%t %p %o %k %s [%h] %K %S\n"
    ours = ottla(served, "consume", unique, "-o", "beginning", "-e", "-Z", "NULL", "-f", shown)
    assert ours == run_tool([*kcat, "-C", "-o", "beginning", "-e", "-q", "-Z", "-f", shown], timeout_s=60).stdout
    assert ours.splitlines()[1::2] == [f"{unique} 0 {offset} n NULL [a=b] 1 -1" for offset in (1, 3)]


def test_records_are_followed_until_ctrl_c(served: RunningBroker, unique: str, tmp_path: Path) -> None:
    """From the beginning, then as they arrive, those of a new partition included."""
    ottla(served, "produce", unique, stdin="first\n")
    with following(served, tmp_path, unique, "--from", "beginning", "-f", r"%p %s\n") as process:
        wait_until(lambda: process.stdout == "0 first\n", "the first record is shown")
        ottla(served, "produce", unique, stdin="second")
        wait_until(lambda: process.stdout == "0 first\n0 second\n", "the second record is shown")
        with Admin(bootstrap_servers=served.bootstrap) as admin:
            admin.create_partitions({unique: 2})
        ottla(served, "produce", unique, "-p", "1", stdin="third")
        wait_until(lambda: process.stdout.endswith("1 third\n"), "the record of the new partition is shown")
        process.signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr == ""


def test_ctrl_c_ends_what_is_written_as_it_arrives(served: RunningBroker, unique: str) -> None:
    program = subprocess.Popen(line(served, "produce", unique), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    with program:
        assert program.stdin is not None
        program.stdin.write(b"one\ntwo\n")
        program.stdin.flush()
        wait_until(
            lambda: ottla(served, "consume", unique, "-o", "beginning", "-e") == "one\ntwo\n", "both are written"
        )
        program.send_signal(signal.SIGINT)
        assert program.wait(60) == 130


def test_a_reader_that_has_seen_enough_ends_it(served: RunningBroker, unique: str) -> None:
    ottla(served, "produce", unique, stdin="x\n" * 1000)
    reading, writing = os.pipe()
    with subprocess.Popen(
        line(served, "consume", unique, "-o", "beginning"), stdout=writing, stderr=subprocess.PIPE
    ) as program:
        os.close(writing)
        assert os.read(reading, 2) == b"x\n"
        os.close(reading)
        ottla(served, "produce", unique, stdin="y\n")
        _, stderr = program.communicate(timeout=60)
    assert (program.returncode, stderr) == (0, b"")
