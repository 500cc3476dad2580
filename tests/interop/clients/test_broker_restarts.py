"""A broker that is stopped or killed and comes back, under the hands of a producer and a group's consumer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interop.clients.conftest import SETTINGS
from interop.clients.topics import committed, create_topic, values_of
from support.apache import ApacheZooKeeper
from support.client_facades import Facade
from support.proxied import ProxiedBroker
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.spec("P5", "C1", "G10")]

PARTITIONS = 2
RESTARTS = 2
#: Records acknowledged between the restarts.
BETWEEN = 500
WAIT_S = 60.0
PRODUCER = {"linger.ms": 1, "request.timeout.ms": 3000, "delivery.timeout.ms": 120_000, "buffer.memory": 200_000}
CONSUMER = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "request.timeout.ms": 3000,
    "session.timeout.ms": 45_000,
    "heartbeat.interval.ms": 200,
    "reconnect.backoff.max.ms": 200,
}


@pytest.fixture(params=["ottla", pytest.param("apache", marks=[pytest.mark.needs_kafka, pytest.mark.long])])
def own_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ProxiedBroker]:
    """A broker of the test's own."""
    zookeeper: ApacheZooKeeper | None = None
    if request.param == "apache":
        zookeeper = request.getfixturevalue("apache_zookeeper")
    broker = ProxiedBroker(tmp_path / "broker", zookeeper, settings=SETTINGS)
    try:
        yield broker.start()
    finally:
        broker.close()


class Load:
    """Sends numbers in turn to the partitions until it is stopped, and counts what is acknowledged."""

    def __init__(self, producer: Any, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sent = 0
        self.acknowledged = 0
        self.errors: list[Exception] = []
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._producer.send(self._topic, b"%d" % self.sent, partition=self.sent % PARTITIONS, callback=self._told)
            self.sent += 1
            if self.sent % 20 == 0:
                self._stopped.wait(0.005)

    def _told(self, metadata: Any, error: Exception | None) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.errors.append(error)

    def stop(self) -> None:
        """End, with everything acknowledged."""
        self._stopped.set()
        self._thread.join(WAIT_S)
        self._producer.flush()


@pytest.mark.parametrize(
    ("ending", "facade"),
    [
        ("stop", "asyncio"),
        ("kill9", "sync"),
        pytest.param("stop", "sync", marks=pytest.mark.long),
        pytest.param("kill9", "asyncio", marks=pytest.mark.long),
    ],
    indirect=["facade"],
)
def test_nothing_is_lost_doubled_or_out_of_order(
    own_broker: ProxiedBroker, facade: Facade, unique: str, ending: str
) -> None:
    topic = create_topic(own_broker.direct, unique, PARTITIONS)
    read: list[list[int]] = [[] for _ in range(PARTITIONS)]
    settings = {**CONSUMER, "bootstrap.servers": own_broker.bootstrap, "group.id": unique}
    with (
        facade.producer({**PRODUCER, "bootstrap.servers": own_broker.bootstrap}) as producer,
        facade.consumer(settings) as consumer,
    ):
        consumer.subscribe([topic])
        load = Load(producer, topic)

        def poll() -> int:
            for record in consumer.poll(50):
                read[record.partition].append(int(record.value))
            return sum(map(len, read))

        try:
            for _ in range(RESTARTS):
                enough = load.acknowledged + BETWEEN
                wait_until(lambda: poll() >= enough, lambda: f"{enough} of {load.sent}: {load.errors}", WAIT_S)  # noqa: B023
                getattr(own_broker, ending)()
                poll()
                own_broker.start()
        finally:
            load.stop()
        wait_until(lambda: poll() >= load.sent, lambda: f"{load.sent} records read, not {poll()}", WAIT_S)
        consumer.commit()
    assert load.errors == []
    assert load.acknowledged == load.sent
    for partition in range(PARTITIONS):
        sent = list(range(partition, load.sent, PARTITIONS))
        assert [int(value or b"") for value in values_of(own_broker.direct, topic, partition)] == sent
        assert read[partition] == sent
    ends = {one: len(range(one, load.sent, PARTITIONS)) for one in range(PARTITIONS)}
    assert committed(own_broker.direct, unique, topic, PARTITIONS) == ends
