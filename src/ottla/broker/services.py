"""The parts of a broker as handlers, metrics and the dispatcher take them (`server.Broker` has them)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ottla.broker.authentication import Authentication
    from ottla.broker.authorization import Authorizer
    from ottla.broker.context import RequestContext
    from ottla.broker.control.acl_store import AclStore
    from ottla.broker.control.control_requests import ControlRequestShell
    from ottla.broker.control.delegation_tokens import DelegationTokens
    from ottla.broker.control.dynamic_settings import DynamicSettings
    from ottla.broker.control.plane import ControlPlane
    from ottla.broker.conversions import Conversions
    from ottla.broker.coordinators.groups import GroupCoordinatorService
    from ottla.broker.coordinators.transactions import TransactionCoordinatorService
    from ottla.broker.fetch_sessions import FetchSessionCache
    from ottla.broker.fetches.rack_reads import RackReads
    from ottla.broker.metadata_cache import MetadataCache
    from ottla.broker.metrics.lag_figures import LagFigures
    from ottla.broker.quotas.clients import ClientQuotas
    from ottla.broker.quotas.replication import ReplicationQuotas
    from ottla.broker.replicas.manager import ReplicaManager
    from ottla.broker.request_figures import RequestFigures
    from ottla.broker.slices import LoopSlices
    from ottla.broker.tls import ListenerTls
    from ottla.broker.upkeep import BrokerUpkeep
    from ottla.broker.zookeeper_offsets import OffsetZnodes
    from ottla.cluster.image import ClusterImage
    from ottla.config.broker import BrokerConfig
    from ottla.env.clock import Clock
    from ottla.env.disk import Disk
    from ottla.env.executor import Executor
    from ottla.net.connection import Connection, QueuedBytes
    from ottla.net.listener import ConnectionSet
    from ottla.storage.manager import LogManager


class RequestWork(Protocol):
    """The dispatcher, as requests in work and metrics see it."""

    authorizer: Authorizer | None
    queued: QueuedBytes
    #: By API key.
    requests: dict[int, RequestFigures]
    #: Of the fetches of consumers, and of followers.
    fetches: tuple[RequestFigures, RequestFigures]
    refused_frames: int
    cold_reads: int

    def run(self, context: RequestContext, work: Coroutine[object, object, None]) -> None:
        """See `RequestContext.run`."""
        ...

    def spawn(self, context: RequestContext, work: Coroutine[object, object, None]) -> object:
        """See `RequestContext.spawn`."""
        ...

    def report_failure(self, connection: Connection, error: Exception) -> None:
        """Log why a request failed that was in order."""
        ...


class ServedMetrics(Protocol):
    """The metrics, as they see themselves."""

    lags: LagFigures

    @property
    def left_out(self) -> int:
        """Metrics that could not be read, or had too many values."""
        ...


class BrokerServices(Protocol):
    """A broker's parts."""

    config: BrokerConfig
    authentication: Authentication | None
    fetch_max_bytes: int
    clock: Clock
    disk: Disk
    executor: Executor
    slices: LoopSlices
    connections: ConnectionSet
    listener_tls: ListenerTls
    logs: LogManager
    partitions: ReplicaManager
    control_requests: ControlRequestShell
    dynamic_settings: DynamicSettings
    groups: GroupCoordinatorService
    zookeeper_offsets: OffsetZnodes
    #: None without an authorizer.
    acls: AclStore | None
    #: None without a secret for them.
    delegation_tokens: DelegationTokens | None
    fetch_sessions: FetchSessionCache
    follower_sessions: FetchSessionCache
    metadata_cache: MetadataCache
    rack_reads: RackReads
    conversions: Conversions
    client_quotas: ClientQuotas
    replication_quotas: ReplicationQuotas
    upkeep: BrokerUpkeep

    @property
    def id(self) -> int:
        """The broker's id."""
        ...

    @property
    def transactions(self) -> TransactionCoordinatorService:
        """The transaction coordinator, loaded when it is first needed."""
        ...

    @property
    def control(self) -> ControlPlane:
        """The cluster and its topics."""
        ...

    @property
    def image(self) -> ClusterImage:
        """The cluster as this broker knows it."""
        ...

    @property
    def dispatcher(self) -> RequestWork:
        """Runs the work of requests."""
        ...

    @property
    def metrics(self) -> ServedMetrics:
        """The metrics of this broker."""
        ...

    def sessions_of(self, replica_id: int) -> FetchSessionCache:
        """The fetch sessions among which that of a fetch is; the replica id of a client is -1."""
        ...
