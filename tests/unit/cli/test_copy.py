"""`ottla copy` with brokers in this process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import Result

from ottla.client.sync import Consumer, Producer
from ottla.testing import Broker
from support import command_line

pytestmark = pytest.mark.spec("U2")

TOPICS = {"orders": 3, "within": 3, "one": 1, "followed": 3, "interrupted": 3, "part": 3}
#: The times of these records are long past.
KEPT = {"log.retention.ms": -1}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(TOPICS, settings=KEPT) as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(1_200):
            producer.send(
                "orders", b"v%d" % number, b"k", partition=number % 3, timestamp=number, headers=[("h", None)]
            )
        producer.send("orders", None, None, partition=2, timestamp=5)
        producer.flush()
        yield broker


def ottla(broker: Broker, *arguments: str) -> Result:
    return command_line.ottla(*arguments, "-b", broker.bootstrap_servers)


def records(broker: Broker, topic: str) -> list[Any]:
    shown = ottla(broker, "consume", topic, "-o", "beginning", "-e", "-f", r"%p %o %T %k %s %h %S\n")
    assert shown.exit_code == 0, shown.output
    return sorted(shown.stdout.splitlines())


def test_within_a_cluster(broker: Broker) -> None:
    done = ottla(broker, "copy", "orders", "within")
    assert (done.exit_code, done.stderr) == (0, "")
    where = "partition 0 offsets 0 to 399, partition 1 offsets 0 to 399, partition 2 offsets 0 to 400"
    assert done.stdout == f"1,201 records copied from orders to within: {where}\n"
    assert records(broker, "within") == records(broker, "orders")


def test_between_clusters(broker: Broker) -> None:
    with Broker({"orders": 3}, settings=KEPT) as other:
        done = ottla(broker, "copy", "orders", "orders", "--to-bootstrap-server", other.bootstrap_servers)
        assert done.exit_code == 0, done.output
        assert records(other, "orders") == records(broker, "orders")


def test_a_part_of_it(broker: Broker) -> None:
    chosen = ("-p", "1,2", "--from", "390", "--until", "395", "--filter", "offset > `392`", "--json")
    done = ottla(broker, "copy", "orders", "part", *chosen, "--rate", "100000")
    assert done.stdout.startswith('{"source": "orders", "target": "part", "records": 4, ')
    assert [each.split()[4] for each in records(broker, "part")] == ["v1180", "v1183", "v1181", "v1184"]
    assert ottla(broker, "copy", "orders", "one", "--any-partition", "--until", "1").exit_code == 0
    assert len(records(broker, "one")) == 3


def test_ctrl_c_says_how_far_it_came(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    poll, polls = Consumer.poll, iter([True] * 2)

    def interrupted(consumer: Any, timeout_ms: int) -> Any:
        if not next(polls, False):
            raise KeyboardInterrupt
        return poll(consumer, timeout_ms)

    monkeypatch.setattr(Consumer, "poll", interrupted)
    done = ottla(broker, "copy", "orders", "interrupted")
    monkeypatch.undo()
    assert (done.exit_code, done.stdout) == (130, "")
    written = len(records(broker, "interrupted"))
    assert 0 < written < 1_201
    assert re.search(rf"interrupted; written: {written:,} records\n", done.stderr)
    assert re.search(r"copied: orders-0 before offset \d+.*; `-p 0 --from \d+` continues partition 0\n$", done.stderr)


def test_new_records_are_followed(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that is written while it waits arrives."""
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        poll, written = Consumer.poll, []

        def idle(consumer: Any, timeout_ms: int) -> Any:
            if records := poll(consumer, timeout_ms):
                return records
            if written:
                raise KeyboardInterrupt
            written.append(producer.send("one", b"later").result(30))
            return records

        monkeypatch.setattr(Consumer, "poll", idle)
        done = ottla(broker, "copy", "one", "followed", "--from", "end", "--follow")
        monkeypatch.undo()
    assert (done.exit_code, "written: 1 record\n" in done.stderr) == (130, True)
    assert [each.split()[3] for each in records(broker, "followed")] == ["null"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("orders orders", "orders would be copied onto itself; name another TARGET_TOPIC"),
        ("orders orders --to-bootstrap-server SAME", "orders would be copied onto itself"),
        ("orders nope", "`ottla topic create nope -p 3 -b "),
        ("nope orders", "topic nope does not exist"),
        ("orders one", "one has 1 partition, and orders is read up to partition 2; `ottla topic alter one -p 3"),
        ("orders within -p 3", "topic orders has no partition 3"),
        ("orders within --filter x", "x is not a field of a record"),
        ("orders within --from tomorrow", "--from tomorrow: expected beginning"),
    ],
)
def test_mistakes(broker: Broker, arguments: str, message: str) -> None:
    same = broker.bootstrap_servers.replace("127.0.0.1", "localhost")
    done = ottla(broker, "copy", *arguments.replace("SAME", same).split())
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
