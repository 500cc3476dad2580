"""The broker's metrics: names, help texts, and the counters behind them.

A figure that Apache Kafka has, too, gets the name that the usual configuration of the JMX exporter for Prometheus
derives from Kafka's MBean, so that dashboards for Kafka show it; the others begin with `ottla_`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.metrics import cluster_figures as figures
from ottla.broker.metrics.registry import Labelled, MetricDeclaration, MetricKind, MetricsRegistry
from ottla.groups.coordinator import CoordinatorState
from ottla.groups.states import GroupState
from ottla.wire.apis import API

if TYPE_CHECKING:
    from ottla.broker.services import BrokerServices
    from ottla.groups.machine import GroupMachine

MOST_GROUPS = 1_000
"""Most groups with a value of their own; a broker with more of them counts them by state only."""

COUNTER, GAUGE = MetricKind.COUNTER, MetricKind.GAUGE


class BrokerMetric(NamedTuple):
    """A metric of the broker; `mbean` is Kafka's name of it, None if Kafka has no such metric."""

    declaration: MetricDeclaration
    mbean: str | None
    read: Callable[[BrokerServices], Labelled]


def broker_registry(broker: BrokerServices) -> MetricsRegistry:
    """The registry of a running broker."""
    registry = MetricsRegistry()
    for metric in BROKER_METRICS:
        registry.add(metric.declaration, partial(metric.read, broker))
    return registry


def _one(read: Callable[[BrokerServices], float]) -> Callable[[BrokerServices], Labelled]:
    """The reader of a metric without labels."""
    return lambda broker: [((), read(broker))]


def _kafka(
    mbean: str,
    name: str,
    kind: MetricKind,
    text: str,
    read: Callable[[BrokerServices], Labelled],
    labels: tuple[str, ...] = (),
) -> BrokerMetric:
    return BrokerMetric(MetricDeclaration(name, kind, text, labels), mbean, read)


def _ottla(
    name: str, kind: MetricKind, text: str, read: Callable[[BrokerServices], Labelled], labels: tuple[str, ...] = ()
) -> BrokerMetric:
    return BrokerMetric(MetricDeclaration(f"ottla_{name}", kind, text, labels), None, read)


# Requests and connections


def _requests(broker: BrokerServices) -> Iterator[tuple[tuple[str, ...], float]]:
    for key, count in broker.dispatcher.requests.items():
        yield (API[key].name,), count


def _messages_in(broker: BrokerServices) -> Labelled:
    counts: Counter[str] = Counter()
    for partition in broker.partitions:
        counts[partition.topic] += partition.log.log_end_offset - partition.loaded_end_offset
    return [((topic,), count) for topic, count in counts.items()]


# Groups


def _machines(broker: BrokerServices) -> list[GroupMachine]:
    return broker.groups.groups()[1]


def _groups_in(state: GroupState) -> Callable[[BrokerServices], Labelled]:
    return _one(lambda broker: sum(1 for machine in _machines(broker) if machine.state is state))


def _coordinators(broker: BrokerServices) -> Labelled:
    return [((state.label,), count) for state, count in broker.groups.coordinator_states().items()]


def _coordinator_of_each(broker: BrokerServices) -> Labelled:
    machines = _machines(broker)
    if len(machines) > MOST_GROUPS:
        return []
    return [((each.group_id,), broker.groups.coordinator_state(each.group_id).value) for each in machines]


_STATES = ", ".join(f"{state.value} {state.label}" for state in CoordinatorState)
_GROUPS = "kafka.coordinator.group:type=GroupMetadataManager,name="


def _of_requests() -> Iterator[BrokerMetric]:
    """Requests and connections."""
    yield from (
        _kafka(
            "kafka.network:type=RequestMetrics,name=RequestsPerSec,request=*",
            "kafka_network_requestmetrics_requests_total",
            COUNTER,
            "Requests taken up, by API.",
            _requests,
            ("request",),
        ),
        _kafka(
            "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic=*",
            "kafka_server_brokertopicmetrics_messagesin_total",
            COUNTER,
            "Records appended to the partitions of a topic since the broker took them up, control records included.",
            _messages_in,
            ("topic",),
        ),
        _kafka(
            "kafka.server:type=socket-server-metrics,connection-count",
            "kafka_server_socket_server_metrics_connection_count",
            GAUGE,
            "Open connections.",
            _one(lambda broker: len(broker.connections)),
        ),
        _kafka(
            "kafka.server:type=socket-server-metrics,incoming-byte-total",
            "kafka_server_socket_server_metrics_incoming_byte_total",
            COUNTER,
            "Bytes received on all connections.",
            _one(lambda broker: broker.connections.bytes_in()),
        ),
        _kafka(
            "kafka.server:type=socket-server-metrics,outgoing-byte-total",
            "kafka_server_socket_server_metrics_outgoing_byte_total",
            COUNTER,
            "Bytes sent on all connections.",
            _one(lambda broker: broker.connections.bytes_out()),
        ),
    )


def _of_refusals_and_cold_reads() -> Iterator[BrokerMetric]:
    """Connections and requests that were refused, and reads that waited for the disk."""
    yield from (
        _ottla(
            "connections_refused_total",
            COUNTER,
            "Connections refused by max.connections, max.connections.per.ip or the limit of open files.",
            _one(lambda broker: broker.connections.refused),
        ),
        _ottla(
            "refused_frames_total",
            COUNTER,
            "Requests that closed their connection: too large, unreadable, or of a version that is not served.",
            _one(lambda broker: broker.dispatcher.refused_frames),
        ),
        _ottla(
            "cold_reads_total",
            COUNTER,
            "Ranges of files that were not in the page cache and read by a disk thread first.",
            _one(lambda broker: broker.dispatcher.cold_reads),
        ),
        _ottla(
            "rack_reads_told_total",
            COUNTER,
            "How often a leader here told a consumer to read a partition from a follower in its rack.",
            _one(lambda broker: broker.rack_reads.referred),
        ),
        _ottla(
            "follower_read_bytes_total",
            COUNTER,
            "Bytes of records that consumers read from partitions followed here.",
            _one(lambda broker: broker.rack_reads.bytes_read),
        ),
    )


def _of_fetch_sessions_and_loop() -> Iterator[BrokerMetric]:
    """Fetch sessions, and the event loop."""
    yield from (
        _kafka(
            "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions",
            "kafka_server_fetchsessioncache_numincrementalfetchsessions",
            GAUGE,
            "Fetch sessions.",
            _one(lambda broker: len(broker.fetch_sessions) + len(broker.follower_sessions)),
        ),
        _kafka(
            "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchPartitionsCached",
            "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached",
            GAUGE,
            "Partitions in fetch sessions.",
            _one(lambda broker: broker.fetch_sessions.partitions + broker.follower_sessions.partitions),
        ),
        _kafka(
            "kafka.server:type=FetchSessionCache,name=IncrementalFetchSessionEvictionsPerSec",
            "kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total",
            COUNTER,
            "Fetch sessions that made room for others.",
            _one(lambda broker: broker.fetch_sessions.evictions + broker.follower_sessions.evictions),
        ),
        _ottla(
            "event_loop_lag_seconds",
            GAUGE,
            "How late the broker's tick, once a second, ran the last time; a request at that moment waited as long.",
            _one(lambda broker: broker.upkeep.loop_lag.last_s),
        ),
        _ottla(
            "event_loop_lag_max_seconds",
            GAUGE,
            "The latest that the broker's tick has run since the start.",
            _one(lambda broker: broker.upkeep.loop_lag.max_s),
        ),
    )


def _of_partitions() -> Iterator[BrokerMetric]:
    """Partitions and log directories."""
    yield from (
        _kafka(
            "kafka.server:type=ReplicaManager,name=PartitionCount",
            "kafka_server_replicamanager_partitioncount",
            GAUGE,
            "Partitions that this broker holds, in service.",
            _one(lambda broker: sum(1 for _ in broker.partitions)),
        ),
        _kafka(
            "kafka.server:type=ReplicaManager,name=OfflineReplicaCount",
            "kafka_server_replicamanager_offlinereplicacount",
            GAUGE,
            "Partitions of this broker whose log directory has failed.",
            _one(lambda broker: broker.partitions.offline_count),
        ),
        _kafka(
            "kafka.controller:type=KafkaController,name=GlobalTopicCount",
            "kafka_controller_kafkacontroller_globaltopiccount",
            GAUGE,
            "Topics of the cluster, as this broker knows it.",
            _one(lambda broker: len(broker.image.topics)),
        ),
        _kafka(
            "kafka.log:type=LogManager,name=OfflineLogDirectoryCount",
            "kafka_log_logmanager_offlinelogdirectorycount",
            GAUGE,
            "Log directories that have failed.",
            _one(lambda broker: len(broker.logs.failed_log_dirs)),
        ),
        _kafka(
            "kafka.server:type=ReplicaAlterLogDirsManager,name=MaxLag,clientId=ReplicaAlterLogDirs",
            "kafka_server_replicaalterlogdirsmanager_maxlag",
            GAUGE,
            "Records that the move of a replica between log directories is behind, at most.",
            _one(lambda broker: broker.partitions.move_lag),
        ),
        _ottla(
            "log_dir_moves",
            GAUGE,
            "Replicas that are being moved between log directories.",
            _one(lambda broker: len(broker.logs.placement.futures)),
        ),
        _ottla(
            "unflushed_bytes",
            GAUGE,
            "Bytes of records that are in the page cache and not forced to disk yet.",
            _one(lambda broker: broker.logs.unflushed_bytes),
        ),
    )


def _of_replication_quotas() -> Iterator[BrokerMetric]:
    """Rates of throttled replication."""
    yield from (
        _kafka(
            "kafka.server:type=LeaderReplication,byte-rate",
            "kafka_server_leaderreplication_byte_rate",
            GAUGE,
            "Bytes a second that followers get of the partitions whose leaders here are throttled.",
            _one(lambda broker: broker.replication_quotas.leader.rate),
        ),
        _kafka(
            "kafka.server:type=FollowerReplication,byte-rate",
            "kafka_server_followerreplication_byte_rate",
            GAUGE,
            "Bytes a second that are copied to the throttled followers here.",
            _one(lambda broker: broker.replication_quotas.follower.rate),
        ),
        _kafka(
            "kafka.server:type=AlterLogDirsReplication,byte-rate",
            "kafka_server_alterlogdirsreplication_byte_rate",
            GAUGE,
            "Bytes a second that are moved between the log directories here.",
            _one(lambda broker: broker.replication_quotas.alter_log_dirs.rate),
        ),
        _ottla(
            "replication_limit_bytes_per_second",
            GAUGE,
            "The limits of throttled replication that are in force: leader, follower, log_dirs; +Inf for none.",
            _replication_limits,
            ("kind",),
        ),
    )


def _replication_limits(broker: BrokerServices) -> Labelled:
    quotas = broker.replication_quotas
    kinds = (("leader", quotas.leader), ("follower", quotas.follower), ("log_dirs", quotas.alter_log_dirs))
    return [((kind,), quota.limit if quota.is_limited else math.inf) for kind, quota in kinds]


def _of_lost_records() -> Iterator[BrokerMetric]:
    """Unclean elections, and what they lost."""
    yield from (
        _kafka(
            "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec",
            "kafka_controller_controllerstats_uncleanleaderelections_total",
            COUNTER,
            "Leaders elected by this broker as controller that were not in sync.",
            _one(lambda broker: broker.control.controller.controller.unclean_elections),
        ),
        _ottla(
            "unclean_leaderships_total",
            COUNTER,
            "Partitions that this broker began to lead without having been in sync.",
            _one(lambda broker: broker.partitions.losses.unclean_leaderships),
        ),
        _ottla(
            "removed_records_total",
            COUNTER,
            "Offsets that replicas here have removed as followers, since their leaders do not have the records.",
            _one(lambda broker: broker.partitions.losses.removed_records),
        ),
        _ottla(
            "lost_records_total",
            COUNTER,
            "Those of them that are known to have been committed.",
            _one(lambda broker: broker.partitions.losses.lost_records),
        ),
    )


_REPLICAS = "kafka.server:type=ReplicaManager,name="
_CONTROLLER = "kafka.controller:type=KafkaController,name="


def _of_leaders() -> Iterator[BrokerMetric]:
    """Metrics of the partitions that this broker leads."""
    for name, text, read in (
        ("LeaderCount", "Partitions that this broker leads.", figures.leaders),
        (
            "UnderReplicatedPartitions",
            "Partitions that it leads of which a replica is not in sync, one that a reassignment adds included.",
            figures.under_replicated,
        ),
        ("UnderMinIsrPartitionCount", "Partitions that it leads that refuse acks=all.", figures.under_min_isr),
        (
            "AtMinIsrPartitionCount",
            "Partitions that it leads that lack a replica, and refuse acks=all if one more falls behind.",
            figures.at_min_isr,
        ),
    ):
        yield _kafka(f"{_REPLICAS}{name}", f"kafka_server_replicamanager_{name.lower()}", GAUGE, text, _one(read))


def _of_the_controller() -> Iterator[BrokerMetric]:
    """The controller's metrics; 0 at other brokers."""
    for name, text, read in (
        ("ActiveControllerCount", "1 at the controller.", figures.active_controller),
        ("OfflinePartitionsCount", "At the controller: partitions without a live leader.", figures.offline_partitions),
        (
            "PreferredReplicaImbalanceCount",
            "At the controller: partitions that are not led by their preferred replica.",
            figures.not_preferred,
        ),
        ("TopicsToDeleteCount", "At the controller: topics whose deletion is under way.", figures.topics_to_delete),
        (
            "TopicsIneligibleToDeleteCount",
            "At the controller: those that wait for a broker that is not there, or whose log directory has failed.",
            figures.topics_that_wait,
        ),
    ):
        yield _kafka(
            f"{_CONTROLLER}{name}", f"kafka_controller_kafkacontroller_{name.lower()}", GAUGE, text, _one(read)
        )
    yield _ottla(
        "reassigning_partitions",
        GAUGE,
        "At the controller: partitions that reassignments move.",
        _one(figures.reassigning),
    )


def _of_disks() -> Iterator[BrokerMetric]:
    """Volumes of log directories."""
    yield _ottla(
        "log_directory_usable_bytes",
        GAUGE,
        "Free bytes of the volume of a log directory.",
        figures.usable_bytes,
        ("log_directory",),
    )
    yield _ottla(
        "log_directory_total_bytes",
        GAUGE,
        "Size of the volume of a log directory.",
        figures.total_bytes,
        ("log_directory",),
    )


def _of_group_states() -> Iterator[BrokerMetric]:
    """Groups by their states."""
    yield from (
        _kafka(
            f"{_GROUPS}NumGroups",
            "kafka_coordinator_group_groupmetadatamanager_numgroups",
            GAUGE,
            "Groups that this broker coordinates, and has loaded.",
            _one(lambda broker: len(_machines(broker))),
        ),
        *(
            _kafka(
                f"{_GROUPS}NumGroups{state.value}",
                f"kafka_coordinator_group_groupmetadatamanager_numgroups{state.value.lower()}",
                GAUGE,
                f"Groups in the state {state.value}.",
                _groups_in(state),
            )
            for state in GroupState
        ),
        _kafka(
            f"{_GROUPS}NumOffsets",
            "kafka_coordinator_group_groupmetadatamanager_numoffsets",
            GAUGE,
            "Committed offsets of these groups.",
            _one(lambda broker: sum(len(machine.offsets) for machine in _machines(broker))),
        ),
    )


def _of_coordinators() -> Iterator[BrokerMetric]:
    """States of coordinators, and their work."""
    yield from (
        _ottla(
            "group_coordinators",
            GAUGE,
            "Coordinators by how far they are: groups; partitions of the offsets topic where it is not known yet which "
            "groups they hold.",
            _coordinators,
            ("state",),
        ),
        _ottla(
            "group_coordinator_state",
            GAUGE,
            f"How far a group's coordinator is: {_STATES}. Left out beyond {MOST_GROUPS:,} groups.",
            _coordinator_of_each,
            ("group",),
        ),
        _ottla(
            "group_requests_total",
            COUNTER,
            "JoinGroup, SyncGroup, LeaveGroup, OffsetCommit, OffsetDelete, DeleteGroups (each group) taken up.",
            _one(lambda broker: broker.groups.metrics.requests),
        ),
        _ottla(
            "group_heartbeats_total",
            COUNTER,
            "Heartbeats answered.",
            _one(lambda broker: broker.groups.metrics.heartbeats),
        ),
        _ottla(
            "group_rebalances_total",
            COUNTER,
            "Rebalances that have ended.",
            _one(lambda broker: broker.groups.rebalances),
        ),
        _ottla(
            "group_expired_offsets_total",
            COUNTER,
            "Committed offsets removed by offsets.retention.minutes.",
            _one(lambda broker: broker.groups.metrics.expired_offsets),
        ),
    )


def _of_coordinator_log() -> Iterator[BrokerMetric]:
    """The coordinator's log, evidence and timer."""
    yield from (
        _ottla(
            "rebalance_evidence_written_total",
            COUNTER,
            "Rebalances recorded in __ottla_rebalances.",
            _one(lambda broker: broker.groups.evidence.written),
        ),
        _ottla(
            "rebalance_evidence_dropped_total",
            COUNTER,
            "Rebalances whose record was lost: the topic could not be made or written.",
            _one(lambda broker: broker.groups.evidence.dropped),
        ),
        _ottla(
            "coordinator_append_failures_total",
            COUNTER,
            "Appends to __consumer_offsets that failed.",
            _one(lambda broker: broker.groups.runtime.metrics.append_failures),
        ),
        _ottla(
            "coordinator_loaded_records_total",
            COUNTER,
            "Records replayed when partitions of __consumer_offsets were loaded.",
            _one(lambda broker: broker.groups.runtime.metrics.loaded_records),
        ),
        _ottla(
            "coordinator_load_max_seconds",
            GAUGE,
            "The longest that loading a partition of __consumer_offsets took.",
            _one(lambda broker: broker.groups.runtime.metrics.load_ms_max / 1000),
        ),
        _ottla(
            "coordinator_timer_runs_total",
            COUNTER,
            "Times that the groups' timer ran.",
            _one(lambda broker: broker.groups.runtime.metrics.timer_runs),
        ),
    )


BROKER_METRICS: tuple[BrokerMetric, ...] = (
    *_of_requests(),
    *_of_refusals_and_cold_reads(),
    *_of_fetch_sessions_and_loop(),
    *_of_partitions(),
    *_of_replication_quotas(),
    *_of_leaders(),
    *_of_the_controller(),
    *_of_disks(),
    *_of_lost_records(),
    *_of_group_states(),
    *_of_coordinators(),
    *_of_coordinator_log(),
)
