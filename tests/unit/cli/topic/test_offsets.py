"""`ottla topic offsets` and `delete-records` with a broker in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import Result

from ottla.client.sync import Producer
from ottla.testing import Broker
from support import command_line

pytestmark = pytest.mark.spec("U2", "L5")


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"orders": 2}, settings={"log.retention.ms": -1}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(5):
                producer.send("orders", b"x", partition=0, timestamp=1_000 * number)
            producer.send("orders", b"x", partition=1, timestamp=2_000)
        yield broker


def ottla(broker: Broker, *arguments: str) -> Result:
    return command_line.ottla("topic", *arguments, "-b", broker.bootstrap_servers)


def rows(broker: Broker, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
    done = ottla(broker, *arguments, "--json")
    assert done.exit_code == code, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def starts(broker: Broker) -> list[int]:
    return [row["log_start_offset"] for row in rows(broker, "offsets", "orders")]


def test_offsets_of_places(broker: Broker) -> None:
    row = {"topic": "orders", "partition": 0, "log_start_offset": 0, "log_end_offset": 5}
    assert rows(broker, "offsets", "orders", "-p", "0") == [row]
    places = {"@2000": [2, 0], "@2001": [3, 1], "-2": [3, 0], "end": [5, 1], "beginning": [0, 0], "4": [4, 1]}
    found = {place: [each["at"] for each in rows(broker, "offsets", "orders", "--at", place)] for place in places}
    assert found == places
    shown = ottla(broker, "offsets", "orders", "--at", "-2").stdout.splitlines()
    assert [line.split() for line in shown] == [
        ["TOPIC", "PARTITION", "BEGINNING", "END", "OFFSETS", "AT"],
        ["orders", "0", "0", "5", "5", "3"],
        ["orders", "1", "0", "1", "1", "0"],
    ]


def test_records_are_counted(broker: Broker) -> None:
    assert ottla(broker, "count", "orders").stdout == (
        "orders: at most 6 records, by the offsets; --exact reads and counts them\n"
    )
    assert ottla(broker, "count", "orders", "--exact", "--read-committed").stdout == "orders: 6 records\n"
    of_partitions = [{"partition": 0, "records": 3}, {"partition": 1, "records": 1}]
    (row,) = rows(broker, "count", "orders", "--exact", "--from", "@2000")
    assert row == {"topic": "orders", "records": 4, "partitions": of_partitions}
    (row,) = rows(broker, "count", "orders", "-p", "0", "--from", "-2")
    assert row == {"topic": "orders", "offsets": 2, "partitions": [{"partition": 0, "offsets": 2}]}
    assert ottla(broker, "count", "orders", "--exact", "--from", "end").stdout == "orders: 0 records\n"
    for mistake in (["nope"], ["nope", "--exact"], ["orders", "--read-committed"], ["orders", "--exact", "-p", "9"]):
        done = ottla(broker, "count", *mistake)
        assert (done.exit_code, done.stdout, "Traceback" in done.stderr) == (2, "", False)


def test_records_are_deleted_once_that_is_confirmed(broker: Broker) -> None:
    done = ottla(broker, "delete-records", "orders", "--before", "-2")
    assert (done.exit_code, starts(broker)) == (1, [0, 0])
    assert [line.split() for line in done.stdout.splitlines()][1:] == [
        ["orders", "0", "0", "5", "3"],
        ["orders", "1", "0", "1", "0"],
    ]
    found = rows(broker, "delete-records", "orders", "-p", "0", "--before", "3", code=1)
    assert [(each["before"], each["deleted"]) for each in found] == [(3, False)]
    done = ottla(broker, "delete-records", "orders", "--before", "-2", "--yes")
    assert (done.exit_code, done.stdout, starts(broker)) == (0, "deleted: 3 records of orders\n", [3, 0])
    deleted = rows(broker, "delete-records", "orders", "--before", "end", "--yes")
    assert [(each["before"], each["deleted"]) for each in deleted] == [(5, True), (1, True)]
    assert starts(broker) == [5, 1]
    done = ottla(broker, "delete-records", "orders", "-p", "0", "--before", "2", "--yes")
    assert (done.exit_code, done.stdout) == (0, "there is nothing to delete\n")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("offsets nope", 2, "topic nope does not exist"),
        ("offsets orders -p 2", 2, "topic orders has no partition 2; its partitions are 0 to 1"),
        ("offsets orders --at soon", 2, "--at soon: expected beginning, end, an offset"),
        ("delete-records orders --before then --yes", 2, "--before then: expected beginning"),
        ("delete-records orders --before 6 --yes", 2, "--before 6: orders-0 ends at 5; --before end deletes all of it"),
        ("delete-records compacted --before end --yes", 1, "(POLICY_VIOLATION); a topic that is compacted only"),
    ],
)
def test_mistakes(broker: Broker, arguments: str, code: int, message: str) -> None:
    made = ottla(broker, "create", "compacted", "-c", "cleanup.policy=compact")
    assert made.exit_code == 0, made.output
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("compacted", b"x", b"k").result(60)
    done = ottla(broker, *arguments.split())
    assert (done.exit_code, message in done.stderr) == (code, True), done.output
    assert "Traceback" not in done.stderr
