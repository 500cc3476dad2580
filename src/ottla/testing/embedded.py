"""A broker inside the process of a test: the shipped one, in a thread of its own, on a real socket.

    with Broker(topics={"orders": 3}) as broker:
        producer = AnyKafkaClient(bootstrap_servers=broker.bootstrap_servers)

It keeps its data in memory, or in a directory, and differs from `ottla serve` in a few settings only (`DEFAULTS`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.testing.declarations import check_number, check_settings, check_topics, log_directory, settings_as_text
from ottla.testing.errors import TestBrokerError
from ottla.testing.interventions import Interventions
from ottla.testing.lifetime import StartedAndStopped, broker_config
from ottla.testing.movable_time import LATEST_MS, MovableClock
from ottla.testing.securing import Securing
from ottla.testing.waiting import WAIT_TIMEOUT_S

if TYPE_CHECKING:
    import os
    from concurrent.futures import Future

    from ottla.broker.server import Broker
    from ottla.config.broker import BrokerConfig
    from ottla.testing.groups import SeenGroup
    from ottla.testing.loop_host import LoopHost
    from ottla.testing.reading import Found
    from ottla.testing.seeds import Data, HeaderData, SeedRecord, TopicDeclaration
    from ottla.testing.waits import AsyncWaits

#: Where a test broker's settings differ from those of `ottla serve`, for the sake of time: groups begin at once, the
#: topics of coordinators have one partition, and a connection is not closed when `advance` makes it look idle.
DEFAULTS: Final = {
    "broker.id": "1",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "connections.max.idle.ms": "-1",
}
#: The log directory of a broker in memory.
IN_MEMORY: Final = "/ottla-in-memory"
LOOPBACK: Final = "127.0.0.1"


class EmbeddedBroker(StartedAndStopped, Interventions):
    """A broker for tests; see the module. Use it with `with`, with `async with`, or by `start` and `stop`.

    Args:
        topics: topics to create, with their numbers of partitions, or with "partitions" and settings.
        settings: broker settings by Kafka's names.
        data: the log directory; None keeps everything in memory. Data stay there for the next broker.
        host: the address to listen on.
        port: the port to listen on; 0 takes a free one.
        tls: True for a certificate made for this broker (`pip install 'ottla[certificates]'`), or a PEM file with a
            private key and its certificates. Clients then need `client_settings`.
        sasl: passwords by user; clients log in by PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.

    Raises `TestBrokerError`, as `start` does: a setting is wrong, the port is in use, a topic's name is not allowed.
    """

    WHAT = "test broker"
    USE = "with Broker() as broker:"

    def __init__(
        self,
        topics: Mapping[str, TopicDeclaration] | None = None,
        *,
        settings: Mapping[str, str | int | bool] | None = None,
        data: str | os.PathLike[str] | None = None,
        host: str = LOOPBACK,
        port: int = 0,
        tls: str | os.PathLike[str] | bool | None = None,
        sasl: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        check_topics(topics)
        self._topics = dict(topics or {})
        self._settings = settings_as_text(settings)
        self._data = None if data is None else log_directory(data)
        self._address = (host, port)
        self._security = Securing(tls, sasl, host)
        has_address = self._address != (LOOPBACK, 0) or self._security.protocol != "PLAINTEXT"
        check_settings(self._settings, has_address=has_address)
        self._broker: Broker | None = None

    # Life

    def _forget(self) -> None:
        self._host = self._broker = self._faults = None

    def _last_work(self) -> Callable[[], Coroutine[Any, Any, None]] | None:
        return None if self._broker is None else self._broker.stop

    async def _start(self, host: LoopHost) -> None:
        from ottla.broker.server import Broker
        from ottla.env.executor import InlineExecutor
        from ottla.testing.disk_memory import MemoryDisk
        from ottla.testing.faults.declared import Faults

        clock = MovableClock(host.loop)
        in_memory = self._data is None
        broker = Broker(
            self._config(),
            clock=clock,
            disk=MemoryDisk(clock.now_ms) if in_memory else None,
            executor=InlineExecutor() if in_memory else None,
        )
        refusal = await broker.start()
        if refusal is not None:
            raise TestBrokerError(refusal.message)
        try:
            faults = Faults(host, broker)
            broker.dispatcher.intercept = faults.intercept
            await self._security.create_users(broker)
            missing = {name: each for name, each in self._topics.items() if name not in broker.image.topics}
            if missing:
                from ottla.testing.seeds import create_topics

                await create_topics(broker, missing)
        except BaseException:
            await broker.stop()
            raise
        self._broker, self._faults = broker, faults

    def _config(self) -> BrokerConfig:
        from ottla.config.listeners import Endpoint

        protocol = self._security.protocol
        listener = Endpoint(protocol, protocol, *self._address)
        own = {"listeners": listener.connection_string, "log.dirs": self._data or IN_MEMORY}
        own |= self._security.broker_settings(self._settings)
        return broker_config({**DEFAULTS, **own, **self._settings}, self._settings)

    @property
    def server(self) -> Broker:
        """The broker itself; its methods may only be called in its own thread."""
        if self._broker is None:
            raise self._not_running()
        return self._broker

    # Where it is

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        return self.server.listening[0].port

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients' `bootstrap.servers`."""
        endpoint = self.server.listening[0]
        if endpoint.is_any_address:
            endpoint = endpoint.with_host("::1" if ":" in endpoint.host else LOOPBACK)
        return endpoint.address

    def client_settings(self, user: str | None = None, mechanism: str = "PLAIN") -> dict[str, str]:
        """Settings by which clients reach it, by Kafka's names; with `sasl=` as this user, or as the first one.

        Of `tls=True` they have a certificate for the client, too.
        """
        return {"bootstrap.servers": self.bootstrap_servers, **self._security.client_settings(user, mechanism)}

    @property
    def authority(self) -> str | None:
        """With `tls=True` the certificate that clients trust, in PEM."""
        return self._security.authority

    # Topics and records

    def create_topic(self, name: str, partitions: int = 1, **configs: str | int) -> None:
        """Create a topic; settings by Kafka's names with underscores: `cleanup_policy="compact"`."""
        self.create_topics({name: {"partitions": partitions, **configs}})

    def create_topics(self, topics: Mapping[str, TopicDeclaration]) -> None:
        """Create topics, declared as for the class."""
        from ottla.testing.seeds import create_topics

        self._running.run(create_topics(self.server, topics))

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records."""
        from ottla.testing.seeds import delete_topic

        self._running.run(delete_topic(self.server, name))

    def topics(self) -> dict[str, int]:
        """The topics and their numbers of partitions, internal ones included."""
        server = self.server
        return self._running.call(lambda: {name: len(each.partitions) for name, each in server.image.topics.items()})

    def send(
        self,
        topic: str,
        value: Data,
        *,
        key: Data = None,
        headers: HeaderData = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> tuple[int, int]:
        """Put one record into a topic, which is created where it is missing; returns its partition and offset.

        Text is encoded as UTF-8. Without a partition the key decides, as in Java's producer, else it is partition 0.
        """
        from ottla.testing.seeds import SeedRecord

        return self.send_all(topic, [SeedRecord(value, key, headers, partition, timestamp_ms)])[0]

    def send_all(self, topic: str, records: Iterable[SeedRecord | Data]) -> list[tuple[int, int]]:
        """Put records into a topic, as `send`; plain values are records without a key."""
        from ottla.testing.seeds import append, as_records

        return self._running.run(append(self.server, topic, as_records(records)))

    def records(self, topic: str, partition: int | None = None) -> list[Found]:
        """The topic's records, partition by partition in the order of their offsets.

        Those of aborted transactions are among them, and records that compaction has removed are not.
        """
        from ottla.testing.reading import read_records

        return self._running.call(read_records, self.server, topic, partition)

    def end_offsets(self, topic: str) -> dict[int, int]:
        """The high watermark of each partition of a topic."""
        from ottla.testing.reading import end_offsets

        return self._running.call(end_offsets, self.server, topic)

    # Groups

    def group(self, group_id: str) -> SeenGroup | None:
        """A consumer group with members, assignments, committed offsets and lag; None where there is none."""
        from ottla.testing.groups import see_group

        return self._running.call(see_group, self.server, group_id)

    def groups(self) -> list[SeenGroup]:
        """All consumer groups, by their names."""
        from ottla.testing.groups import see_groups

        return self._running.call(see_groups, self.server)

    # Waiting

    @property
    def aio(self) -> AsyncWaits:
        """The waits of this class as coroutines, for tests whose own event loop must run meanwhile."""
        from ottla.testing.waits import AsyncWaits

        return AsyncWaits(self)

    def wait_for_records(self, topic: str, count: int, timeout_s: float = WAIT_TIMEOUT_S) -> list[Found]:
        """All records of the topic once there are at least `count`. Raises `WaitedInVainError`."""
        found: list[Found] = self.submit_wait("records", topic, count, timeout_s).result()
        return found

    def wait_for_group(
        self, group_id: str, members: int | None = None, state: str = "Stable", timeout_s: float = WAIT_TIMEOUT_S
    ) -> SeenGroup:
        """The group once it is in this state, with `members` members. Raises `WaitedInVainError`."""
        seen: SeenGroup = self.submit_wait("group", group_id, members, state, timeout_s).result()
        return seen

    def wait_for_commit(
        self, group_id: str, topic: str, offset: int, partition: int = 0, timeout_s: float = WAIT_TIMEOUT_S
    ) -> int:
        """The group's committed offset once it is at least `offset`. Raises `WaitedInVainError`."""
        committed: int = self.submit_wait("commit", group_id, topic, partition, offset, timeout_s).result()
        return committed

    def submit_wait(self, kind: str, *args: Any) -> Future[Any]:
        """Begin a wait of `ottla.testing.waits`; the future has its result."""
        from ottla.testing import waits

        return self._running.submit(getattr(waits, kind)(self.server, *args))

    # Time

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, milliseconds: float = 0
    ) -> None:
        """Let time pass at once, for the broker only: sessions end, retention deletes, offsets expire.

        Members of groups send no heartbeats in the time that is skipped, so they lose their sessions as if they had
        been stopped for as long. Clients notice that as soon as they next ask.
        """
        amounts = {"days": days, "hours": hours, "minutes": minutes, "seconds": seconds, "milliseconds": milliseconds}
        for name, amount in amounts.items():
            check_number(name, amount)
        by_ms = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + milliseconds
        if not by_ms > 0:
            raise TestBrokerError(f"time can only be moved forward, not by {by_ms:g} ms")
        if self.now_ms() + by_ms > LATEST_MS:
            raise TestBrokerError(f"time ends with the year 9999; it cannot be moved by {by_ms:g} ms")
        host = self._running
        host.run(host.loop.move(by_ms))

    def now_ms(self) -> int:
        """The broker's wall clock, milliseconds since the Unix epoch."""
        return self.server.clock.now_ms()
