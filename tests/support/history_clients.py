"""Clients that keep a cluster busy while it fails, and write down what they see, for `support.cluster_history`."""

from __future__ import annotations

import logging
import threading
import time
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import TimeoutError as LateError
from functools import partial
from typing import Any

from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as LibrdkafkaProducer
from confluent_kafka import TopicPartition as LibrdkafkaPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.client.consumer.listener import ConsumerRebalanceListener
from ottla.client.errors import ClientError
from ottla.client.model import TopicPartition
from ottla.client.sync import Client, Consumer, Producer
from support.cluster_history import (
    UNKNOWN_OFFSET,
    Acknowledged,
    CommitSeen,
    Committed,
    EndSeen,
    Event,
    GaveUp,
    Place,
    Positioned,
    Producing,
    Read,
    RecordSent,
    Took,
    Value,
)
from support.librdkafka_threads import MainThread, with_main_thread

#: Records of a producer that wait for their acknowledgement at most.
WINDOW = 300
#: Records that a producer sends at once, and how long it waits then.
BURST, BURST_PAUSE_S = 6, 0.02
#: A request that takes longer has failed.
REQUEST_TIMEOUT_MS = 2500
#: No member dies; on a busy machine one may be silent for a while.
GROUP_SESSION_MS = 30_000
#: Longer than librdkafka waits for an answer.
COMMIT_TIMEOUT_S = 15.0
OBSERVE_PAUSE_S = 0.25
POLL_S = 0.1
CHURN_PAUSE_S, CHURN_TIMEOUT_S = 0.5, 5.0
FLUSH_TIMEOUT_S = 120.0
JOIN_TIMEOUT_S = 150.0

#: What librdkafka's log says of requests that failed, by the names of its facilities.
FAILURES = ("REQTMOUT", "FAIL", "TIMEOUT")


class RecordedHistory:
    """Events of all clients in the order of time, and requests that failed."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.acknowledged = 0
        #: When, and what the client said.
        self.failures: list[tuple[float, str]] = []
        #: What went wrong in the clients themselves.
        self.problems: list[str] = []
        self.owners: dict[tuple[str, Place], set[str]] = defaultdict(set)
        self.read_to: dict[tuple[str, Place], int] = defaultdict(int)
        self.acknowledged_to: dict[Place, int] = defaultdict(int)
        #: When the last accepted commit began.
        self.committed_s: dict[tuple[str, Place], float] = defaultdict(float)
        self._lock = threading.Lock()

    def add(self, make: Callable[[float], Event]) -> None:
        """Add what `make` gives for the present time."""
        with self._lock:
            event = make(time.monotonic())
            self.events.append(event)
            match event:
                case Acknowledged():
                    self.acknowledged += 1
                    self.acknowledged_to[event.place] = max(self.acknowledged_to[event.place], event.offset + 1)
                case Took():
                    for place in event.places:
                        self.owners[event.group, place].add(event.member)
                case GaveUp():
                    for key, owners in self.owners.items():
                        if key[0] == event.group and (event.places is None or key[1] in event.places):
                            owners.discard(event.member)
                case Committed() | Read():
                    who = event.group if isinstance(event, Committed) else event.consumer
                    end = event.offset if isinstance(event, Committed) else event.offset + 1
                    self.read_to[who, event.place] = max(self.read_to[who, event.place], end)
                    if isinstance(event, Committed):
                        self.committed_s[event.group, event.place] = event.began_s

    def failed(self, what: str) -> None:
        """A request failed."""
        self.failures.append((time.monotonic(), what))

    def settled(self, group: str, places: Sequence[Place], members: int, since_s: float) -> bool:
        """Whether each partition has one owner, each member has some, and commits were accepted for all since then.

        Without the commits a member might own what it has lost without knowing it yet.
        """
        owners = [self.owners[group, place] for place in places]
        return (
            all(len(each) == 1 for each in owners)
            and len(set().union(*owners)) == members
            and all(self.committed_s[group, place] > since_s for place in places)
        )


class HistoryClient(threading.Thread):
    """A client in a thread of its own."""

    def __init__(self, name: str, history: RecordedHistory, bootstrap: str, places: Sequence[Place]) -> None:
        super().__init__(name=name, daemon=True)
        self.history = history
        self.bootstrap = bootstrap
        self.places = tuple(places)
        self.ending = threading.Event()

    def run(self) -> None:
        """Work until asked to end; an exception is a problem of the history."""
        try:
            self.work()
        except Exception as error:  # whatever it is, the run has to know
            self.history.problems.append(f"{self.name} died: {error!r}")
            raise

    def end(self) -> None:
        """Ask it to end."""
        self.ending.set()

    @abstractmethod
    def work(self) -> None:
        """Go on until `ending` is set."""

    def wait(self) -> None:
        """Until it has ended."""
        self.join(JOIN_TIMEOUT_S)
        if self.is_alive():
            self.history.problems.append(f"{self.name} does not end")


class LibrdkafkaReader(HistoryClient):
    """A consumer of librdkafka that reads partitions, for which a new one can stand in."""

    def __init__(self, name: str, history: RecordedHistory, bootstrap: str, places: Sequence[Place]) -> None:
        super().__init__(name, history, bootstrap, places)
        self._main_thread: MainThread | None = None

    def consumer(self, settings: dict[str, Any]) -> LibrdkafkaConsumer:
        """Make the consumer."""
        log = librdkafka_log(self.history, self.name)
        made, self._main_thread = with_main_thread(lambda: LibrdkafkaConsumer(settings, logger=log))
        return made

    def is_deadlocked(self) -> bool:
        """See `MainThread`."""
        return self._main_thread is not None and self._main_thread.is_deadlocked()

    @abstractmethod
    def replaced(self) -> LibrdkafkaReader:
        """Another one, not started yet, that takes the place of this one, which says nothing any more."""


class _LogOfFailures(logging.Handler):
    """Takes in what librdkafka logs: requests that timed out, connections that were lost."""

    def __init__(self, history: RecordedHistory) -> None:
        super().__init__()
        self._history = history

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        said = record.getMessage()
        if any(said.startswith(word) for word in FAILURES):
            self._history.failed(said)


def librdkafka_log(history: RecordedHistory, name: str) -> logging.Logger:
    """A log for a client of librdkafka, which nobody sees."""
    log = logging.getLogger(f"history.{name}.{id(history)}")
    log.propagate = False
    log.addHandler(_LogOfFailures(history))
    return log


def librdkafka_settings(name: str, bootstrap: str, **more: Any) -> dict[str, Any]:
    """What all clients of librdkafka have: they notice soon, and try again soon."""
    return {
        "bootstrap.servers": bootstrap,
        "client.id": name,
        "socket.timeout.ms": REQUEST_TIMEOUT_MS,
        "topic.metadata.refresh.interval.ms": 5000,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 500,
        "log.connection.close": False,
        **more,
    }


def value_bytes(producer: str, number: int) -> bytes:
    """A record's value, which tells who sent it as which of its records."""
    return f"{producer}#{number}".encode()


def value_of(data: bytes | None) -> Value:
    """The producer and its number of a record's value."""
    producer, _, number = (data or b"").decode().partition("#")
    return producer, int(number)


class LibrdkafkaHistoryProducer(HistoryClient):
    """confluent-kafka, idempotent, acks=all."""

    def work(self) -> None:
        """See `HistoryClient`."""
        self.history.add(partial(Producing, producer=self.name))
        settings = librdkafka_settings(
            self.name,
            self.bootstrap,
            **{
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 0,
                "request.timeout.ms": REQUEST_TIMEOUT_MS,
            },
        )
        log = librdkafka_log(self.history, self.name)
        producer, _ = with_main_thread(lambda: LibrdkafkaProducer(settings, logger=log))
        number = 0
        while not self.ending.is_set():
            if len(producer) < WINDOW:
                for _ in range(BURST):
                    place = self.places[number % len(self.places)]
                    self.history.add(partial(RecordSent, producer=self.name, place=place, number=number))
                    producer.produce(
                        place[0],
                        value_bytes(self.name, number),
                        key=self.name,
                        partition=place[1],
                        on_delivery=partial(self._delivered, place, number),
                    )
                    number += 1
            producer.poll(BURST_PAUSE_S)
            self.ending.wait(BURST_PAUSE_S)
        left = producer.flush(FLUSH_TIMEOUT_S)
        if left:
            self.history.problems.append(f"{self.name}: {left} records were never acknowledged")

    def _delivered(self, place: Place, number: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.history.problems.append(f"{self.name}: {place} #{number}: {error}")
            return
        # librdkafka takes a batch for acknowledged whose own answer it lost, once a later one is.
        known = message.offset()
        offset = UNKNOWN_OFFSET if known is None else known
        self.history.add(partial(Acknowledged, producer=self.name, place=place, number=number, offset=offset))


class OurHistoryProducer(HistoryClient):
    """ottla's own client, idempotent, acks=all."""

    def work(self) -> None:
        """See `HistoryClient`."""
        self.history.add(partial(Producing, producer=self.name))
        window = threading.Semaphore(WINDOW)
        number = 0
        with Producer(
            bootstrap_servers=self.bootstrap,
            client_id=self.name,
            acks="all",
            enable_idempotence=True,
            linger_ms=5,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            delivery_timeout_ms=3_600_000,
            metadata_max_age_ms=5000,
        ) as producer:
            while not self.ending.is_set():
                for _ in range(BURST):
                    if not window.acquire(timeout=POLL_S):
                        break
                    place = self.places[number % len(self.places)]
                    self.history.add(partial(RecordSent, producer=self.name, place=place, number=number))
                    producer.send(
                        place[0],
                        value_bytes(self.name, number),
                        self.name.encode(),
                        place[1],
                        callback=partial(self._delivered, window, place, number),
                    )
                    number += 1
                self.ending.wait(2 * BURST_PAUSE_S)
            producer.flush(int(FLUSH_TIMEOUT_S * 1000))

    def _delivered(
        self, window: threading.Semaphore, place: Place, number: int, metadata: Any, error: Exception | None
    ) -> None:
        window.release()
        if error is not None:
            self.history.problems.append(f"{self.name}: {place} #{number}: {error!r}")
            return
        offset = metadata.offset
        self.history.add(partial(Acknowledged, producer=self.name, place=place, number=number, offset=offset))


class HistoryReader(LibrdkafkaReader):
    """confluent-kafka reads all partitions from the first record to the last."""

    def work(self) -> None:
        """See `HistoryClient`."""
        settings = librdkafka_settings(
            self.name,
            self.bootstrap,
            **{
                "group.id": self.name,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.wait.max.ms": 100,
                "fetch.error.backoff.ms": 50,
            },
        )
        consumer = self.consumer(settings)
        for place in self.places:
            self.history.add(partial(Positioned, consumer=self.name, place=place, offset=0))
        consumer.assign([LibrdkafkaPartition(*place, 0) for place in self.places])
        while not self.ending.is_set():
            for message in consumer.consume(500, POLL_S):
                error = message.error()
                if error is not None and error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError._BAD_MSG):
                    self.history.problems.append(f"{self.name}: {error}")
                if error is None:
                    record_read(self.history, self.name, message)
        consumer.close()

    def replaced(self) -> HistoryReader:
        """See `LibrdkafkaReader`: it reads everything again."""
        return HistoryReader(f"{self.name}+", self.history, self.bootstrap, self.places)


def record_read(history: RecordedHistory, consumer: str, message: Message) -> Place:
    """Write down a record that librdkafka brought."""
    topic, number, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert number is not None
    assert offset is not None
    place, value = (topic, number), value_of(message.value())
    history.add(partial(Read, consumer=consumer, place=place, offset=offset, value=value))
    return place


class HistoryMember(HistoryClient):
    """A member of a group; each assignment reads under a name of its own, since it begins where the last commit is."""

    def __init__(
        self, name: str, group: str, history: RecordedHistory, bootstrap: str, places: Sequence[Place]
    ) -> None:
        super().__init__(name, history, bootstrap, places)
        self.group = group
        self._assignments = 0

    @property
    def reads_as(self) -> str:
        """The consumer's name in the history."""
        return f"{self.name}/{self._assignments}"

    def took(self, places: Iterable[Place]) -> None:
        """It was assigned these."""
        self._assignments += 1
        self.history.add(partial(Took, group=self.group, member=self.name, places=tuple(places)))

    def gave_up(self, places: Iterable[Place] | None) -> None:
        """They were revoked or lost; None: all."""
        gone = None if places is None else tuple(places)
        self.history.add(partial(GaveUp, group=self.group, member=self.name, places=gone))

    def committed(self, place: Place, offset: int, began_s: float) -> None:
        """A commit was acknowledged."""
        self.history.add(partial(Committed, group=self.group, place=place, offset=offset, began_s=began_s))


class OurHistoryMember(HistoryMember, ConsumerRebalanceListener):
    """ottla's own consumer."""

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """See `ConsumerRebalanceListener`."""
        self.took((each.topic, each.partition) for each in partitions)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """See `ConsumerRebalanceListener`."""
        self.gave_up((each.topic, each.partition) for each in partitions)

    def work(self) -> None:
        """See `HistoryClient`."""
        with Consumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            client_id=self.name,
            session_timeout_ms=GROUP_SESSION_MS,
            heartbeat_interval_ms=500,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=100,
            metadata_max_age_ms=5000,
            request_timeout_ms=2 * REQUEST_TIMEOUT_MS,
            default_api_timeout_ms=2 * REQUEST_TIMEOUT_MS,
        ) as consumer:
            consumer.subscribe(sorted({topic for topic, _ in self.places}), self)
            while not self.ending.is_set():
                try:
                    self._round(consumer)
                except ClientError as error:
                    self.history.failed(f"{self.name}: {error!r}")
        self.gave_up(None)

    def _round(self, consumer: Consumer[bytes, bytes]) -> None:
        records = consumer.poll(int(POLL_S * 1000))
        ends: dict[TopicPartition, int] = {}
        for record in records:
            place = record.topic, record.partition
            value = value_of(record.value)
            self.history.add(partial(Read, consumer=self.reads_as, place=place, offset=record.offset, value=value))
            ends[TopicPartition(*place)] = record.offset + 1
        if ends:
            began_s = time.monotonic()
            consumer.commit(ends)
            for partition, offset in ends.items():
                self.committed((partition.topic, partition.partition), offset, began_s)


class LibrdkafkaHistoryMember(HistoryMember, LibrdkafkaReader):
    """confluent-kafka's consumer. It has one commit on its way, and does not wait for it: one that waited hung.

    One that has no answer for `COMMIT_TIMEOUT_S` while its coordinator is dead may still be done, after a later one.
    """

    def __init__(
        self, name: str, group: str, history: RecordedHistory, bootstrap: str, places: Sequence[Place]
    ) -> None:
        super().__init__(name, group, history, bootstrap, places)
        #: The commits that have no answer: when they began, and their offsets.
        self._on_their_way: list[tuple[float, dict[Place, int]]] = []
        #: What is to be committed.
        self._ends: dict[Place, int] = {}

    def work(self) -> None:
        """See `HistoryClient`."""
        settings = librdkafka_settings(
            self.name,
            self.bootstrap,
            **{
                "group.id": self.group,
                "enable.auto.commit": False,
                "on_commit": self._on_commit,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": GROUP_SESSION_MS,
                "heartbeat.interval.ms": 500,
                "fetch.wait.max.ms": 100,
                "fetch.error.backoff.ms": 50,
            },
        )
        consumer = self.consumer(settings)
        consumer.subscribe(
            sorted({topic for topic, _ in self.places}), on_assign=self._on_assign, on_revoke=self._on_revoke
        )
        while not self.ending.is_set():
            self._round(consumer)
        consumer.close()
        self.gave_up(None)

    def replaced(self) -> LibrdkafkaHistoryMember:
        """See `LibrdkafkaReader`: the coordinator has expelled this one, or will."""
        self.gave_up(None)
        return LibrdkafkaHistoryMember(f"{self.name}+", self.group, self.history, self.bootstrap, self.places)

    def _on_assign(self, _: object, partitions: list[LibrdkafkaPartition]) -> None:
        self.took((each.topic, each.partition) for each in partitions)

    def _on_revoke(self, _: object, partitions: list[LibrdkafkaPartition]) -> None:
        self._ends.clear()
        self.gave_up((each.topic, each.partition) for each in partitions)

    def _round(self, consumer: LibrdkafkaConsumer) -> None:
        for message in consumer.consume(500, POLL_S):
            if message.error() is None:
                place = record_read(self.history, self.reads_as, message)
                self._ends[place] = (message.offset() or 0) + 1
        now_s = time.monotonic()
        is_one_on_its_way = bool(self._on_their_way) and now_s < self._on_their_way[-1][0] + COMMIT_TIMEOUT_S
        if is_one_on_its_way or not self._ends:
            return
        ends, self._ends = self._ends, {}
        self._on_their_way.append((now_s, ends))
        try:
            offsets = [LibrdkafkaPartition(*place, offset) for place, offset in ends.items()]
            consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as refused:
            self._on_their_way.pop()
            self.history.failed(f"{self.name}: commit: {refused}")

    def _on_commit(self, error: KafkaError | None, partitions: list[LibrdkafkaPartition]) -> None:
        began_s = self._begun({(each.topic, each.partition): each.offset for each in partitions})
        if error is not None:
            self.history.failed(f"{self.name}: commit: {error}")
            return
        for each in partitions:
            if each.error is None:
                self.committed((each.topic, each.partition), each.offset, began_s)

    def _begun(self, ends: dict[Place, int]) -> float:
        """When the commit of these offsets began; it has its answer now."""
        found = next(each for each in self._on_their_way if each[1] == ends)
        self._on_their_way.remove(found)
        return found[0]


class OurObserver(HistoryClient):
    """Asks for end offsets and for commits, with ottla's own client."""

    def __init__(
        self, name: str, history: RecordedHistory, bootstrap: str, places: Sequence[Place], groups: Sequence[str]
    ) -> None:
        super().__init__(name, history, bootstrap, places)
        self._groups = groups

    def work(self) -> None:
        """See `HistoryClient`."""
        partitions = [TopicPartition(*place) for place in self.places]
        settings = {"request_timeout_ms": REQUEST_TIMEOUT_MS, "metadata_max_age_ms": 5000}
        with (
            Consumer(bootstrap_servers=self.bootstrap, client_id=self.name, **settings) as consumer,
            Client(self.bootstrap, self.name) as client,
        ):
            while not self.ending.wait(OBSERVE_PAUSE_S):
                self._try(lambda: self._ends(consumer, partitions))
                for group in self._groups:
                    self._try(partial(self._commits, client, group, partitions))

    def _try(self, look: Callable[[], None]) -> None:
        try:
            look()
        except ClientError as error:
            self.history.failed(f"{self.name}: {error!r}")

    def _ends(self, consumer: Consumer[bytes, bytes], partitions: list[TopicPartition]) -> None:
        for each in partitions:
            began_s = time.monotonic()
            end = consumer.end_offsets([each], timeout_ms=2 * REQUEST_TIMEOUT_MS)[each]
            place = each.topic, each.partition
            self.history.add(partial(EndSeen, observer=self.name, place=place, offset=end, began_s=began_s))

    def _commits(self, client: Client, group: str, partitions: list[TopicPartition]) -> None:
        began_s = time.monotonic()
        for each, offset in client.committed(group, partitions).items():
            place = each.topic, each.partition
            self.history.add(
                partial(CommitSeen, group=group, place=place, offset=offset, began_s=began_s, observer=self.name)
            )


class LibrdkafkaObserver(HistoryClient):
    """Asks for end offsets, with confluent-kafka."""

    def work(self) -> None:
        """See `HistoryClient`."""
        settings = librdkafka_settings(self.name, self.bootstrap, **{"group.id": self.name})
        log = librdkafka_log(self.history, self.name)
        consumer, _ = with_main_thread(lambda: LibrdkafkaConsumer(settings, logger=log))
        while not self.ending.wait(OBSERVE_PAUSE_S):
            for place in self.places:
                began_s = time.monotonic()
                try:
                    _, end = consumer.get_watermark_offsets(LibrdkafkaPartition(*place), REQUEST_TIMEOUT_MS / 1000)
                except KafkaException as error:
                    self.history.failed(f"{self.name}: {error}")
                    continue
                self.history.add(partial(EndSeen, observer=self.name, place=place, offset=end, began_s=began_s))
        consumer.close()


class TopicChurn(HistoryClient):
    """Makes topics and deletes most of them; in the end `wrong` names what is there or not against an answer."""

    def __init__(self, name: str, history: RecordedHistory, bootstrap: str, places: Sequence[Place]) -> None:
        super().__init__(name, history, bootstrap, places)
        self.made: set[str] = set()
        self.deleted: set[str] = set()
        settings = librdkafka_settings(name, bootstrap)
        self._admin = AdminClient(settings, logger=librdkafka_log(history, name))

    def work(self) -> None:
        """See `HistoryClient`."""
        number = 0
        while not self.ending.wait(CHURN_PAUSE_S):
            topic = f"{self.name}-{number:04d}"
            number += 1
            if self._is_done(self._admin.create_topics([NewTopic(topic, 2, 3)], request_timeout=CHURN_TIMEOUT_S)):
                self.made.add(topic)
                if number % 3:
                    self.made.discard(topic)
                    if self._is_done(self._admin.delete_topics([topic], request_timeout=CHURN_TIMEOUT_S)):
                        self.deleted.add(topic)

    def _is_done(self, futures: dict[str, Any]) -> bool:
        [future] = futures.values()
        try:
            future.result(2 * CHURN_TIMEOUT_S)
        except (KafkaException, LateError) as error:
            # What became of it is not known: it is neither made nor deleted.
            self.history.failed(f"{self.name}: {error}")
            return False
        return True

    def wrong(self) -> list[str]:
        """Topics that were made and are not there, or have no leader, and those that were deleted and are there."""
        there = self._admin.list_topics(timeout=CHURN_TIMEOUT_S).topics
        leading = {name for name, topic in there.items() if all(each.leader >= 0 for each in topic.partitions.values())}
        return [
            *(f"{topic} was made and is not there" for topic in sorted(self.made - there.keys())),
            *(f"{topic} has no leader" for topic in sorted(self.made & there.keys() - leading)),
            *(f"{topic} was deleted and is there" for topic in sorted(self.deleted & there.keys())),
        ]
