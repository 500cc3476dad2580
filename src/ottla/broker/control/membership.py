"""Cluster membership of a broker: its registration under `/brokers/ids`, and controller election.

A broker registers in each new session, and stands for election whenever the controller is missing; if it is alone, both
happen in one transaction. Its writes as controller fail if another was elected since (`Term.fence`), as in Apache
Kafka. The code that opens the coordination metadata decides whether other brokers may be members.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.control.znodes import election, read_brokers
from ottla.cluster.refusal import TopicRefusal
from ottla.wire.errors import ErrorCode
from ottla.zk.client import ConnectionLossError, SessionEvent
from ottla.zk.layout import (
    BrokerIdZnode,
    BrokerRegistration,
    ControllerEpochZnode,
    ControllerZnode,
    KraftMigrationError,
    ZnodeDataError,
)
from ottla.zk.tree import (
    BadVersionError,
    Check,
    Create,
    NodeExistsError,
    NoNodeError,
    Operation,
    SessionExpiredError,
    Stat,
    ZkError,
)

if TYPE_CHECKING:
    from ottla.cluster.controller_events import LiveBroker
    from ottla.env.clock import Clock
    from ottla.zk.client import ZkClient
    from ottla.zk.tree import WatchEvent

log = logging.getLogger("ottla.broker")

#: ZooKeeper expires sessions in steps of its tick time, a few seconds.
EXPIRY_MARGIN_MS = 5_000
#: Attempts to register while the nodes are created and deleted by others.
MOST_ATTEMPTS = 20
#: No node has this version: a check for it always fails.
NO_VERSION = -2


class Term(NamedTuple):
    """A term as controller: the controller epoch, and the version of the epoch's znode until the next election."""

    epoch: int = 0
    version: int = NO_VERSION

    def fence(self) -> Check:
        """An operation that fails a transaction with `BadVersionError` once another controller is elected."""
        return Check(ControllerEpochZnode.PATH, self.version)


class ClusterMembership:
    """Registers a broker, stands for election without a controller, and tracks the other brokers.

    Call `join` once, then `start`. With `accepts_others` the broker is one of several. Without it, it refuses to start
    beside another one; `is_shared` says whether such a broker may be alive, not just the session of a killed process.
    """

    def __init__(
        self,
        zk: ZkClient,
        broker: BrokerRegistration,
        clock: Clock,
        longest_session_ms: int = 0,
        is_shared: bool = True,
        accepts_others: bool = False,
    ) -> None:
        self._zk = zk
        self._broker = broker
        self._clock = clock
        #: How long a znode of a former process of this broker may outlive it; 0 if that cannot happen.
        self._longest_session_ms = longest_session_ms
        self._is_shared = is_shared
        self._accepts_others = accepts_others
        #: The current term; epoch 0 while this broker is not the controller.
        self.term = Term()
        #: The controller's broker id, -1 if none is known.
        self.controller_id = -1
        #: The registered brokers, as last read.
        self.brokers: dict[int, LiveBroker] = {}
        #: The epochs of registrations of other brokers that have ended since this process began, the last of each.
        self._former_epochs: dict[int, int] = {}
        self._is_member = False
        #: Whether there is a connection to the coordination metadata.
        self.is_connected = True
        #: The session in which the broker is registered.
        self._session_id = 0
        #: Other brokers that were already reported.
        self._reported_brokers: frozenset[int] = frozenset()
        self._joining: asyncio.Task[None] | None = None
        #: Called on reconnection; the argument says whether the session is new, so that no watch is set.
        self.on_rejoined: Callable[[bool], None] = lambda is_new: None
        #: Called when brokers register or leave, or another controller is elected; not for this broker's own election.
        self.on_changed: Callable[[], None] = lambda: None
        #: Called when this broker is elected again, after `join`.
        self.on_elected: Callable[[], None] = lambda: None
        #: The czxid of this process's first registration; -1 before `join`.
        self.first_epoch = -1
        #: Called with the reason when this broker can no longer be a member.
        self.on_fatal: Callable[[str], None] = log.critical

    @property
    def broker_id(self) -> int:
        """The id of this broker."""
        return self._broker.id

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the controller as far as it knows."""
        return self.term.epoch > 0

    @property
    def broker_epoch(self) -> int:
        """The czxid of this broker's registration, as last read (KIP-380); -1 before `join`."""
        registered = self.brokers.get(self._broker.id)
        return registered.epoch if registered is not None else -1

    def epoch_of(self, broker_id: int) -> int | None:
        """The czxid of a broker's registration, as last read; None if it is not registered."""
        registered = self.brokers.get(broker_id)
        return registered.epoch if registered is not None else None

    # Joining

    async def join(self) -> TopicRefusal | None:
        """Register, and stand for election without a controller; return the refusal if that fails.

        Waits for znodes that a former process of this broker left, as long as its session may last.
        """
        for name in await self._zk.children(BrokerIdZnode.ROOT):
            if name == str(self._broker.id) or self._accepts_others:
                continue
            path = f"{BrokerIdZnode.ROOT}/{name}"
            if self._is_shared or not await self._is_gone(path, self._longest_session_ms + EXPIRY_MARGIN_MS):
                return await self._other_broker(name)
        refusal = await self._take_place()
        if refusal is None:
            self.brokers = self._members(await read_brokers(self._zk))
            self.first_epoch = self.broker_epoch
        return refusal

    def _members(self, registered: dict[int, LiveBroker]) -> dict[int, LiveBroker]:
        """The registered brokers that are members of the cluster."""
        if self._accepts_others:
            return registered
        return {broker_id: broker for broker_id, broker in registered.items() if broker_id == self._broker.id}

    async def _take_place(self) -> TopicRefusal | None:
        waited_until_ms = self._clock.monotonic_ms() + self._longest_session_ms + EXPIRY_MARGIN_MS
        for _ in range(MOST_ATTEMPTS):
            unanswered = None
            try:
                await self._register()
            except BadVersionError:
                continue  # another was elected, and is gone again
            except ConnectionLossError as error:
                unanswered = error  # whether it was done shows the next attempt
            except NodeExistsError as error:
                stat = await self._zk.exists(error.path)
                if stat is None:
                    continue
                if stat.ephemeral_owner == self._zk.session_id:
                    # Registered by a request whose response was lost; both nodes are created in one transaction.
                    await self._read_epoch()
                    return None
                if error.path == ControllerZnode.PATH and self._accepts_others:
                    continue  # elected meanwhile: register without standing for election
                refusal = await self._taken(error.path)
                left_ms = waited_until_ms - self._clock.monotonic_ms()
                is_former = refusal is not None and refusal.error is ErrorCode.DUPLICATE_BROKER_REGISTRATION
                if refusal is None:
                    continue
                if not is_former or not self._longest_session_ms or not await self._is_gone(error.path, left_ms):
                    return refusal
            else:
                return None
        if unanswered is not None:
            raise unanswered
        return TopicRefusal(
            ErrorCode.BROKER_NOT_AVAILABLE, f"{BrokerIdZnode.path(self._broker.id)} is made and deleted all the time"
        )

    async def _register(self) -> None:
        now_ms = self._clock.now_ms()
        registration = BrokerIdZnode.encode(self._broker._replace(timestamp_ms=now_ms))
        registering = Create(BrokerIdZnode.path(self._broker.id), registration, ephemeral=True)
        controller_id = await self._read_controller() if self._accepts_others else -1
        if controller_id not in (-1, self._broker.id):
            await self._zk.multi([registering])
            self._not_elected(controller_id)
            return
        epoch, operations = await election(self._zk, self._broker.id, now_ms)
        operations = [registering, *operations]
        self._elected(epoch, (await self._zk.multi(operations))[-1])

    async def _read_controller(self) -> int:
        """The controller's broker id, -1 if there is none."""
        try:
            data, _ = await self._zk.get(ControllerZnode.PATH)
        except NoNodeError:
            return -1
        return ControllerZnode.decode(data)

    def _elected(self, epoch: int, stat: object) -> None:
        assert isinstance(stat, Stat)
        self.term = Term(epoch, stat.version)
        self.controller_id = self._broker.id

    def _not_elected(self, controller_id: int) -> None:
        self.term = Term()
        self.controller_id = controller_id

    async def _read_epoch(self) -> None:
        stat = await self._zk.exists(ControllerZnode.PATH)
        if stat is None or stat.ephemeral_owner != self._zk.session_id:
            self._not_elected(await self._read_controller())
            return
        data, stat = await self._zk.get(ControllerEpochZnode.PATH)
        self._elected(ControllerEpochZnode.decode(data), stat)

    async def _other_broker(self, name: str) -> TopicRefusal:
        """Refuse to run beside a live broker of another id."""
        return TopicRefusal(
            ErrorCode.BROKER_NOT_AVAILABLE,
            f"Another broker is registered in this coordination metadata, {name}{await self._address(name)}, and "
            "metadata that a broker keeps itself is for one broker. Stop the other (one that was killed goes when its "
            "session has timed out); for a cluster give all brokers one ZooKeeper (zookeeper.connect=…)",
        )

    async def _address(self, name: str) -> str:
        try:
            data, _ = await self._zk.get(f"{BrokerIdZnode.ROOT}/{name}")
            broker = BrokerIdZnode.decode(int(name), data)
        except (NoNodeError, ZnodeDataError, ValueError):
            return ""
        return f" at {broker.endpoints[0].host}:{broker.endpoints[0].port}" if broker.endpoints else ""

    async def _taken(self, path: str) -> TopicRefusal | None:
        """The refusal if another session owns the znode; None if the znode is gone."""
        own_id = str(self._broker.id)
        if path == ControllerZnode.PATH:
            controller_id = await self._read_controller()
            if controller_id == -1:
                return None
            if controller_id != self._broker.id:
                return await self._other_broker(str(controller_id))
        return TopicRefusal(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"{path} exists already: a broker with id {own_id} is registered{await self._address(own_id)}. "
            "Stop it, or give this one another broker.id.",
        )

    async def _is_gone(self, path: str, within_ms: float) -> bool:
        """Wait for a znode to be deleted; return whether that happened in time."""
        gone = asyncio.Event()
        if await self._zk.exists(path, lambda _: gone.set()) is None:
            return True
        if within_ms <= 0:
            return False
        log.warning(
            "%s is there already: waiting up to %.0f s for the session of a former process to end",
            path,
            within_ms / 1000,
        )
        try:
            await asyncio.wait_for(gone.wait(), within_ms / 1000)
        except TimeoutError:
            return await self._zk.exists(path) is None
        return True

    # Membership

    async def start(self) -> None:
        """Keep the membership across sessions. Called after `join`."""
        self._is_member = True
        self._session_id = self._zk.session_id
        self._zk.on_session(self._session_changed)
        await self._watch_controller()
        await self._watch_others()

    async def stop(self) -> None:
        """Stop maintaining the membership."""
        self._is_member = False
        if self._joining is not None:
            self._joining.cancel()
            await asyncio.gather(self._joining, return_exceptions=True)

    def _session_changed(self, event: SessionEvent) -> None:
        if not self._is_member:
            return
        self.is_connected = event is SessionEvent.CONNECTED
        if event is SessionEvent.SUSPENDED:
            log.warning(
                "the connection to ZooKeeper is lost. Records and groups are served on; changes of topics and settings "
                "wait for it"
            )
        elif event is SessionEvent.EXPIRED:
            log.warning("the session with ZooKeeper has expired: this broker registers again in a new one")
            self._end_joining()
            self._not_elected(-1)  # another broker may be elected meanwhile
            self.on_changed()
        else:
            log.warning("connected to ZooKeeper again")
            self._look_again()

    def _changed(self, _: WatchEvent) -> None:
        if self._is_member:
            self._look_again()

    def _look_again(self) -> None:
        """Check the membership again; restart the check if one is under way."""
        self._end_joining()
        self._joining = asyncio.get_running_loop().create_task(self._rejoin())

    def _end_joining(self) -> None:
        if self._joining is not None:
            self._joining.cancel()

    async def _rejoin(self) -> None:
        """Renew the membership in the current session. If the connection is lost, reconnecting starts this again."""
        try:
            session_id = self._zk.session_id
            is_new = session_id != self._session_id
            if is_new:
                refusal = await self._take_place()
                if refusal is not None:
                    self.on_fatal(f"This broker could not register again: {refusal.message}")
                    return
                log.warning("registered as broker %d again, controller epoch %d", self._broker.id, self.term.epoch)
                if self.is_controller:
                    self.on_elected()
            await self._watch_controller()
            await self._watch_others()
            self._session_id = session_id
        except (ConnectionLossError, SessionExpiredError) as error:
            log.warning("registering again has to wait: %s", error)
            return
        except KraftMigrationError as error:
            self.on_fatal(str(error))
            return
        except ZnodeDataError as error:
            self.on_fatal(f"This broker could not register again: {error}")
            return
        except ZkError as error:
            log.error(
                "the coordination metadata is not that of a cluster, and this broker may not be registered in it: %s",
                error,
            )
            return
        self.on_rejoined(is_new)

    async def _watch_others(self) -> None:
        """Read the registered brokers and watch for changes."""
        brokers = await read_brokers(self._zk, self._changed)
        others = frozenset(brokers) - {self._broker.id}
        if not self._accepts_others:
            for other in sorted(others - self._reported_brokers):
                log.error(
                    "another broker, %d%s, has registered in the metadata that this broker keeps itself, which is for "
                    "one broker: it gets no partitions, and should be stopped",
                    other,
                    await self._address(str(other)),
                )
            self._reported_brokers = others
        brokers = self._with_former_epochs(self._members(brokers))
        if brokers != self.brokers:
            self.brokers = brokers
            self.on_changed()

    def _with_former_epochs(self, brokers: dict[int, LiveBroker]) -> dict[int, LiveBroker]:
        """Note which registrations have ended. This broker's own do not count: its process is alive."""
        for broker_id, before in self.brokers.items():
            now = brokers.get(broker_id)
            if broker_id != self._broker.id and (now is None or now.epoch != before.epoch):
                self._former_epochs[broker_id] = before.epoch
        former = self._former_epochs
        return {each: broker._replace(former_epoch=former.get(each, -1)) for each, broker in brokers.items()}

    async def _watch_controller(self) -> None:
        """Watch the controller's znode, and stand for election if there is none.

        Either the controller's session has ended, or a tool has deleted the znode to request an election.
        """
        for _ in range(MOST_ATTEMPTS):
            stat = await self._zk.exists(ControllerZnode.PATH, self._changed)
            if stat is None:
                await self._elect()
                continue
            if stat.ephemeral_owner == self._zk.session_id:
                # The response of the request that elected this broker may have been lost.
                before = self.term
                await self._read_epoch()
                if self.term != before:
                    self.on_elected()
                return
            if self._accepts_others:
                controller_id = await self._read_controller()
                if controller_id != self.controller_id or self.is_controller:
                    self._not_elected(controller_id)
                    self.on_changed()
                return
            refusal = await self._taken(ControllerZnode.PATH)
            if refusal is not None:
                self.on_fatal(f"This broker is not the controller any more. {refusal.message}")
            return

    async def _elect(self) -> None:
        operations: list[Operation]
        epoch, operations = await election(self._zk, self._broker.id, self._clock.now_ms())
        try:
            self._elected(epoch, (await self._zk.multi(operations))[-1])
        except (NodeExistsError, BadVersionError):
            return  # another was faster
        log.warning("elected as controller again, epoch %d", epoch)
        self.on_elected()
