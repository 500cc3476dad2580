"""The broker: its parts, their order at start and stop, and the wiring between them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.broker.authorization import ADMIN_CLIENT_ID, CONSUMER_REPLICA_ID
from ottla.broker.control.adoption import FoundPartitionDirectories
from ottla.broker.control.control_requests import ControlRequestShell
from ottla.broker.control.coordination import Coordination, open_coordination
from ottla.broker.control.delta_host import DeltaHost
from ottla.broker.control.dynamic_settings import DynamicSettings
from ottla.broker.control.encoded_passwords import encoder_problem
from ottla.broker.control.hosting import Hosting, LostLogs
from ottla.broker.control.isr_proposals import IsrProposals
from ottla.broker.control.plane import ControlPlane
from ottla.broker.control.quota_store import QuotaStore
from ottla.broker.control.startup import LogsFound, Startup, generate_broker_id
from ottla.broker.control.watched_changes import WatchedChanges
from ottla.broker.control.znodes import only_broker_of_all_topics
from ottla.broker.conversions import Conversions
from ottla.broker.coordinators.broker_requests import BrokerRequestSender
from ottla.broker.coordinators.coordinator_log import CoordinatorLog
from ottla.broker.coordinators.evidence import TIMEOUT_MS as EVIDENCE_TIMEOUT_MS
from ottla.broker.coordinators.groups import GroupCoordinatorService
from ottla.broker.dispatch import Dispatcher
from ottla.broker.fetch_sessions import FetchSessionCache
from ottla.broker.fetches.rack_reads import RackReads
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.metrics.service import MetricsService
from ottla.broker.quotas.clients import ClientQuotas
from ottla.broker.quotas.replication import ReplicationQuotas
from ottla.broker.reconfiguration import Reconfiguration, most_connections
from ottla.broker.replicas.losses import LossFile
from ottla.broker.replicas.manager import ReplicaManager
from ottla.broker.replicas.partition import Replication
from ottla.broker.slices import LoopSlices
from ottla.broker.tls import ListenerTls
from ottla.broker.upkeep import BrokerUpkeep
from ottla.broker.zookeeper_offsets import OffsetZnodes
from ottla.cluster.ids import format_uuid
from ottla.cluster.topics import TRANSACTION_STATE_TOPIC
from ottla.config.listeners import Endpoint
from ottla.config.topic import LogConfig
from ottla.env.clock import Clock, SystemClock
from ottla.env.disk import Disk, DiskError, RealDisk
from ottla.env.environment import Environment
from ottla.env.executor import DiskExecutor, Executor
from ottla.env.network import ListeningSocket, NetworkError, ServerNetwork, SystemServerNetwork
from ottla.env.outgoing import Network, SystemNetwork
from ottla.env.randomness import Randomness
from ottla.net.connection import ANONYMOUS
from ottla.net.listener import Acceptor, ConnectionSet
from ottla.storage.cleaning import MOST_THREADS, CleanerSettings
from ottla.storage.manager import LogManager
from ottla.storage.topic_settings import AdoptionMark
from ottla.storage.upkeep import StorageSettings
from ottla.wire.errors import WireError
from ottla.zk.layout import ZnodeDataError
from ottla.zk.tree import NoAuthError, ZkError

if TYPE_CHECKING:
    from ottla.broker.authentication import Authentication
    from ottla.broker.control.acl_store import AclStore
    from ottla.broker.control.delegation_tokens import DelegationTokens
    from ottla.broker.coordinators.transactions import TransactionCoordinatorService
    from ottla.broker.replicas.fetching.fetchers import ReplicaFetcherManager
    from ottla.broker.replicas.moving import ReplicaMover
    from ottla.broker.replicas.partition import Partition
    from ottla.cluster.image import ClusterImage, ImageDelta
    from ottla.config.broker import BrokerConfig
    from ottla.peer.connection import PeerConnection

log = logging.getLogger("ottla.broker")

#: Threads for flushes, cold reads, recovery and deletion.
DISK_THREADS = 4


@dataclass(frozen=True, slots=True)
class StartRefusal:
    """Why the broker does not start, as a message to the user."""

    message: str


class Broker:
    """One broker in one event loop.

    `start` binds the listeners, locks the log directories, loads the logs, joins the cluster and serves requests;
    `stop` undoes that. Handlers reach the parts through this object. Everything external can be passed in: clock, disk,
    threads, randomness, network, and a session with the coordination metadata (`coordination`), which otherwise is
    opened as configured.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
        executor: Executor | None = None,
        randomness: Randomness | None = None,
        network: ServerNetwork | None = None,
        outgoing: Network | None = None,
        coordination: Coordination | None = None,
    ) -> None:
        self.config = config
        self._network: ServerNetwork = network if network is not None else SystemServerNetwork()
        self.clock: Clock = clock if clock is not None else SystemClock()
        self.disk: Disk = disk if disk is not None else RealDisk()
        self.executor: Executor = executor if executor is not None else DiskExecutor(DISK_THREADS)
        self.randomness = randomness if randomness is not None else Randomness()
        #: What connections to other brokers use.
        self.environment = Environment(
            self.clock, outgoing if outgoing is not None else SystemNetwork(), self.randomness
        )
        self.authentication = _authentication(config, self.randomness, self.clock)
        self.log_dirs = config.log_dirs
        self.fetch_max_bytes = config.get_int("fetch.max.bytes")
        self.rack_reads = RackReads(config)
        self.conversions = Conversions(self.executor)
        #: Shares the loop between long-running work.
        self.slices = LoopSlices(self.clock.monotonic_ms)
        self.metadata_cache = MetadataCache()
        #: The fetch sessions of clients, and of followers: neither takes the place of the other.
        self.fetch_sessions = _session_cache(self)
        self.follower_sessions = _session_cache(self)
        self.connections = ConnectionSet(most_connections(config, self.disk), config.get_int("max.connections.per.ip"))
        #: Limits on replication.
        self.replication_quotas = ReplicationQuotas(config, self.clock.monotonic_ms)
        self.client_quotas = ClientQuotas(config, self.clock.monotonic_ms, self._quotas_changed)
        self.dispatcher = Dispatcher(self)
        self.listener_tls = ListenerTls(self.clock)
        #: The endpoints listened on, with resolved ports.
        self.listening: list[Endpoint] = []
        self.logs = self._log_manager(None if executor is not None else DiskExecutor(MOST_THREADS))
        self.flush_on_ack = config.get_boolean("ottla.log.flush.on.ack")
        #: The ISRs proposed to the controller.
        self.isr_proposals = IsrProposals(
            lambda topics: self.control.to_controller.alter_partitions(topics), self.slices
        )
        self.partitions = self._replica_manager()
        self.logs.on_log_dir_failed = self._log_dir_failed
        #: Called with a message when the broker cannot continue; the caller of `start` should then stop it.
        self.on_fatal: Callable[[str], None] = log.critical
        self.logs.upkeep.on_flushed = self.partitions.flushed
        self.upkeep = BrokerUpkeep(config, self.logs, self.partitions, self.connections, self.slices, self.clock)
        self.upkeep.on_tick = lambda: _renew_keys(self)
        self._coordination = coordination
        self._declare_what_runs()
        self.metrics = MetricsService(self)

    def _declare_what_runs(self) -> None:
        """Declare the attributes that exist only from the start on."""
        self._control: ControlPlane | None = None
        self.control_requests: ControlRequestShell
        self.groups: GroupCoordinatorService
        self._transactions = _LazyTransactions(self)
        self.zookeeper_offsets: OffsetZnodes
        self.dynamic_settings: DynamicSettings
        self.acls: AclStore | None = None
        self.delegation_tokens: DelegationTokens | None = None
        self._watched_changes: WatchedChanges | None = None
        self._loss_file: LossFile | None = None
        self._acceptors: list[Acceptor] = []

    def sessions_of(self, replica_id: int) -> FetchSessionCache:
        """The fetch sessions among which that of a fetch is; the replica id of a client is -1."""
        return self.follower_sessions if replica_id > CONSUMER_REPLICA_ID else self.fetch_sessions

    def _replica_manager(self) -> ReplicaManager:
        replication = Replication(
            self.clock.monotonic_ms,
            self.config.get_long("replica.lag.time.max.ms"),
            lambda broker_id: broker_id in self.image.brokers,
            self.isr_proposals.propose,
            lambda broker_id: self.control.membership.epoch_of(broker_id),
            lambda topic, index: self._control is not None and self._control.image.has_partition(topic, index),
        )
        replicas = ReplicaManager(self.logs, self.clock.now_ms, self.flush_on_ack, replication)
        replicas.make_mover = self._replica_mover
        return replicas

    def _replica_mover(self) -> ReplicaMover:
        from ottla.broker.replicas.moving import ReplicaMover

        threads = self.config.get_int_or_none("num.replica.alter.log.dirs.threads") or len(self.log_dirs)
        limit = self.replication_quotas.alter_log_dirs
        return ReplicaMover(
            self.partitions, self.logs, self.disk, self.executor, self.clock, self.slices, threads, limit
        )

    def _log_manager(self, cleaner_executor: Executor | None) -> LogManager:
        return LogManager(
            self.disk,
            self.clock,
            self.executor,
            self.log_dirs,
            self._log_config,
            StorageSettings.of(self.config),
            CleanerSettings.of(self.config),
            cleaner_executor,
            self.randomness,
        )

    @property
    def control(self) -> ControlPlane:
        """The control plane: the cluster and its topics; available after `start`."""
        assert self._control is not None, "the broker has not been started"
        return self._control

    @property
    def id(self) -> int:
        """The broker's id."""
        return self.control.broker_id

    @property
    def transactions(self) -> TransactionCoordinatorService:
        """The transaction coordinator, made when it is first needed."""
        return self._transactions.made()

    @property
    def zookeeper_port(self) -> int | None:
        """The port at which the embedded metadata is served to other processes; None if it is not."""
        served = self._coordination.server if self._coordination is not None else None
        return None if served is None else served.secure_port or served.port

    @property
    def image(self) -> ClusterImage:
        """The cluster as this broker knows it."""
        return self.control.image

    # Start

    async def start(self) -> StartRefusal | None:
        """Start the broker; on failure undo everything and return the reason."""
        unsecured = self.listener_tls.load(self.config) or _login_problems(self.config)
        if unsecured:
            return StartRefusal(unsecured)
        try:
            sockets = self._bind()
        except NetworkError as error:
            return StartRefusal(str(error))
        loop = asyncio.get_running_loop()
        self.metrics.start(loop)
        refusal = None
        has_started = False
        try:
            refusal = await self._open_and_start()
            has_started = refusal is None
        finally:
            if not has_started:  # refused, or the start was cancelled
                for listening, _ in sockets:
                    listening.close()
                self.metrics.close()
                self.logs.close()
        if refusal is not None:
            return refusal
        self._acceptors = [
            Acceptor(
                loop,
                listening,
                endpoint.listener_name,
                self.dispatcher,
                self.connections,
                log.warning,
                self.clock.monotonic_ms,
                self.listener_tls.terms.get(endpoint.listener_name),
                None if endpoint.uses_sasl else ANONYMOUS,
            )
            for listening, endpoint in sockets
        ]
        self.upkeep.start()
        self.metrics.started()
        return None

    def _bind(self) -> list[tuple[ListeningSocket, Endpoint]]:
        """Bind first: a used port is reported before any data is touched, and early clients wait in the backlog."""
        sockets: list[tuple[ListeningSocket, Endpoint]] = []
        send_buffer_bytes = self.config.get_int("socket.send.buffer.bytes")
        try:
            for endpoint in self.config.listeners:
                listening = self._network.listen(endpoint.host, endpoint.port, send_buffer_bytes=send_buffer_bytes)
                sockets.append((listening, endpoint.with_port(listening.port)))
            self.metrics.bind(self._network)
        except NetworkError:
            for listening, _ in sockets:
                listening.close()
            raise
        self.listening = [endpoint for _, endpoint in sockets]
        return sockets

    async def _open_and_start(self) -> StartRefusal | None:
        refusal = self.logs.directories.lock()
        if refusal is not None:
            return StartRefusal(refusal.message)
        is_embedded = self._coordination is None and not self.config.get_string_or_none("zookeeper.connect")
        first = self.logs.contents()[0]
        if is_embedded and first.failure is not None:
            self.logs.close()
            return StartRefusal(
                f"{first.failure}. The first directory of log.dirs holds the coordination metadata "
                "(topics, settings), without which nothing can be served. "
                f"{first.cure}, or name a directory with a copy of the files ottla-tree.* first"
            )
        failed = self.logs.failed_log_dirs
        coordination = self._coordination or await open_coordination(
            self.config, self.disk, self.executor, self.clock, self.randomness, failed, self.listener_tls.terms
        )
        if isinstance(coordination, str):
            self.logs.close()
            return StartRefusal(coordination)
        try:
            problem = await self._join_cluster(coordination)
        except ZnodeDataError as error:
            problem = f"The coordination metadata is damaged: {error}"
        except DiskError as error:
            problem = f"{error}. {error.cure}, or choose another directory (log.dirs)"
        except ZkError as error:
            problem = f"ZooKeeper at {self.config.get_string_or_none('zookeeper.connect')} failed: {error}"
            if isinstance(error, NoAuthError):
                problem += ". Log in as a user whom it allows that (ottla.zookeeper.jaas.config)"
        except asyncio.CancelledError:
            self.logs.close()
            await self._leave(coordination)
            raise
        if problem is None:
            self._coordination = coordination
            return None
        await self._leave(coordination)
        self.logs.close()
        return StartRefusal(problem)

    async def _leave(self, coordination: Coordination) -> None:
        for followed in (self.acls, self.delegation_tokens):
            if followed is not None:
                await followed.stop()
        await coordination.close()

    async def _join_cluster(self, coordination: Coordination) -> str | None:
        """Open the logs, determine the broker id, register, and host this broker's partitions; return an error, if any.

        Raises `DiskError` and `ZkError`.
        """
        zk = coordination.zk
        opening = self.executor.submit(self.logs.open)
        try:
            opened = await asyncio.shield(opening)
        except asyncio.CancelledError:
            await asyncio.wait((opening,))  # the logs cannot be closed while a thread opens them
            raise
        self.upkeep.report_storage()
        if opened is not None:
            return opened.message
        identity = self.logs.directories.stored_identity
        broker_id = self.config.broker_id
        if broker_id < 0 and identity.broker_id is not None:
            broker_id = identity.broker_id
        elif broker_id < 0:
            broker_id = await _former_or_new_id(coordination, self.config)
        self.config = self.config.with_broker_id(broker_id)
        self._load_loss_reports()
        control = self._control = self._control_plane(coordination, broker_id)
        control.membership.on_fatal = lambda message: self.on_fatal(message)
        self.partitions.make_fetchers = lambda: _fetcher_manager(self, control)
        reconfiguration = Reconfiguration(
            self.config,
            self.disk,
            self.connections,
            self.logs,
            self.partitions,
            self.replication_quotas,
            control,
            self.listener_tls,
            self.authentication,
        )
        self._host_partitions(control, coordination, reconfiguration)
        startup = Startup(
            control,
            stored_cluster_id=identity.cluster_id,
            directories=FoundPartitionDirectories(self.logs, AdoptionMark(self.disk, self._first_log_dir())),
            logs=LogsFound(self.logs, self.partitions),
        )
        cluster_id = await startup.resolve_cluster_id()
        if not isinstance(cluster_id, str):
            return cluster_id.message
        claimed = self.logs.directories.claim(cluster_id, broker_id)
        if claimed is not None:
            return claimed.message
        control.topic_configs.subscribe(reconfiguration.topic_changed)
        self.dynamic_settings = DynamicSettings(
            zk, self.config, broker_id, reconfiguration.broker_changed, reconfiguration.problem, self.randomness
        )
        await self.dynamic_settings.load()
        await _secure(self, control)
        reconfiguration.begin()
        started = await startup.start()
        if started is not None:
            return started.message
        self.upkeep.report_storage()
        self._start_coordinators(coordination, control)
        return None

    def _host_partitions(
        self, control: ControlPlane, coordination: Coordination, reconfiguration: Reconfiguration
    ) -> None:
        """Have the partitions of this broker follow the controller: this one, or another broker's requests."""
        hosting = Hosting(
            control.broker_id,
            self.partitions,
            self.slices,
            lambda topic: control.topic_configs.log_config_of(topic.name, topic.configs),
            reconfiguration.keep_settings,
            self.logs,
            LostLogs(coordination.zk, control.membership, coordination.accepts_others).is_lost,
        )
        hosting.on_no_room = control.offline_notices.host_again
        control.publisher.host = host = DeltaHost(hosting, self.slices)
        host.on_roles = control.offline_notices.note_roles
        self.control_requests = ControlRequestShell(control, hosting, self.slices)

    def _start_coordinators(self, coordination: Coordination, control: ControlPlane) -> None:
        """Start the group coordinator, and follow changes that others make to the metadata."""
        zk = coordination.zk
        evidence_requests = _evidence_requests(control) if coordination.accepts_others else None
        self.groups = GroupCoordinatorService(
            self.config, self.clock, CoordinatorLog(self.partitions), control.admin, self.randomness, evidence_requests
        )
        self.zookeeper_offsets = OffsetZnodes(zk, self.slices)
        control.publisher.subscribe(self.groups.image_changed)
        self.groups.start()
        self._transactions.follow(control)
        if coordination.is_shared:
            changes = self._watched_changes = WatchedChanges(zk, control, self.dynamic_settings, self.id, self.clock)
            control.membership.on_rejoined = changes.resume
            control.on_unknown_outcome = changes.look_at_topic
            if coordination.accepts_others:
                control.on_took_office = changes.start
            changes.start()

    def _control_plane(self, coordination: Coordination, broker_id: int) -> ControlPlane:
        bound_ports = {endpoint.listener_name: endpoint.port for endpoint in self.listening}
        # Resolving this machine's name may take seconds, so it is done only if needed.
        unnamed = any(endpoint.is_any_address for endpoint in self.config.advertised)
        own_name = self._network.canonical_host_name() if unnamed else ""
        return ControlPlane(
            coordination.session,
            self.config,
            broker_id=broker_id,
            endpoints=self.config.advertised_endpoints(bound_ports, own_name),
            clock=self.clock,
            randomness=self.randomness,
            slices=self.slices,
            environment=self.environment,
            highest_producer_id=self.logs.highest_producer_id,
        )

    def _quotas_changed(self) -> None:
        """Have requests and connections count in quotas while there are some."""
        quotas = self.client_quotas
        self.dispatcher.quotas = quotas if quotas.limits_clients else None
        self.connections.wait_of_host_ms = quotas.connection_wait_ms if quotas.limits_connections else None

    def _load_loss_reports(self) -> None:
        self._loss_file = LossFile(self.disk, self.executor, self._first_log_dir())
        try:
            self.partitions.losses.load(self._loss_file.read())
        except WireError as error:
            log.warning("the reports of lost records are damaged, and start empty: %s", error)
        self.partitions.losses.store = self._loss_file.write

    def _first_log_dir(self) -> str:
        failed = self.logs.failed_log_dirs
        return next(path for path in self.log_dirs if path not in failed)

    # Changes of the cluster

    def _log_config(self, topic: str) -> LogConfig:
        """A topic's log configuration; the broker's defaults while logs are opened, before the metadata was read."""
        if self._control is not None:
            return self._control.topic_configs.log_config(topic)
        return LogConfig.in_force(self.config, {})[0]

    def _log_dir_failed(self, gone: list[tuple[str, int]], is_last: bool) -> None:
        """Take the partitions of a failed log directory offline; their logs are closed."""
        self.upkeep.report_storage()
        self.partitions.take_offline(gone)
        if self._control is not None:
            self._control.offline_notices.take_offline(gone)
        if is_last:
            self.on_fatal(f"Shutdown broker because all log dirs in {', '.join(self.log_dirs)} have failed")

    # Stop

    async def stop(
        self, on_flush: Callable[[int], None] = lambda size: None, *, hands_leaders_over: bool = True
    ) -> None:
        """Stop serving requests, then flush all logs; `on_flush` is called with the number of bytes to flush.

        Beside other brokers, the leaders of this one are moved to them first (`controlled.shutdown.enable`), unless
        `hands_leaders_over` is false: all stop together, or a test ends this one as if it were killed.
        """
        self.metrics.stopping()
        if hands_leaders_over and self.config.get_boolean("controlled.shutdown.enable"):
            if self.control.is_controller:
                # Another controller ends it by StopReplica. A follower that fetches on is proposed for the ISRs that it
                # has just left; Apache Kafka's leaders do not look at their high watermark while that is refused.
                await self.partitions.end_fetching()
            await self.control.shut_down_controlled()
        await self.upkeep.stop()
        for acceptor in self._acceptors:
            acceptor.close()
        self.metrics.close()
        await self.dispatcher.stop()
        await self.isr_proposals.stop()
        await self.partitions.end_fetching()
        self.partitions.flush_timer.stop()
        await self.groups.stop()
        await self._transactions.stop()
        for connection in self.connections.snapshot():
            connection.close()
        size = self.logs.unflushed_bytes
        if size:
            on_flush(size)
        if self._watched_changes is not None:
            await self._watched_changes.stop()
        await self.control.close()
        if self._coordination is not None:
            await self._leave(self._coordination)
        if self._loss_file is not None:
            self._loss_file.close()
        # Last, since it unlocks the log directories, which another broker may take then; the first holds the metadata.
        self.logs.close()
        self.upkeep.report_storage()
        self.executor.close()


def _authentication(config: BrokerConfig, randomness: Randomness, clock: Clock) -> Authentication | None:
    """Authenticates the clients of listeners with SASL; None without such listeners."""
    if not any(endpoint.uses_sasl for endpoint in config.listeners):
        return None
    from ottla.broker.authentication import Authentication

    return Authentication(config, randomness, clock)


def _renew_keys(broker: Broker) -> None:
    """Use stores of keys whose files have changed, and new keys of tokens."""
    if broker.authentication is not None:
        broker.authentication.renew_keys()
    if broker.listener_tls.reload(broker.config):
        broker.control.connector.apply_settings(broker.config)


def _login_problems(config: BrokerConfig) -> str:
    """Every problem of the settings of logins and passwords; empty where there are none."""
    passwords = encoder_problem(config) or ""
    if not any(endpoint.uses_sasl for endpoint in config.listeners):
        return passwords
    from ottla.broker.logins import login_problems

    return " ".join(login_problems(config)) or passwords


async def _former_or_new_id(coordination: Coordination, config: BrokerConfig) -> int:
    """The id for log directories without `meta.properties`: that of the broker that holds all topics, or a new one.

    With a new id, all partitions would belong to a broker that never comes back. If the metadata is not in this log
    directory, that broker may be another one.
    """
    former = await only_broker_of_all_topics(coordination.zk) if coordination.store is not None else None
    if former is None:
        return await generate_broker_id(coordination.zk, config)
    log.warning("meta.properties names no broker.id; continuing as broker %d, which holds all topics", former)
    return former


def _evidence_requests(control: ControlPlane) -> BrokerRequestSender:
    """Requests by the client id that Kafka's brokers let write to internal topics."""
    return BrokerRequestSender(
        control.connector, control.image, timeout_ms=EVIDENCE_TIMEOUT_MS, client_id=ADMIN_CLIENT_ID
    )


async def _secure(broker: Broker, control: ControlPlane) -> None:
    """Follow who may log in, the ACLs, as configured, and quotas. Raises `ZkError`, `DiskError`."""
    control.known_quotas = QuotaStore(control.session.zk, broker.client_quotas)
    await control.known_quotas.load()
    if broker.config.get_string("authorizer.class.name"):
        from ottla.broker.acl_authorizer import AclAuthorizer, acl_rules
        from ottla.broker.control.acl_store import AclStore

        rules = acl_rules(broker.config)
        broker.acls = AclStore(control.session.zk, rules)
        await broker.acls.start()
        broker.dispatcher.authorizer = AclAuthorizer(rules)
    if broker.authentication is not None:
        from ottla.broker.control.scram_users import ScramUsers, salt_secret

        control.known_users = ScramUsers(control.session.zk, broker.authentication.scram)
        await control.known_users.load()
        proposed = broker.authentication.salt_secret
        broker.authentication.salt_secret = await salt_secret(control.session.zk, proposed)
    if broker.config.delegation_token_secret:
        from ottla.broker.control.delegation_tokens import DelegationTokens, DelegationTokenSettings

        broker.delegation_tokens = tokens = DelegationTokens(
            control.session.zk,
            DelegationTokenSettings.of(broker.config),
            broker.clock,
            broker.randomness,
            lambda: format_uuid(control.new_uuid()),
            lambda: control.is_controller,
        )
        await tokens.start()
        if broker.authentication is not None:
            broker.authentication.token_login = tokens.login


def _session_cache(broker: Broker) -> FetchSessionCache:
    return FetchSessionCache(
        broker.config.get_int("max.incremental.fetch.session.cache.slots"),
        lambda: 1 + broker.randomness.below(2**31 - 1),
        lambda wanted: broker.partitions.hosts(wanted.topic, wanted.index),
    )


def _fetcher_manager(broker: Broker, control: ControlPlane) -> ReplicaFetcherManager:
    """The fetchers, which copy the partitions that other brokers lead."""
    # A broker that is alone needs none of this at its start.
    from ottla.broker.replicas.fetching.fetcher import FetcherContext
    from ottla.broker.replicas.fetching.fetchers import ReplicaFetcherManager
    from ottla.broker.replicas.fetching.requests import ReplicaFetcherSettings
    from ottla.peer.errors import BrokerUnreachableError

    settings = ReplicaFetcherSettings.of(broker.config)

    async def connect(leader_id: int, client_id: str) -> PeerConnection:
        leader = control.image.brokers.get(leader_id)
        if leader is None:
            raise BrokerUnreachableError(f"broker {leader_id} is not registered in the cluster", retriable=True)
        return await control.connector.connect(leader, client_id, settings.timeout_ms)

    context = FetcherContext(
        control.broker_id,
        lambda: control.membership.broker_epoch,
        broker.partitions,
        broker.logs,
        broker.slices,
        broker.clock,
        settings,
        connect,
        broker.replication_quotas.follower,
        lambda partition: _is_in_sync(control, partition),
    )
    return ReplicaFetcherManager(context, lambda: broker.config.get_int("num.replica.fetchers"))


class _LazyTransactions:
    """The transaction coordinator, made when it is first needed: most brokers never need it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._service: TransactionCoordinatorService | None = None

    def follow(self, control: ControlPlane) -> None:
        """Coordinate transactions from the time on when their topic exists, whatever creates it."""
        control.publisher.subscribe(self._image_changed)
        if TRANSACTION_STATE_TOPIC in control.image.topics:
            self.made()

    def _image_changed(self, delta: ImageDelta) -> None:
        if any(topic.name == TRANSACTION_STATE_TOPIC for topic in delta.topics):
            self.made().image_changed(delta)

    def made(self) -> TransactionCoordinatorService:
        """The coordinator, started."""
        if self._service is None:
            from ottla.broker.coordinators.transactions import TransactionCoordinatorService

            broker, control = self._broker, self._broker.control
            timeout_ms = broker.config.get_int("request.timeout.ms")
            markers, questions = (
                BrokerRequestSender(control.connector, control.image, timeout_ms=timeout_ms) for _ in range(2)
            )
            self._service = TransactionCoordinatorService(
                control.broker_id,
                broker.config,
                broker.clock,
                broker.partitions,
                control.admin,
                broker.groups,
                control.producer_ids,
                markers,
                questions,
            )
            self._service.start()
        return self._service

    async def stop(self) -> None:
        """Stop it, if it was made."""
        if self._service is not None:
            await self._service.stop()


def _is_in_sync(control: ControlPlane, partition: Partition) -> bool:
    """Whether this broker's replica is in the ISR that the image has; True where that is not known."""
    image = control.image
    if not image.has_partition(partition.topic, partition.index):
        return True
    return control.broker_id in image.topics[partition.topic].partitions[partition.index].isr
