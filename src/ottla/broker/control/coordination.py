"""Opens the coordination metadata: embedded, in files of the first log directory, or in a ZooKeeper."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.broker.control.znodes import read_cluster_id
from ottla.env.disk import DiskError
from ottla.env.network import NetworkError
from ottla.records.extras import MissingExtraError
from ottla.zk.client import LARGEST_OVER_THE_WIRE, LARGEST_TRANSACTION, LocalClient, ZkUnreachableError, ensure_path
from ottla.zk.layout import BrokerConfigZnode, DelegationTokenZnode, UserConfigZnode, ZnodeDataError
from ottla.zk.layout.access import embedded_acl, secure_embedded_acl
from ottla.zk.session_expiry import SessionExpiry
from ottla.zk.store import LOG_NAME, TreeDamaged, TreeStore, has_metadata_files
from ottla.zk.tree import ZkError

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.env.clock import Clock
    from ottla.env.disk import Disk
    from ottla.env.executor import Executor
    from ottla.env.randomness import Randomness
    from ottla.net.tls import TlsTerms
    from ottla.zk.client import ZkClient
    from ottla.zk.server.server import ZooKeeperServer

log = logging.getLogger("ottla.broker")

SERVER_JAAS = "ottla.zookeeper.server.jaas.config"

#: Delay before a slow start is explained in the log.
FIRST_WARNING_AFTER_S = 2.0


@dataclass(frozen=True, slots=True)
class ClusterSession:
    """The broker's session with the coordination metadata, and which others may use it."""

    zk: ZkClient
    #: Whether others may change the metadata.
    is_shared: bool = False
    #: Whether other brokers may be members beside this one.
    accepts_others: bool = False
    #: How long the registration of a killed process may last, in milliseconds.
    longest_session_ms: int = 0
    #: Most bytes of one transaction, as `operation_bytes` counts them.
    transaction_bytes: int = LARGEST_TRANSACTION


@dataclass(slots=True)
class Coordination:
    """A session with the coordination metadata. `session_timeout_ms` is 0 if no other process can have sessions."""

    zk: ZkClient
    session_timeout_ms: int = 0
    store: TreeStore | None = None
    server: ZooKeeperServer | None = None
    #: Ends the sessions that other processes had while the embedded metadata was served.
    expiry: SessionExpiry | None = None
    #: Whether several brokers may be members of the cluster.
    accepts_others: bool = False

    @property
    def session(self) -> ClusterSession:
        """The session in the form that the control plane takes."""
        return ClusterSession(
            self.zk, self.is_shared, self.accepts_others, self.longest_session_ms, self.transaction_bytes
        )

    @property
    def longest_session_ms(self) -> int:
        """The longest time that a session of a former process may last from now on."""
        sessions = self.store.tree.sessions.values() if self.store is not None else ()
        return max((self.session_timeout_ms, *(session.timeout_ms for session in sessions)))

    @property
    def transaction_bytes(self) -> int:
        """Most bytes of one transaction, as `operation_bytes` counts them."""
        return LARGEST_TRANSACTION if self.store is not None else LARGEST_OVER_THE_WIRE

    @property
    def is_shared(self) -> bool:
        """Whether others may change the metadata."""
        return self.session_timeout_ms > 0

    async def close(self) -> None:
        """End the session, and force embedded metadata to the disk."""
        if self.expiry is not None:
            self.expiry.stop()
        await self.zk.close()
        if self.server is not None:
            await self.server.stop()
        if self.store is not None:
            try:
                self.store.close()
            except DiskError as error:
                log.error("the coordination metadata could not be flushed to disk: %s", error)


async def open_coordination(
    config: BrokerConfig,
    disk: Disk,
    executor: Executor,
    clock: Clock,
    randomness: Randomness,
    failed_log_dirs: Collection[str],
    tls: Mapping[str, TlsTerms],
) -> Coordination | str:
    """Open the coordination metadata as configured; a text says why that failed, and what helps."""
    address = config.get_string_or_none("zookeeper.connect")
    try:
        if address:
            return await _over_the_wire(address, config, disk, failed_log_dirs)
        problem = _metadata_elsewhere(disk, config.log_dirs, failed_log_dirs)
        if problem is not None:
            return problem
        store = TreeStore.open(
            disk,
            config.log_dirs[0],
            clock,
            executor,
            config.get_boolean("ottla.log.flush.on.ack"),
            unclean_start=config.get_boolean("ottla.tree.unclean.start.enable"),
        )
        for note in store.notes:
            log.warning("%s", note)
        if config.get_int("ottla.zookeeper.port") < 0:
            zk = LocalClient(store)
            expiry = SessionExpiry(store, clock, zk.notify)
            expiry.start()
            return Coordination(zk, store=store, expiry=expiry)
        return await _served(store, config, clock, randomness, tls)
    except TreeDamaged as error:
        return str(error)
    except DiskError as error:
        return f"{error}. {error.cure}, or choose another directory (log.dirs)"


async def _served(
    store: TreeStore, config: BrokerConfig, clock: Clock, randomness: Randomness, tls: Mapping[str, TlsTerms]
) -> Coordination | str:
    """Serve the embedded metadata to other processes as well. Raises `DiskError`."""
    from ottla.zk.server.server import ZooKeeperServer
    from ottla.zk.server.zoo_cfg import SecureListener

    users = _users(config)
    if isinstance(users, str):
        store.close()
        return users
    host, port = config.listeners[0].host, config.get_int("ottla.zookeeper.port")
    secured = config.get_string_or_none("ottla.zookeeper.tls.listener")
    server = ZooKeeperServer(
        store,
        clock,
        randomness,
        host,
        port if secured is None else None,
        on_failure=_metadata_failed,
        users=users,
        secure=None if secured is None else SecureListener(host, port, lambda: tls[secured].context),
    )
    zk = LocalClient(store, acl_of=secure_embedded_acl if config.get_boolean("zookeeper.set.acl") else embedded_acl)
    try:
        zk.protect(embedded_acl)
        for path in (UserConfigZnode.ROOT, BrokerConfigZnode.ROOT, DelegationTokenZnode.ROOT):
            await ensure_path(zk, path)  # before someone else does
        await server.start()
    except (NetworkError, DiskError) as error:
        store.close()
        return f"ottla.zookeeper.port: {error}"
    return Coordination(zk, config.get_int("zookeeper.session.timeout.ms"), store, server)


def _users(config: BrokerConfig) -> dict[str, str] | str:
    """Users who may log in to the served metadata, with their passwords; a text says why the setting cannot be read."""
    value = config.get_string_or_none(SERVER_JAAS)
    if not value:
        return {}
    from ottla.security.jaas import JaasError
    from ottla.security.zookeeper_logins import users_of_zookeeper

    try:
        return users_of_zookeeper(value)
    except JaasError as error:
        return f"{SERVER_JAAS} cannot be read: {error}"


def _metadata_failed(error: DiskError) -> None:
    log.critical("the coordination metadata is not served any more: %s", error)


async def _over_the_wire(
    address: str, config: BrokerConfig, disk: Disk, failed_log_dirs: Collection[str]
) -> Coordination | str:
    """Open a session with the ZooKeeper at `address`. kazoo is imported only here, where it is needed."""
    from ottla.zk.access import ACCESS_SETTINGS, AccessError, zookeeper_access
    from ottla.zk.address import ZkAddressError

    try:
        access = zookeeper_access({name: config.value(name) for name in ACCESS_SETTINGS})
        from ottla.zk.kazoo_client import connect_kazoo
    except AccessError as error:
        return str(error)
    except MissingExtraError as error:
        return f"zookeeper.connect: {error}"
    session_timeout_ms = config.get_int("zookeeper.session.timeout.ms")
    timeout_ms = config.get_int_or_none("zookeeper.connection.timeout.ms") or session_timeout_ms
    warning = asyncio.get_running_loop().call_later(
        FIRST_WARNING_AFTER_S,
        log.warning,
        "no ZooKeeper has answered at %s so far; trying for %g s",
        address,
        timeout_ms / 1000,
    )
    try:
        zk = await connect_kazoo(
            address,
            session_timeout_ms,
            timeout_ms,
            most_in_flight=config.get_int("zookeeper.max.in.flight.requests"),
            access=access,
        )
    except ZkAddressError as error:
        return f"zookeeper.connect: {error}"
    except ZkUnreachableError as error:
        return (
            f"{error}, or leave it out (-c zookeeper.connect=): then this broker keeps that data itself, beside its log"
        )
    finally:
        warning.cancel()
    try:
        left = [path for path in config.log_dirs if path not in failed_log_dirs and has_metadata_files(disk, path)]
        if left and await read_cluster_id(zk) is None:
            await zk.close()
            return (
                f"The coordination metadata (topics, settings) of this broker lies in {left[0]} ({LOG_NAME}), and the "
                f"ZooKeeper at {address} knows nothing of it: topics would lose their settings. Leave out "
                "zookeeper.connect to keep that data, or move the files ottla-tree.* away to continue without it"
            )
    except (ZkError, ZnodeDataError, DiskError) as error:
        await zk.close()
        return f"{error}"
    return Coordination(zk, session_timeout_ms, accepts_others=True)


def _metadata_elsewhere(disk: Disk, log_dirs: Sequence[str], failed_log_dirs: Collection[str]) -> str | None:
    """Refuse to start if another log directory than the first holds the embedded metadata. Raises `DiskError`.

    New metadata would know the topics from their partition directories, but none of their settings: retention would
    delete records that were to be kept.
    """
    first, *others = log_dirs
    if has_metadata_files(disk, first):
        return None
    there = next((path for path in others if path not in failed_log_dirs and has_metadata_files(disk, path)), None)
    if there is None:
        return None
    return (
        f"The coordination metadata (topics, settings) lies in {there}, and is looked for in {first}, the first "
        f"directory of log.dirs. Name {there} first, or move its files ottla-tree.* to {first}"
    )
