"""`ottla search` with a broker in this process."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from ottla.client.sync import Producer
from ottla.ops import record_search, topic_reading
from ottla.testing import Broker
from support.command_line import ottla_at

pytestmark = pytest.mark.spec("U2")

RECORDS = 2_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"orders": 2}) as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(RECORDS):
            headers = [("n", b"%d" % number)] if number == 7 else []
            producer.send("orders", b"value %d" % number, b"key-%d" % number, partition=number % 2, headers=headers)
        producer.send("orders", None, b"gone", partition=0)
        producer.send("orders", b"\xff\x00", None, partition=0)
        producer.send("orders", "São José".encode(), None, partition=0)
        producer.send("orders", b"late", None, partition=0, timestamp=1_790_000_000_000_000)
        producer.send("orders", b"old", None, partition=1, timestamp=2**62)
        producer.flush()
        yield broker


@pytest.mark.parametrize("is_plain", [False, True], ids=["arrow", "plain"])
def test_records_are_found(broker: Broker, monkeypatch: pytest.MonkeyPatch, is_plain: bool) -> None:
    if is_plain:
        monkeypatch.setattr(record_search, "find_spec", lambda _name: None)

    def found(*arguments: str) -> list[str]:
        done = ottla_at(broker, "search", "orders", *arguments)
        assert done.exit_code == (0 if done.stdout_bytes else 1), done.output
        number = len(done.stdout_bytes.splitlines())
        assert f"{number:,} record{'' if number == 1 else 's'} found, 2,005 of 2,005 offsets (100%) read" in done.stderr
        return sorted(done.stdout_bytes.decode(errors="replace").splitlines())

    assert len(found("y-19", "--key")) == 111
    assert found("y-19", "--value") == []
    assert found("key-7", "--regex") == found("key-7")
    assert found("^key-7$", "-r") == ["1 3 key-7 value 7"]
    assert found("S[aã]o Jos.$", "-r") == ["0 1002 null São José"]
    assert found("gone") == ["0 1000 gone null"]
    assert found("old") == ["1 1000 null old"]
    assert found("late") == ["0 1003 null late"]
    (row,) = map(json.loads, found("^key-7$", "-r", "--json"))
    assert (row["value"], row["headers"], row["partition"]) == ("value 7", [{"key": "n", "value": "7"}], 1)
    (row,) = map(json.loads, found("value 1999", "--json"))
    assert (row["offset"], row["timestamp_type"], row["headers"]) == (999, "CreateTime", [])


def test_it_ends_where_enough_was_found(broker: Broker) -> None:
    done = ottla_at(broker, "search", "orders", "value", "-n", "2", "-p", "1", "-f", r"%o\n")
    assert (done.exit_code, done.stdout) == (0, "0\n1\n")
    assert done.stderr.startswith("ottla search: 2 records found, ")
    done = ottla_at(broker, "search", "orders", "value 5", "--from", "3", "--until", "3")
    assert (done.exit_code, done.stderr) == (1, "ottla search: 0 records found, 0 of 0 offsets (100%) read\n")


def test_ctrl_c_says_how_far_it_came(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[object] = []
    searching_poll = record_search.searching_poll

    def interrupted_poll(*arguments: object) -> object:
        poll = searching_poll(*arguments)  # type: ignore[arg-type]

        def once(timeout_ms: int) -> topic_reading.Records:
            if found:
                raise KeyboardInterrupt
            records = poll(timeout_ms)
            found.extend(records)
            return records

        return once

    monkeypatch.setattr(record_search, "searching_poll", interrupted_poll)
    monkeypatch.setattr(record_search, "SEARCHED_ROWS", 1)
    done = ottla_at(broker, "search", "orders", "value 0", "-p", "0")
    assert (done.exit_code, done.stdout) == (130, "0 0 key-0 value 0\n")
    assert re.fullmatch(
        r"ottla search: interrupted; 1 record found, [\d,]+ of 1,004 offsets \(\d+%\) read\n", done.stderr
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope", "x"], "topic nope does not exist"),
        (["orders", "a(", "-r"], "a( is not a regular expression at character 2: missing ), unterminated subpattern"),
        (
            ["orders", "a{99999999999}", "-r"],
            "a{99999999999} is not a regular expression: the repetition number is too",
        ),
        (["orders", "(" * 9_000 + ")" * 9_000, "-r"], "the regular expression is nested too deeply"),
        (["orders", ""], "TEXT is empty"),
        (["orders", "x", "--json", "-f", "%s"], "--json shows all fields"),
    ],
)
def test_mistakes(broker: Broker, arguments: list[str], message: str) -> None:
    done = ottla_at(broker, "search", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
