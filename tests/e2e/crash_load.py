"""Clients that work while the broker is killed under them, and that know what it has promised them."""

from __future__ import annotations

import random
import socket
import threading
import time
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from ottla.records.record import Record
from ottla.wire.errors import ErrorCode
from support.framed_socket import Disconnected
from support.ports import LOOPBACK
from support.raw_client import RawClient, batch_of

TOPIC = "load"
PARTITIONS = 3
GROUP = "load-group"

#: How long a load waits before it tries a dead broker again.
RETRY_S = 0.02
#: How long the broker may take to answer, recovery included.
ANSWER_S = 30.0
#: Errors that a client meets while the broker starts, and asks again after.
PASSING = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)


def lasting_port() -> int:
    """A free port that clients do not get for their own ends, so that it stays free while the broker is down."""
    chance = random.SystemRandom()
    while True:
        port = chance.randrange(20_000, 32_000)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return port


class Load(threading.Thread):
    """A client in a thread of its own; `acknowledged` counts what it was promised so far."""

    def __init__(self, name: str, port: int) -> None:
        super().__init__(name=name, daemon=True)
        self.port = port
        self.acknowledged = 0
        #: What must never have happened.
        self.problems: list[str] = []
        self._stop_asked = threading.Event()

    @property
    def stopping(self) -> bool:
        return self._stop_asked.is_set()

    def run(self) -> None:
        try:
            self.work()
        except Exception as error:
            self.problems.append(f"{self.name} died: {error!r}")
            raise

    @abstractmethod
    def work(self) -> None:
        """Go on until asked to stop."""

    def stop(self) -> None:
        """Stop when what is under way is done."""
        self._stop_asked.set()
        self.join(ANSWER_S + 10)
        assert not self.is_alive(), f"{self.name} does not stop"
        assert not self.problems, self.problems


class RawLoad(Load):
    """A load over one plain connection: what is not answered when the broker dies is in doubt and not repeated."""

    def work(self) -> None:
        while not self.stopping:
            try:
                with RawClient(self.port, timeout_s=ANSWER_S, client_id=self.name) as client:
                    while not self.stopping:
                        self.step(client)
            except Disconnected:
                time.sleep(RETRY_S)  # sleep: between attempts at a dead broker
            except TimeoutError:
                self.problems.append(f"{self.name}: no answer within {ANSWER_S:g} s")
                return

    @abstractmethod
    def step(self, client: RawClient) -> None:
        """One request and its answer."""


class PlainProducer(RawLoad):
    """acks=1, no retries: every acknowledged record must be at its offset, the others may be there or not."""

    def __init__(self, name: str, port: int, seed: int) -> None:
        super().__init__(name, port)
        self._random = random.Random(seed)
        self._next = 0
        #: (partition, offset) of each acknowledged value.
        self.places: dict[bytes, tuple[int, int]] = {}

    def step(self, client: RawClient) -> None:
        count = self._random.randint(1, 20)
        size = self._random.choice((0, 100, 2000))
        values = [value_of(self.name, self._next + at, size) for at in range(count)]
        self._next += count
        partition = self._random.randrange(PARTITIONS)
        answer = client.produce(TOPIC, partition, batch_of(*values))
        if answer.error_code:
            self.problems.append(f"{self.name}: produce refused with {error_name(answer.error_code)}")
        for at, value in enumerate(values):
            self.places[value] = (partition, answer.base_offset + at)
        self.acknowledged += count


class Committer(RawLoad):
    """Commits growing offsets for a group."""

    def __init__(self, name: str, port: int) -> None:
        super().__init__(name, port)
        self.attempted = 0
        self.committed = 0

    def step(self, client: RawClient) -> None:
        self.attempted += 1
        error = client.commit(GROUP, TOPIC, 0, self.attempted)
        if error == 0:
            self.committed = self.attempted
            self.acknowledged += 1
        elif error not in PASSING:
            self.problems.append(f"{self.name}: commit refused with {error_name(error)}")
        if error:
            time.sleep(RETRY_S)  # sleep: between attempts at a broker that starts


class TopicMaker(RawLoad):
    """Makes topics and deletes every other one of them."""

    def __init__(self, name: str, port: int) -> None:
        super().__init__(name, port)
        self._number = 0
        self.made: set[str] = set()
        self.deleted: set[str] = set()

    def step(self, client: RawClient) -> None:
        topic = f"made-{self._number:04d}"
        self._number += 1
        # A request that was cut off by the kill leaves its topic in doubt; it is in neither set.
        error = client.create_topic(topic, 2)
        if error:
            self.problems.append(f"{self.name}: {topic} refused with {error_name(error)}")
        self.made.add(topic)
        self.acknowledged += 1
        if self._number % 2:
            self.made.discard(topic)
            error = client.delete_topic(topic)
            if error:
                self.problems.append(f"{self.name}: deleting {topic} refused with {error_name(error)}")
            self.deleted.add(topic)
        self._stop_asked.wait(0.05)


class IdempotentProducer(Load):
    """confluent-kafka with acks=all and idempotence: every record arrives once, in order, whatever happens."""

    #: Records that wait for their acknowledgement at most.
    WINDOW = 2000

    def __init__(self, name: str, port: int, codec: str) -> None:
        super().__init__(name, port)
        self._settings = {
            "bootstrap.servers": f"{LOOPBACK}:{port}",
            "client.id": name,
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 2,
            # Never give up: what cannot be sent now is sent later.
            "message.timeout.ms": 0,
            "retry.backoff.ms": 20,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "error_cb": self._on_error,
            "log_level": 0,
        }
        self.places: dict[bytes, tuple[int, int]] = {}
        self.sent = 0

    def work(self) -> None:
        producer = Producer(self._settings)
        while not self.stopping:
            if self.sent - self.acknowledged < self.WINDOW:
                value = value_of(self.name, self.sent, 100)
                producer.produce(TOPIC, value, partition=self.sent % PARTITIONS, on_delivery=self._delivered)
                self.sent += 1
                producer.poll(0)
            else:
                producer.poll(0.01)
        left = producer.flush(ANSWER_S)
        if left:
            self.problems.append(f"{self.name}: {left} records were never acknowledged")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.problems.append(f"{self.name}: {error}")
            return
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert value is not None
        assert partition is not None
        assert offset is not None
        self.places[bytes(value)] = (partition, offset)
        self.acknowledged += 1

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.problems.append(f"{self.name}: fatal: {error}")


class Reader(Load):
    """A consumer that follows all partitions: what it was shown must stay, at the same offsets."""

    def __init__(self, name: str, port: int) -> None:
        super().__init__(name, port)
        self.seen: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}

    def work(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": f"{LOOPBACK}:{self.port}",
                "client.id": self.name,
                "group.id": self.name,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.wait.max.ms": 50,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        try:
            while not self.stopping:
                for message in consumer.consume(500, 0.1):
                    self._take(message)
        except KafkaException as error:
            self.problems.append(f"{self.name}: {error}")
        finally:
            consumer.close()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            # What is not retriable here: an offset out of range, a wrong checksum.
            code = error.code()
            if code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._BAD_MSG):
                self.problems.append(f"{self.name}: {error}")
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        seen = self.seen[partition]
        if offset != len(seen):
            self.problems.append(f"{self.name}: offset {offset} of partition {partition} after {len(seen) - 1}")
        seen.append(bytes(value or b""))
        self.acknowledged += 1


def error_name(code: int) -> str:
    """What Kafka calls an error code."""
    return next((known.name for known in ErrorCode if known == code), str(code))


def value_of(producer: str, number: int, size: int) -> bytes:
    """A value that tells who sent it as which of its records, filled up to about `size` bytes."""
    return f"{producer} {number} ".encode().ljust(size, b".")


def number_of(value: bytes) -> tuple[str, int]:
    """Who sent a value, as which of its records."""
    producer, number, _ = value.split(b" ", 2)
    return producer.decode(), int(number)


@dataclass(frozen=True)
class Log:
    """What is in the topic: the records of each partition from offset 0."""

    partitions: dict[int, list[bytes]]

    @staticmethod
    def read(port: int) -> Log:
        with RawClient(port) as client:
            return Log({p: [_value(record) for record in client.read_all(TOPIC, p)] for p in range(PARTITIONS)})

    def check_order(self) -> None:
        """In each partition the records of each producer stand in the order in which it sent them, none twice."""
        for partition, values in self.partitions.items():
            last: defaultdict[str, int] = defaultdict(lambda: -1)
            for offset, value in enumerate(values):
                producer, number = number_of(value)
                assert number > last[producer], (
                    f"{producer}'s record {number} stands at {partition}/{offset} behind its record {last[producer]}"
                )
                last[producer] = number

    def check_places(self, places: dict[bytes, tuple[int, int]]) -> None:
        """Every acknowledged record is where its producer was told it is."""
        lost = [
            (place, value[:40])
            for value, place in places.items()
            if place[1] >= len(self.partitions[place[0]]) or self.partitions[place[0]][place[1]] != value
        ]
        assert not lost, f"{len(lost)} of {len(places)} acknowledged records are lost, the first: {lost[:3]}"

    def check_once(self, values: Iterable[bytes]) -> None:
        """Each of these is there exactly once."""
        counts = Counter(value for stored in self.partitions.values() for value in stored)
        wrong = [(value[:40], counts[value]) for value in values if counts[value] != 1]
        assert not wrong, f"{len(wrong)} records are not there exactly once, the first: {wrong[:3]}"

    def check_seen(self, seen: dict[int, list[bytes]]) -> None:
        """What a consumer was shown is still there, at the same offsets."""
        for partition, values in seen.items():
            assert self.partitions[partition][: len(values)] == values, f"partition {partition} was rewritten"


def _value(record: Record) -> bytes:
    assert record.value is not None
    return record.value
