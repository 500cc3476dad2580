"""`ottla transaction`: ids listed and described, transactions that hang found and aborted."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.client.admin import AbortTransactionSpec
from ottla.client.errors import BrokerError, InvalidArgumentError, PartlyFailedError
from ottla.client.model import TopicPartition
from ottla.client.sync import Admin, Producer
from ottla.testing import Broker
from ottla.wire.errors import ErrorCode
from support.command_line import ottla_at
from support.hanging_transactions import UNVERIFIED, hang
from support.waiting import wait_until

pytestmark = pytest.mark.spec("X4")

HOUR_MS = 3_600_000
STRANGER = 7_000


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(topics={"t": 3}, settings=UNVERIFIED) as broker:
        yield broker


@pytest.fixture
def open_producer(broker: Broker) -> Iterator[Producer]:
    """It has a transaction open in t-0."""
    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"open", partition=0).result()
        yield producer
        producer.abort_transaction()


def rows(broker: Broker, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
    done = ottla_at(broker, "transaction", *arguments, "--json")
    assert done.exit_code == code, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def port(broker: Broker) -> int:
    return int(broker.bootstrap_servers.rpartition(":")[2])


def hang_for_an_hour(broker: Broker, index: int = 1, producer_id: int = STRANGER, epoch: int = 0) -> None:
    hang(port(broker), "t", index, producer_id, epoch, timestamp_ms=round(time.time() * 1000) - HOUR_MS)


def commit(broker: Broker, name: str) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=name) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("t", b"done", partition=0).result()
    wait_until(lambda: rows(broker, "describe", name)[0]["state"] == "CompleteCommit", "the markers")


def test_ids_are_listed(broker: Broker, open_producer: Producer) -> None:
    commit(broker, "done")
    done, x = rows(broker, "list")
    assert (x["transactional_id"], x["state"], x["coordinator"]) == ("x", "Ongoing", 1)
    assert done["transactional_id"] == "done"
    assert rows(broker, "list", "--state", "ongoing", "--state", "Dead") == [x]
    assert rows(broker, "list", "--producer-id", str(done["producer_id"]))[0]["transactional_id"] == "done"
    assert rows(broker, "list", "--state", "Ongoing", "--open-for", "PT1H") == []
    assert [each["transactional_id"] for each in rows(broker, "list", "--open-for", "PT0S")] == ["done", "x"]
    table = ottla_at(broker, "transaction", "list", "--state", "Ongoing").stdout.splitlines()
    assert table[0].split() == ["TRANSACTIONAL", "ID", "COORDINATOR", "PRODUCER", "STATE"]
    assert table[1].split() == ["x", "1", str(x["producer_id"]), "Ongoing"]
    none = ottla_at(broker, "transaction", "list", "--producer-id", "99999")
    assert (none.exit_code, none.output) == (0, "no transactions\n")
    assert ottla_at(broker, "transaction", "list", "--state", "Open").exit_code == 2
    assert "--open-for '1h' is not a duration" in ottla_at(broker, "transaction", "list", "--open-for", "1h").output


def test_ids_are_described(broker: Broker, open_producer: Producer) -> None:
    (row,) = rows(broker, "describe", "x")
    assert (row["state"], row["timeout_ms"], row["producer_epoch"]) == ("Ongoing", 60_000, 0)
    assert row["partitions"] == [{"topic": "t", "partition": 0}]
    assert row["open_ms"] >= 0
    done = ottla_at(broker, "transaction", "describe", "x", "y")
    assert done.exit_code == 1
    assert "transactional id y: it cannot be described" in done.stderr
    assert done.stdout.splitlines()[1].split()[-1] == "t-0"
    alone = ottla_at(broker, "transaction", "describe", "y")
    assert (alone.exit_code, alone.stdout) == (1, "")
    assert "(TRANSACTIONAL_ID_NOT_FOUND)" in alone.stderr


def test_what_hangs_is_found_and_aborted(broker: Broker, open_producer: Producer) -> None:
    quiet = ottla_at(broker, "transaction", "find-hanging", "--max-transaction-timeout", "0")
    assert (quiet.exit_code, quiet.output) == (0, "no transaction hangs\n")
    hang_for_an_hour(broker)
    commit(broker, "done")
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        known = admin.describe_transactions(["done"])["done"]
    hang_for_an_hour(broker, 2, known.producer_id, known.producer_epoch)
    assert rows(broker, "find-hanging", "--max-transaction-timeout", "61") == []
    stranger, done = rows(broker, "find-hanging", code=1)
    assert [stranger[each] for each in ("topic", "partition", "start_offset", "producer_id")] == ["t", 1, 0, STRANGER]
    assert [stranger[each] for each in ("last_stable_offset", "high_watermark", "transactional_id")] == [0, 1, None]
    assert HOUR_MS <= stranger["age_ms"] < 2 * HOUR_MS
    assert (done["partition"], done["transactional_id"], done["state"]) == (2, "done", "CompleteCommit")
    assert rows(broker, "find-hanging", "t:2", "t:0", code=1)[0]["partition"] == 2
    assert ottla_at(broker, "transaction", "find-hanging", "nowhere").exit_code == 2
    assert ottla_at(broker, "transaction", "find-hanging", "t:7").exit_code == 1
    where = ("abort", "--topic", "t", "--partition", "1")
    shown = ottla_at(broker, "transaction", *where, "--start-offset", "0")
    assert (shown.exit_code, "Caution" in shown.output) == (1, False)
    assert "nothing was changed: --yes does it" in shown.stderr
    assert shown.stdout.splitlines()[1].split()[:4] == ["t", "1", "0", str(STRANGER)]
    assert rows(broker, *where, "--start-offset", "0", code=1)[0]["aborted"] is False
    made = ottla_at(broker, "transaction", *where, "--start-offset", "0", "--yes")
    assert made.stdout.splitlines()[-1] == f"aborted: the transaction of producer {STRANGER} in t-1"
    again = ottla_at(broker, "transaction", *where, "--start-offset", "0", "--yes")
    assert (again.exit_code, "t-1 has no open transaction that begins at 0" in again.stderr) == (1, True)
    epochs = ("--producer-epoch", str(known.producer_epoch), "--coordinator-epoch", "1")
    named = ("abort", "-t", "t", "-p", "2", "--producer-id", str(known.producer_id), *epochs)
    assert rows(broker, *named, "--yes")[0]["aborted"] is True
    assert rows(broker, "find-hanging") == []
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        ends = [TopicPartition("t", each) for each in (1, 2)]
        stable = admin.list_offsets(dict.fromkeys(ends, -1), isolation_level="read_committed")
    assert [stable[each].offset for each in ends] == [2, 2]


def test_one_that_is_at_work_is_shown_with_a_caution(broker: Broker, open_producer: Producer) -> None:
    shown = ottla_at(broker, "transaction", "abort", "-t", "t", "-p", "0", "--start-offset", "0")
    assert "Caution: it does not hang. Transactional id x is Ongoing" in shown.stdout
    assert shown.exit_code == 1
    for wrong in ((), ("--producer-id", "1"), ("--start-offset", "0", "--producer-epoch", "1")):
        failed = ottla_at(broker, "transaction", "abort", "-t", "t", "-p", "0", *wrong)
        assert (failed.exit_code, "give --start-offset, or all of" in failed.stderr) == (2, True)


def test_admin_refuses_what_is_not_there(broker: Broker, open_producer: Producer) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        found = admin.describe_transactions(["x"])["x"]
        with pytest.raises(PartlyFailedError) as partly:
            admin.describe_transactions(["x", "y"])
        assert list(partly.value.values) == ["x"]
        with pytest.raises(InvalidArgumentError, match="knows no state Open"):
            admin.list_transactions(states=["Open"])
        spec = AbortTransactionSpec(TopicPartition("t", 0), found.producer_id, 0, 0)
        with pytest.raises(InvalidArgumentError):
            admin.abort_transaction(spec._replace(producer_epoch=-1))
        hang_for_an_hour(broker, 1, STRANGER, 5)
        stale = AbortTransactionSpec(TopicPartition("t", 1), STRANGER, 4, 0)
        with pytest.raises(BrokerError) as refused:
            admin.abort_transaction(stale)
        assert refused.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
