"""The examples do what they say, and the one that counts exactly once does so whenever it is killed."""

from __future__ import annotations

import random
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer

from interop.clients.topics import create_topic
from support.brokers import RunningBroker
from support.java import PROJECT
from support.processes import ServerProcess, run_tool

EXAMPLES = PROJECT / "examples"
pytestmark = [pytest.mark.slow]

PARTITIONS = 3
ACCOUNTS = 7
BOOKED_PER_ROUND = 400
#: After its first transaction it is killed within this time.
LONGEST_LIFE_S = 0.15
COUNTED_TIMEOUT_S = 90.0


def command(name: str, *arguments: str) -> list[str]:
    return [sys.executable, str(EXAMPLES / name), *arguments]


class Bank:
    """What was booked by the test, and what the program counted."""

    def __init__(self, bootstrap: str, topic: str, database: Path) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap})
        self._topic = topic
        self._database = database
        self._random = random.Random(5)
        self.booked: Counter[str] = Counter()
        self.records = 0

    def book(self, count: int) -> None:
        """More records, on all accounts."""
        for _ in range(count):
            account, amount = f"account-{self._random.randrange(ACCOUNTS)}", self._random.randrange(1, 1000)
            self._producer.produce(self._topic, str(amount), account)
            self.booked[account] += amount
            self.records += 1
        assert self._producer.flush(120) == 0

    def _ask(self, query: str) -> list[tuple[object, ...]]:
        if not self._database.exists():
            return []
        with closing(sqlite3.connect(self._database, timeout=30)) as database:
            try:
                return database.execute(query).fetchall()
            except sqlite3.OperationalError:  # the tables are not made yet
                return []

    def counted(self) -> int:
        """How many records are counted, by the offsets."""
        ((total,),) = self._ask("SELECT SUM(next) FROM offsets") or [(0,)]
        return int(str(total or 0))

    def sums(self) -> dict[object, object]:
        """The sums of the accounts."""
        return dict(self._ask("SELECT account, amount FROM sums"))  # type: ignore[arg-type]


@pytest.fixture
def bank(broker: RunningBroker, unique: str, tmp_path: Path) -> Iterator[Bank]:
    create_topic(broker.bootstrap, unique, PARTITIONS)
    return Bank(broker.bootstrap, unique, tmp_path / "bookings.db")


def check_exactly_once(bank: Bank, broker: RunningBroker, topic: str, folder: Path, kills: int) -> None:
    """Kill the program so often in the midst of its work, let it finish, and compare."""
    chance = random.Random(kills)
    arguments = [broker.bootstrap, topic, str(folder / "bookings.db"), "--group", topic, "--name", "the-one"]
    run = command("exactly_once_sqlite.py", *arguments)
    for number in range(kills):
        bank.book(BOOKED_PER_ROUND)
        counted = bank.counted()
        process = ServerProcess(f"bookings-{number}", run, folder)
        process.wait_until_ready(lambda: bank.counted() > counted, COUNTED_TIMEOUT_S)  # noqa: B023
        time.sleep(chance.uniform(0.0, LONGEST_LIFE_S))  # sleep: killed at a random moment
        process.kill9()
    bank.book(1)
    process = ServerProcess("bookings-last", run, folder)
    try:
        process.wait_until_ready(lambda: bank.counted() >= bank.records, COUNTED_TIMEOUT_S)
    finally:
        process.kill9()
    assert bank.counted() == bank.records
    assert bank.sums() == dict(bank.booked)


@pytest.mark.spec("C4")
def test_exactly_once_though_killed_at_random(bank: Bank, broker: RunningBroker, unique: str, tmp_path: Path) -> None:
    check_exactly_once(bank, broker, unique, tmp_path, kills=5)


@pytest.mark.long
@pytest.mark.spec("C4")
@pytest.mark.timeout(900)
def test_exactly_once_though_killed_a_hundred_times(
    bank: Bank, broker: RunningBroker, unique: str, tmp_path: Path
) -> None:
    check_exactly_once(bank, broker, unique, tmp_path, kills=100)


@pytest.mark.spec("C8")
def test_a_join_of_two_topics_in_one_task(broker: RunningBroker, unique: str) -> None:
    orders, payments = create_topic(broker.bootstrap, f"{unique}-o", 2), create_topic(broker.bootstrap, f"{unique}-p")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(20):
        producer.produce(orders, f"order of {number}", str(number))
        producer.produce(payments, f"payment of {19 - number}", str(19 - number))
    producer.produce(orders, "never paid", "20")
    assert producer.flush(120) == 0
    told = run_tool(command("join_two_topics.py", broker.bootstrap, orders, payments, "--count", "20")).stdout
    assert sorted(told.splitlines()) == sorted(f"{one}: order of {one}, payment of {one}" for one in range(20))


def test_the_first_steps(broker: RunningBroker, unique: str) -> None:
    topic = create_topic(broker.bootstrap, unique, 1)
    sent = run_tool(command("produce.py", broker.bootstrap, topic)).stdout
    assert sent.splitlines() == [f"{topic}-0 @ {offset}" for offset in range(6)]
    read = run_tool(command("consume.py", broker.bootstrap, topic)).stdout
    pairs = [(f"user {number % 3}".encode(), b"page %d" % number) for number in range(6)]
    assert read.splitlines() == [f"{topic}-0 @ {at}: {key!r} {value!r}" for at, (key, value) in enumerate(pairs)]


def test_arrow_to_pandas(broker: RunningBroker, unique: str) -> None:
    topic = create_topic(broker.bootstrap, unique, 1)
    run_tool(command("produce.py", broker.bootstrap, topic))
    frame = run_tool(command("to_pandas.py", broker.bootstrap, topic)).stdout.splitlines()
    assert frame[0].split() == ["partition", "offset", "key", "value"]
    assert [line.split()[:2] for line in frame[1:]] == [["0", str(offset)] for offset in range(6)]
