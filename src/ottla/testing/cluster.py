"""A cluster inside the process of a test: shipped brokers in one thread, on real sockets, with disks in memory.

    with Cluster(3) as cluster:
        cluster.create_topic("orders", partitions=6)
        producer = AnyKafkaClient(bootstrap_servers=cluster.bootstrap_servers)
        cluster.kill(cluster.leader("orders"))

The coordination metadata are in memory, too, with a session for each broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.config.internal_topics import settings_of_internal_topics
from ottla.testing.declarations import check_settings, check_topics, settings_as_text
from ottla.testing.embedded import DEFAULTS, IN_MEMORY, LOOPBACK
from ottla.testing.errors import TestBrokerError
from ottla.testing.lifetime import StartedAndStopped, broker_config
from ottla.testing.movable_time import MovableClock
from ottla.testing.securing import Securing
from ottla.testing.waiting import WAIT_TIMEOUT_S, until

if TYPE_CHECKING:
    import os

    from ottla.broker.server import Broker
    from ottla.cluster.image import PartitionImage
    from ottla.config.broker import BrokerConfig
    from ottla.testing.disk_memory import MemoryDisk
    from ottla.testing.faults.declared import Faults
    from ottla.testing.killable_session import KillableSession
    from ottla.testing.loop_host import LoopHost
    from ottla.testing.reading import Found
    from ottla.testing.seeds import TopicDeclaration
    from ottla.zk.store import TreeStore

log = logging.getLogger("ottla.testing")

MOST_BROKERS: Final = 16
#: Replicas of a topic unless the test says otherwise; fewer brokers have as many as there are.
DEFAULT_FACTOR: Final = 3
#: Sessions of brokers end at once when these are killed, so only clients of the metadata see the timeout.
SESSION_TIMEOUT_MS: Final = 6_000
#: The first session id that brokers get.
FIRST_SESSION: Final = 1_000

#: A leader changes when the test says so, not when the controller finds the leaders unbalanced.
LEADERS_STAY: Final = {"auto.leader.rebalance.enable": "false"}


@dataclass(slots=True)
class _Place:
    """The disk and the port that a broker keeps while it is down."""

    disk: MemoryDisk
    port: int = 0


class EmbeddedCluster(StartedAndStopped):
    """Brokers with the ids 0, 1, …; see the module. Use it with `with`, with `async with`, or by `start` and `stop`.

    Args:
        brokers: how many.
        topics: topics to create, with their numbers of partitions, or with "partitions", "replication_factor" and
            settings. They have as many replicas as there are brokers, at most three.
        settings: settings of all brokers, by Kafka's names.
        racks: `broker.rack` of each broker, in the order of their ids.
        tls, sasl: as of `Broker`; the brokers use them among each other, too.

    Raises `TestBrokerError`, as `start` does: a setting is wrong, a topic's name is not allowed.
    """

    WHAT = "test cluster"
    USE = "with Cluster(3) as cluster:"

    def __init__(
        self,
        brokers: int = 3,
        topics: Mapping[str, TopicDeclaration] | None = None,
        *,
        settings: Mapping[str, str | int | bool] | None = None,
        racks: Sequence[str] | None = None,
        tls: str | os.PathLike[str] | bool | None = None,
        sasl: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        if not 1 <= brokers <= MOST_BROKERS:
            raise TestBrokerError(f"brokers={brokers!r}: give a number from 1 to {MOST_BROKERS}")
        if racks is not None and len(racks) != brokers:
            raise TestBrokerError(f"racks={racks!r}: name one for each of the {brokers} brokers")
        check_topics(topics)
        self._count = brokers
        self._topics = dict(topics or {})
        self._settings = settings_as_text(settings)
        self._racks = racks
        self._security = Securing(tls, sasl, LOOPBACK)
        check_settings(self._settings, has_address=True)
        self._brokers: dict[int, Broker] = {}
        self._sessions: dict[int, KillableSession] = {}
        self._places: dict[int, _Place] = {}
        self._faults: dict[int, Faults] = {}
        self._next_session = FIRST_SESSION

    # Life

    def _forget(self) -> None:
        self._host = None
        for each in (self._brokers, self._sessions, self._places, self._faults):
            each.clear()

    def _last_work(self) -> Callable[[], Coroutine[Any, Any, None]] | None:
        # Those that run when the loop comes to it: a broker may start until then.
        brokers, store = self._brokers, getattr(self, "_store", None)
        return None if store is None else lambda: _stop_each(list(brokers.values()), store)

    async def _start(self, host: LoopHost) -> None:
        from ottla.testing.disk_memory import MemoryDisk
        from ottla.zk.store import TreeStore

        self._clock = MovableClock(host.loop)
        self._store: TreeStore = TreeStore.open(MemoryDisk(self._clock.now_ms), "/metadata", self._clock)
        for broker_id in range(self._count):
            self._places[broker_id] = _Place(MemoryDisk(self._clock.now_ms))
        try:
            for broker_id in range(self._count):
                await self._start_broker(broker_id)
            await until(self._all_registered, lambda: "all brokers to know each other", WAIT_TIMEOUT_S)
            await self._security.create_users(self._brokers[0])
            for name, declared in self._topics.items():
                await self._create_declared(name, declared)
        except BaseException:
            await _stop_each(list(self._brokers.values()), self._store)
            raise

    async def _start_broker(self, broker_id: int) -> None:
        from ottla.broker.control.coordination import Coordination
        from ottla.broker.server import Broker
        from ottla.env.executor import InlineExecutor
        from ottla.testing.killable_session import KillableSession

        place = self._places[broker_id]
        self._next_session += 1
        session = KillableSession(self._store, self._next_session)
        broker = Broker(
            self._config(broker_id, place.port),
            clock=self._clock,
            disk=place.disk,
            executor=InlineExecutor(),
            coordination=Coordination(session, SESSION_TIMEOUT_MS, accepts_others=True),
        )
        refusal = await broker.start()
        if refusal is not None:
            await session.close()
            raise TestBrokerError(f"broker {broker_id} does not start: {refusal.message}")
        place.port = broker.listening[0].port
        self._brokers[broker_id], self._sessions[broker_id] = broker, session

    def _config(self, broker_id: int, port: int) -> BrokerConfig:
        from ottla.config.listeners import Endpoint

        protocol = self._security.protocol
        listener = Endpoint(protocol, protocol, LOOPBACK, port)
        own = {"broker.id": str(broker_id), "listeners": listener.connection_string, "log.dirs": IN_MEMORY}
        if self._racks is not None:
            own["broker.rack"] = self._racks[broker_id]
        shared = (
            LEADERS_STAY | settings_of_internal_topics(self._count) | self._security.broker_settings(self._settings)
        )
        return broker_config({**DEFAULTS, **shared, **self._settings, **own}, self._settings)

    def _take(self, broker_id: int) -> Broker:
        self._sessions.pop(broker_id)
        self._faults.pop(broker_id, None)
        return self._brokers.pop(broker_id)

    # Brokers by id

    def kill(self, broker_id: int) -> None:
        """End a broker as `kill -9` does: nothing is flushed or said goodbye to, and its session ends at once.

        Its disk stays as it is at this moment, as the page cache of a machine does.
        """
        self._running.run(self._kill(self._check(broker_id, is_running=True)))

    def shut_down(self, broker_id: int) -> None:
        """Stop a broker in order, as SIGTERM does; its disk stays."""
        self._check(broker_id, is_running=True)
        self._running.run(self._shut_down(broker_id))

    def restart(self, broker_id: int, *, empty_disk: bool = False) -> None:
        """Start a broker that was killed or shut down, on its port, with its disk or (`empty_disk`) with a new one."""
        self._check(broker_id, is_running=False)
        self._running.run(self._restart(broker_id, empty_disk))

    async def _kill(self, broker_id: int) -> None:
        session, broker = self._sessions[broker_id], self._take(broker_id)
        place = self._places[broker_id]
        # The killed broker keeps its own disk, which is not read again.
        place.disk = place.disk.copy()
        for connection in broker.connections.snapshot():
            connection.close()
        session.kill()
        try:
            await broker.stop(hands_leaders_over=False)
        except Exception as error:
            log.debug("a killed broker stopped with %r", error)

    async def _shut_down(self, broker_id: int) -> None:
        await self._take(broker_id).stop()

    async def _restart(self, broker_id: int, empty_disk: bool) -> None:
        from ottla.testing.disk_memory import MemoryDisk

        if empty_disk:
            self._places[broker_id].disk = MemoryDisk(self._clock.now_ms)
        await self._start_broker(broker_id)

    def _check(self, broker_id: int, *, is_running: bool) -> int:
        if self._host is None:
            raise self._not_running()
        if broker_id not in self._places:
            raise TestBrokerError(f"there is no broker {broker_id}: the ids are 0 to {self._count - 1}")
        if (broker_id in self._brokers) != is_running:
            raise TestBrokerError(f"broker {broker_id} {'is not running' if is_running else 'is running'}")
        return broker_id

    # What is known of them

    @property
    def running(self) -> list[int]:
        """Ids of the brokers that run."""
        return sorted(self._brokers)

    def broker(self, broker_id: int) -> Broker:
        """A running broker itself; its methods may only be called in its own thread."""
        return self._brokers[self._check(broker_id, is_running=True)]

    def faults(self, broker_id: int) -> Faults:
        """Makes requests to a running broker fail, as those of `ottla.testing.Broker` do; rules end with the broker.

        Requests of other brokers count, too: `cluster.faults(1).drop("Fetch", client_id="broker-2-fetcher-0")`.
        """
        server = self.broker(broker_id)
        found = self._faults.get(broker_id)
        if found is None:
            from ottla.testing.faults.declared import Faults

            found = self._faults[broker_id] = Faults(self._running, server)
            server.dispatcher.intercept = found.intercept
        return found

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, also of those that do not run now: they come back at the same ports."""
        if self._host is None:
            raise self._not_running()
        return ",".join(f"{LOOPBACK}:{each.port}" for _, each in sorted(self._places.items()))

    def client_settings(self, user: str | None = None, mechanism: str = "PLAIN") -> dict[str, str]:
        """Settings by which clients reach it, as of `Broker`."""
        return {"bootstrap.servers": self.bootstrap_servers, **self._security.client_settings(user, mechanism)}

    @property
    def controller(self) -> int | None:
        """Id of the controller; None while there is none."""
        return self._running.call(self._controller)

    def _controller(self) -> int | None:
        elected = [broker_id for broker_id, each in self._brokers.items() if each.control.is_controller]
        return elected[0] if len(elected) == 1 else None

    def _all_registered(self) -> bool | None:
        ids = set(self._brokers)
        knows_all = all(set(each.image.brokers) == ids for each in self._brokers.values())
        return True if knows_all and self._controller() is not None else None

    def _state(self, topic: str, partition: int) -> PartitionImage | None:
        """The partition as the controller knows it."""
        controller = self._controller()
        if controller is None:
            return None
        known = self._brokers[controller].image.topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            return None
        return known.partitions[partition]

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """Id of the broker that leads the partition; None while there is none."""
        state = self._running.call(self._state, topic, partition)
        return None if state is None or state.leader < 0 else state.leader

    def replicas(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """Ids of the brokers with a replica, the preferred leader first."""
        state = self._running.call(self._state, topic, partition)
        return () if state is None else state.replicas

    def in_sync(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """Ids of the brokers whose replicas are in sync (ISR)."""
        state = self._running.call(self._state, topic, partition)
        return () if state is None else state.isr

    def records(self, topic: str, partition: int | None = None, *, broker: int) -> list[Found]:
        """The records that a broker has of the partitions it has replicas of, partition by partition.

        Records that are not committed yet are among them.
        """
        from ottla.testing.reading import read_records

        return self._running.call(read_records, self.broker(broker), topic, partition)

    # Topics

    def create_topic(
        self, name: str, partitions: int = 1, replication_factor: int | None = None, **configs: str | int
    ) -> None:
        """Create a topic, and return when each partition has a leader and all replicas are in sync.

        Settings by Kafka's names with underscores: `min_insync_replicas=2`.
        """
        self._running.run(self._create_topic(name, partitions, replication_factor, configs))

    async def _create_declared(self, name: str, declared: TopicDeclaration) -> None:
        settings = {"partitions": declared} if isinstance(declared, int) else dict(declared)
        partitions, factor = int(settings.pop("partitions", 1)), settings.pop("replication_factor", None)
        await self._create_topic(name, partitions, None if factor is None else int(factor), settings)

    async def _create_topic(
        self, name: str, partitions: int, factor: int | None, configs: Mapping[str, str | int]
    ) -> None:
        from ottla.cluster.refusal import TopicRefusal
        from ottla.cluster.topics import TopicSpec

        controller = await until(self._controller, lambda: "a controller", WAIT_TIMEOUT_S)
        if factor is None:
            factor = min(DEFAULT_FACTOR, self._count)
        settings = {setting.replace("_", "."): str(value) for setting, value in configs.items()}
        spec = TopicSpec(name, partitions, factor, {}, settings)
        created = await self._brokers[controller].control.admin.create_topic(spec)
        if isinstance(created, TopicRefusal):
            raise TestBrokerError(f"the topic {name} cannot be created: {created.message}")
        await self._until_in_sync(name, WAIT_TIMEOUT_S)

    # Waiting

    def wait_for(
        self, condition: Callable[[], bool], what: str = "the condition", timeout_s: float = WAIT_TIMEOUT_S
    ) -> None:
        """Wait until `condition`, which the thread of the brokers calls, holds. Raises `WaitedInVainError`."""
        self._running.run(until(lambda: condition() or None, lambda: what, timeout_s))

    def wait_for_leader(
        self, topic: str, partition: int = 0, *, other_than: int | None = None, timeout_s: float = WAIT_TIMEOUT_S
    ) -> int:
        """Id of the partition's leader once it is a running broker (and `other_than` this one).

        Raises `WaitedInVainError`.
        """

        def look() -> int | None:
            state = self._state(topic, partition)
            if state is None or state.leader == other_than or state.leader not in self._brokers:
                return None
            leads = self._brokers[state.leader].partitions.get(topic, partition)
            return state.leader if leads is not None and leads.leader is not None else None

        def what() -> str:
            return f"a leader of {topic}-{partition}: the controller has {self._state(topic, partition)}"

        return self._running.run(until(look, what, timeout_s))

    def wait_for_records(
        self, topic: str, count: int, *, broker: int, timeout_s: float = WAIT_TIMEOUT_S
    ) -> list[Found]:
        """The records that a broker has of a topic, once there are at least `count`. Raises `WaitedInVainError`."""
        from ottla.testing.reading import count_records, read_records

        server = self.broker(broker)

        def there() -> int:
            return count_records(server, topic) if topic in server.image.topics else 0

        def look() -> list[Found] | None:
            return read_records(server, topic) if there() >= count else None

        def what() -> str:
            return f"{count} records of {topic} at broker {broker}: {there()} are there"

        return self._running.run(until(look, what, timeout_s))

    def wait_until_in_sync(self, topic: str | None = None, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Wait until all replicas of a topic (None: of all topics) are in sync. Raises `WaitedInVainError`."""
        self._running.run(self._until_in_sync(topic, timeout_s))

    async def _until_in_sync(self, topic: str | None, timeout_s: float) -> None:
        def behind() -> list[str] | None:
            controller = self._controller()
            if controller is None:
                return None
            topics = self._brokers[controller].image.topics
            wanted = topics.values() if topic is None else filter(None, [topics.get(topic)])
            return [
                f"{each.name}-{number}: leader {state.leader}, ISR {list(state.isr)} of {list(state.replicas)}"
                for each in wanted
                for number, state in enumerate(each.partitions)
                if state.leader < 0 or set(state.isr) != set(state.replicas)
            ]

        def what() -> str:
            found = behind()
            return f"all replicas to be in sync: {'no controller is elected' if found is None else '; '.join(found)}"

        await until(lambda: True if behind() == [] else None, what, timeout_s)


async def _stop_each(brokers: Sequence[Broker], store: TreeStore) -> None:
    # The controller last, so that there is one election less for each of the others.
    for broker in sorted(brokers, key=lambda each: each.control.is_controller):
        await broker.stop(hands_leaders_over=False)
    store.close()
