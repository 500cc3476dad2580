"""`ottla copy` with brokers in this process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.cli import sending
from ottla.client.admin.model import ConfigOperation, ConfigResource
from ottla.client.sync import Admin, Consumer, Producer
from ottla.testing import Broker
from support.command_line import ottla_at

pytestmark = pytest.mark.spec("U2")

TOPICS = {"orders": 3, "within": 3, "one": 1, "followed": 3, "interrupted": 3, "part": 3, "sizes": 2}
TOPICS |= {"large": 2, "middle": 2, "dropped": 2}
#: Of `sizes`: partition 0 has these, partition 1 one of 3 bytes.
SIZES = [3, 3, 3_000, 3, 3, 3]
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
        for size in SIZES:
            producer.send("sizes", b"v" * size, partition=0)
        producer.send("sizes", b"v" * 3, partition=1)
        producer.flush()
        yield broker


def records(broker: Broker, topic: str) -> list[Any]:
    shown = ottla_at(broker, "consume", topic, "-o", "beginning", "-e", "-f", r"%p %o %T %k %s %h %S\n")
    assert shown.exit_code == 0, shown.output
    return sorted(shown.stdout.splitlines())


def test_within_a_cluster(broker: Broker) -> None:
    done = ottla_at(broker, "copy", "orders", "within")
    assert (done.exit_code, done.stderr) == (0, "")
    where = "partition 0 offsets 0 to 399, partition 1 offsets 0 to 399, partition 2 offsets 0 to 400"
    assert done.stdout == f"1,201 records copied from orders to within: {where}\n"
    assert records(broker, "within") == records(broker, "orders")


def test_between_clusters(broker: Broker) -> None:
    with Broker({"orders": 3}, settings=KEPT) as other:
        done = ottla_at(broker, "copy", "orders", "orders", "--to-bootstrap-server", other.bootstrap_servers)
        assert done.exit_code == 0, done.output
        assert records(other, "orders") == records(broker, "orders")


def test_a_target_that_keeps_records_for_less_time(broker: Broker) -> None:
    with Broker({"orders": 3}, settings={"log.retention.ms": 3_600_000}) as other:
        done = ottla_at(broker, "copy", "orders", "orders", "--to-bootstrap-server", other.bootstrap_servers)
    assert (done.exit_code, done.stderr.splitlines()) == (
        0,
        ["ottla copy: orders keeps records for 1h 00m (retention.ms), orders for ever; older ones are deleted from it"],
    )


def test_a_part_of_it(broker: Broker) -> None:
    chosen = ("-p", "1,2", "--from", "390", "--until", "395", "--filter", "offset > `392`", "--json")
    done = ottla_at(broker, "copy", "orders", "part", *chosen, "--rate", "100000")
    assert done.stdout.startswith('{"source": "orders", "target": "part", "records": 4, ')
    assert [each.split()[4] for each in records(broker, "part")] == ["v1180", "v1183", "v1181", "v1184"]
    assert ottla_at(broker, "copy", "orders", "one", "--any-partition", "--until", "1").exit_code == 0
    assert len(records(broker, "one")) == 3


def test_ctrl_c_says_how_far_it_came(broker: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text("max.poll.records=100\n")
    poll, found = Consumer.poll, []

    def interrupted(consumer: Any, timeout_ms: int) -> Any:
        if len(found) == 1:
            raise KeyboardInterrupt
        if records := poll(consumer, timeout_ms):
            found.append(records)
        return records

    monkeypatch.setattr(Consumer, "poll", interrupted)
    done = ottla_at(broker, "copy", "orders", "interrupted", "-p", "0", "--properties", f"{tmp_path}/client.properties")
    monkeypatch.undo()
    assert (done.exit_code, done.stdout) == (130, "")
    assert len(records(broker, "interrupted")) == 100
    assert "interrupted; written: 100 records\n" in done.stderr
    assert done.stderr.endswith("copied: orders-0 before offset 100; `-p 0 --from 100` continues partition 0\n")


def resumed(broker: Broker, topic: str, *arguments: str) -> list[int]:
    """Copy `sizes` so that it fails; returns the offsets at which its partitions are to be continued."""
    done = ottla_at(broker, "copy", "sizes", topic, *arguments)
    assert (done.exit_code, done.stdout) == (130 if "interrupted" in done.stderr else 2, ""), done.output
    (line,) = [each for each in done.stderr.splitlines() if " copied: " in each]
    offsets = [int(each) for each in re.findall(r"sizes-\d before offset (\d+)", line)]
    assert f"`-p 0 --from {offsets[0]}` continues partition 0" in line
    return offsets


def test_a_record_too_large_for_the_producer_is_where_it_is_continued(broker: Broker, tmp_path: Path) -> None:
    (tmp_path / "both.properties").write_text("max.request.size=1000\nmax.poll.records=4\nfetch.max.wait.ms=10\n")
    in_order = [[2, 0], [2, 1]]  # by which partition is read first
    assert resumed(broker, "large", "--properties", str(tmp_path / "both.properties")) in in_order


def test_settings_that_no_client_has_are_one_line(broker: Broker, tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text("linger.ms=1\nnope=1\nneither=1\n")
    done = ottla_at(broker, "copy", "orders", "within", "--properties", f"{tmp_path}/client.properties")
    assert (done.exit_code, "linger.ms" in done.stderr, "\\n" in done.stderr) == (2, False, False)
    assert "several problems: nope is not a known setting of admin clients; " in done.stderr


def test_lists_after_a_refused_one_do_not_count(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The target refuses one of the lists of two; those after it are written before that is known."""
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        limit = ConfigOperation("set", "max.message.bytes", "1000")
        admin.incremental_alter_configs({ConfigResource.topic("middle"): [limit]})
    monkeypatch.setattr(sending, "RATE_SLICES", 5_000)
    monkeypatch.setattr(sending.Sending, "settle_done", lambda _sending: True)
    assert resumed(broker, "middle", "--rate", "10000", "-p", "0") == [2]
    assert len(records(broker, "middle")) == 5


def test_ctrl_c_while_records_are_handed_over(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    send_many = Producer.send_many

    def interrupted(producer: Any, records: list[Any], into: Any) -> None:
        send_many(producer, records[:4] if records[0].partition == 0 else records, into=into)
        if records[0].partition == 0:
            raise KeyboardInterrupt

    monkeypatch.setattr(Producer, "send_many", interrupted)
    assert resumed(broker, "dropped") in [[4, 0], [4, 1]]


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
        done = ottla_at(broker, "copy", "one", "followed", "--from", "end", "--follow")
        monkeypatch.undo()
    assert (done.exit_code, "written: 1 record\n" in done.stderr) == (130, True)
    assert [each.split()[3] for each in records(broker, "followed")] == ["null"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("orders within --follow --until 5", "--follow has no end; leave --until or --follow out"),
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
    done = ottla_at(broker, "copy", *arguments.replace("SAME", same).split())
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
