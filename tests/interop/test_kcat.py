"""kcat: the tool that people reach for first."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from support.brokers import RunningBroker
from support.java import kcat_executable
from support.processes import run_tool
from support.waiting import wait_until

pytestmark = pytest.mark.needs_kcat

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture
def kcat(broker: RunningBroker) -> Callable[..., str]:
    """Runs kcat against the broker and gives what it wrote."""

    def run(*arguments: str, stdin: str | None = None) -> str:
        program = kcat_executable()
        assert program is not None
        return run_tool([program, "-b", broker.bootstrap, *arguments], stdin=stdin, timeout_s=120).stdout

    return run


def consume(kcat: Callable[..., str], topic: str, *more: str) -> list[Any]:
    told = kcat("-C", "-t", topic, "-o", "beginning", "-e", "-q", "-J", *more)
    return [json.loads(line) for line in told.splitlines()]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.spec("L2", "L7")
def test_produce_and_consume(kcat: Any, unique: str, codec: str) -> None:
    lines = "".join(f"key{number}:value {number}\n" for number in range(500))
    kcat("-P", "-t", unique, "-K:", "-z", codec, "-H", "source=kcat", stdin=lines)
    got = consume(kcat, unique)
    assert [(one["key"], one["payload"]) for one in got] == [(f"key{n}", f"value {n}") for n in range(500)]
    assert [one["offset"] for one in got] == list(range(500))
    assert got[0]["headers"] == ["source", "kcat"]


def test_null_keys_and_values(kcat: Any, unique: str) -> None:
    kcat("-P", "-t", unique, "-K:", "-Z", stdin="key:\n:value\n")
    assert [(one["key"], one["payload"]) for one in consume(kcat, unique)] == [("key", None), (None, "value")]


def test_the_cluster_is_listed(kcat: Any, broker: RunningBroker, unique: str) -> None:
    kcat("-P", "-t", unique, stdin="x\n")
    told = json.loads(kcat("-L", "-J"))
    assert [(one["id"], one["name"]) for one in told["brokers"]] == [(1, broker.bootstrap)]
    (topic,) = [one for one in told["topics"] if one["topic"] == unique]
    assert topic["partitions"] == [{"partition": 0, "leader": 1, "replicas": [{"id": 1}], "isrs": [{"id": 1}]}]


@pytest.mark.spec("C1")
def test_offsets_are_queried_by_time(kcat: Any, unique: str) -> None:
    kcat("-P", "-t", unique, stdin="a\nb\nc\n")
    assert kcat("-Q", "-t", f"{unique}:0:-1").split()[-1] == "3"
    assert kcat("-Q", "-t", f"{unique}:0:-2").split()[-1] == "0"
    assert kcat("-Q", "-t", f"{unique}:0:1").split()[-1] == "0"


@pytest.mark.spec("C3", "G2")
def test_a_group_reads_each_record_once(kcat: Any, unique: str) -> None:
    kcat("-P", "-t", unique, stdin="".join(f"{number}\n" for number in range(100)))
    settings = ("-X", "auto.offset.reset=earliest", "-e", "-q")
    # Where it is done, kcat leaves the group, with its offsets committed.
    assert len(kcat("-G", f"{unique}-group", unique, *settings).splitlines()) == 100
    kcat("-P", "-t", unique, stdin="more\n")
    assert kcat("-G", f"{unique}-group", unique, *settings).splitlines() == ["more"]


def test_from_the_end(kcat: Any, unique: str) -> None:
    kcat("-P", "-t", unique, stdin="".join(f"{number}\n" for number in range(10)))
    assert kcat("-C", "-t", unique, "-p", "0", "-o", "-3", "-e", "-q").splitlines() == ["7", "8", "9"]


def test_an_idempotent_producer(kcat: Any, unique: str) -> None:
    kcat("-P", "-t", unique, "-X", "enable.idempotence=true", stdin="".join(f"{n}\n" for n in range(1000)))
    wait_until(lambda: len(consume(kcat, unique)) == 1000, "all records")
