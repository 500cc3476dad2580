"""Clients of a simulated cluster, which record all that they see: producers, a reader, a group, an observer of ends.

All of them are shipped clients on hosts of their own. What they record is checked by `cluster_history`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from ottla.client import Consumer, ConsumerRebalanceListener, Producer, TopicPartition
from ottla.client.errors import ClientError
from ottla.client.model import OffsetAndMetadata, RecordMetadata
from ottla.sim.processes import SimulatedProcess
from support.cluster_history import (
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
from support.simulated_cluster.brokers import SimulatedCluster

GROUP: Final = "group"
READER: Final = "reader"
#: Settings of all clients: they notice trouble soon, in virtual time.
CLIENT: Final[Mapping[str, Any]] = {
    "request_timeout_ms": 4_000,
    "metadata_max_age_ms": 10_000,
    "retry_backoff_ms": 50,
    "reconnect_backoff_max_ms": 500,
}
DELIVERY_TIMEOUT_MS: Final = 12_000
#: Seconds between the bursts of a producer, and records in each.
BURST_S: Final = (0.1, 1.2)
BURST_RECORDS: Final = (1, 16)
#: A reader in a rack asks the leader again so often.
RACK_FOR_MS: Final = 3_000
OBSERVED_EVERY_S: Final = 1.1
COMMIT_EVERY_S: Final = 1.5
POLL_MS: Final = 500
AGAIN_S: Final = 0.5


def value_of(data: bytes | None) -> Value:
    """The producer and the number in a record's value."""
    producer, _, number = (data or b"?:-1").rpartition(b":")
    return producer.decode(), int(number)


class ClusterLoad:
    """Producers and consumers of some partitions; `events` is what they saw."""

    #: Settings of the producers beside those of all clients.
    producer_settings: Mapping[str, Any] = {"delivery_timeout_ms": DELIVERY_TIMEOUT_MS, "max_block_ms": 4_000}

    def __init__(self, cluster: SimulatedCluster, places: Sequence[Place], chance: random.Random) -> None:
        self._cluster = cluster
        self._loop = cluster.loop
        self._places = tuple(places)
        self._chance = chance
        self.events: list[Event] = []
        #: The client processes by name.
        self.processes: dict[str, SimulatedProcess] = {}
        self._is_over = False
        self._producing: list[asyncio.Task[None]] = []
        self.acknowledged = 0
        #: Where the readers are, by their names.
        self.reached: dict[str, dict[Place, int]] = {}

    def start(self, producers: int = 2, members: int = 2, racks: Sequence[str] = ()) -> None:
        """Start all clients; those in `racks` are readers beside the usual one."""
        for number in range(producers):
            self._producing.append(self._process(f"producer{number}", self._produce(f"producer{number}")))
        self._process(READER, self._read(READER))
        for rack in racks:
            settings = {"client_rack": rack, "metadata_max_age_ms": RACK_FOR_MS}
            self._process(f"{READER}-{rack}", self._read(f"{READER}-{rack}", **settings))
        self._process("observer", self._observe("observer"))
        for number in range(members):
            self._process(f"member{number}", self._member(f"member{number}"))

    def _process(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        process = self.processes[name] = self._loop.process(name)
        self._cluster.client_hosts.append(name)
        return process.start(work)

    async def stop_producing(self) -> None:
        """Send nothing more, and wait until all is acknowledged or given up."""
        self._is_over = True
        await asyncio.gather(*self._producing)

    def _note(self, event: Event) -> None:
        self.events.append(event)

    def _settings(self, host: str) -> dict[str, Any]:
        return {**CLIENT, **self._cluster.client_settings(host)}

    # Producers

    async def _produce(self, host: str) -> None:
        numbers: dict[Place, int] = {}
        life = 0
        while not self._is_over:
            life += 1
            name = f"{host}.{life}"
            self._note(Producing(self._loop.time(), name))
            settings = {**self._settings(host), **self.producer_settings}
            producer: Producer[bytes, bytes] = Producer(**settings, acks="all")
            try:
                async with producer:
                    await self._send_all(producer, name, numbers)
            except ClientError as error:
                self._cluster.story.tell(host, f"begins again after {error!r}")
                await asyncio.sleep(AGAIN_S)

    async def _send_all(self, producer: Producer[bytes, bytes], name: str, numbers: dict[Place, int]) -> None:
        chance = random.Random(self._chance.getrandbits(32))
        while not self._is_over:
            for _ in range(chance.randint(*BURST_RECORDS)):
                place = chance.choice(self._places)
                number = numbers[place] = numbers.get(place, -1) + 1
                self._note(RecordSent(self._loop.time(), name, place, number))
                done = partial(self._sent, name, place, number)
                try:
                    await producer.send(place[0], b"%b:%d" % (name.encode(), number), None, place[1], callback=done)
                except ClientError as error:
                    self._cluster.story.tell(name, f"does not send {number} to {place}: {error!r}")
            await asyncio.sleep(chance.uniform(*BURST_S))

    def _sent(
        self, name: str, place: Place, number: int, metadata: RecordMetadata | None, error: Exception | None
    ) -> None:
        if metadata is None:
            self._cluster.story.tell(name, f"gives up {number} of {place[0]}-{place[1]}: {error!r}")
            return
        self.acknowledged += 1
        if metadata.offset >= 0:
            self._note(Acknowledged(self._loop.time(), name, place, number, metadata.offset))

    # Consumers

    def _consumer(self, host: str, **settings: Any) -> Consumer[bytes, bytes]:
        given = {**self._settings(host), **settings}
        return Consumer(**given, auto_offset_reset="none", default_api_timeout_ms=8_000)

    async def _read(self, host: str, **settings: Any) -> None:
        """Read all partitions from the beginning, without a group."""
        consumer = self._consumer(host, **settings)
        self.reached[host] = {}
        partitions = [TopicPartition(*place) for place in self._places]
        await consumer.assign(partitions)
        for each in partitions:
            consumer.seek(each, 0)
            self._note(Positioned(self._loop.time(), host, (each.topic, each.partition), 0))
        while True:
            await self._poll(host, consumer)

    async def _poll(self, host: str, consumer: Consumer[bytes, bytes]) -> int:
        """Read once; returns the number of records."""
        try:
            records = await consumer.poll(POLL_MS)
        except ClientError as error:
            self._cluster.story.tell(host, f"polls in vain: {error!r}")
            await asyncio.sleep(AGAIN_S)
            return 0
        for each in records:
            place = (each.topic, each.partition)
            self._note(Read(self._loop.time(), host, place, each.offset, value_of(each.value)))
            if host in self.reached:
                self.reached[host][place] = each.offset + 1
        return len(records)

    async def _observe(self, host: str) -> None:
        """Ask for the end offsets again and again."""
        consumer = self._consumer(host)
        partitions = [TopicPartition(*place) for place in self._places]
        while True:
            began_s = self._loop.time()
            try:
                found = await consumer.end_offsets(partitions)
            except ClientError:
                pass
            else:
                for each, offset in found.items():
                    place = (each.topic, each.partition)
                    self._note(EndSeen(self._loop.time(), host, place, offset, began_s))
            await asyncio.sleep(OBSERVED_EVERY_S)

    async def _member(self, host: str) -> None:
        """Read as a member of the group, and commit."""
        consumer = self._consumer(host, group_id=GROUP, session_timeout_ms=6_000, enable_auto_commit=False)
        listener = _Listener(self._note, self._loop.time, host, consumer)
        await consumer.subscribe(sorted({topic for topic, _ in self._places}), listener)
        due_s = self._loop.time()
        while True:
            await self._poll(host, consumer)
            if self._loop.time() >= due_s:
                due_s = self._loop.time() + COMMIT_EVERY_S
                await self._commit(host, consumer)

    async def _commit(self, host: str, consumer: Consumer[bytes, bytes]) -> None:
        began_s = self._loop.time()
        try:
            offsets = {each: OffsetAndMetadata(await consumer.position(each)) for each in consumer.assignment()}
            if offsets:
                await consumer.commit(offsets)
        except ClientError as error:
            self._cluster.story.tell(host, f"commits in vain: {error!r}")
            return
        for each, committed in offsets.items():
            place = (each.topic, each.partition)
            self._note(Committed(self._loop.time(), GROUP, place, committed.offset, began_s))


class _Listener(ConsumerRebalanceListener):
    """Notes what a member takes and gives up, and begins where the group has committed."""

    def __init__(
        self, note: Callable[[Event], None], now_s: Callable[[], float], host: str, consumer: Consumer[bytes, bytes]
    ) -> None:
        self._note = note
        self._now_s = now_s
        self._host = host
        self._consumer = consumer

    async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """See the base class; the first reader of a partition begins at 0."""
        self._note(Took(self._now_s(), GROUP, self._host, _places(partitions)))
        while True:
            began_s = self._now_s()
            try:
                committed = await self._consumer.committed(partitions)
            except ClientError:
                await asyncio.sleep(AGAIN_S)
            else:
                break
        for each in partitions:
            known = committed.get(each)
            offset = known.offset if known is not None else -1
            self._note(CommitSeen(self._now_s(), GROUP, (each.topic, each.partition), offset, began_s))
            self._consumer.seek(each, max(offset, 0))
            self._note(Positioned(self._now_s(), self._host, (each.topic, each.partition), max(offset, 0)))

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """See the base class."""
        self._note(GaveUp(self._now_s(), GROUP, self._host, _places(partitions)))


def _places(partitions: Iterable[TopicPartition]) -> tuple[Place, ...]:
    return tuple((each.topic, each.partition) for each in partitions)
