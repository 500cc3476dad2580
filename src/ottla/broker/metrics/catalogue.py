"""The broker's metrics: names, help texts, and the counters behind them.

A metric that Apache Kafka has, too, gets the name that the usual configuration of the JMX exporter for Prometheus
derives from Kafka's MBean, so that dashboards for Kafka show it; the others begin with `ottla_`. Metrics of the
controller are 0 at all other brokers, as in Apache Kafka: sum them up over the brokers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.coordinators.rebalance_figures import MOST_GROUPS, GroupFigures
from ottla.broker.metrics.declaring import BrokerMetric, kafka, ottla, summed
from ottla.broker.metrics.group_lag import GROUP_LAG
from ottla.broker.metrics.registry import Labelled, MetricsRegistry
from ottla.broker.metrics.requests import REQUESTS
from ottla.broker.metrics.topics import TOPICS, is_at_min_isr, is_under_replicated
from ottla.broker.replicas.leader import Leader
from ottla.cluster.controller import Controller
from ottla.cluster.image import NO_LEADER, PartitionImage
from ottla.env.disk import DiskError
from ottla.groups.classic.states import GroupState
from ottla.groups.coordinator import CoordinatorState
from ottla.groups.view import GroupView
from ottla.storage.log import PartitionLog

if TYPE_CHECKING:
    from ottla.broker.services import BrokerServices


def broker_registry(broker: BrokerServices) -> MetricsRegistry:
    """The registry of a running broker."""
    registry = MetricsRegistry()
    for metric in BROKER_METRICS:
        registry.add(metric.declaration, partial(metric.read, broker))
    return registry


def _replication_limits(broker: BrokerServices) -> Labelled:
    quotas = broker.replication_quotas
    by_kind = (("leader", quotas.leader), ("follower", quotas.follower), ("log_dirs", quotas.alter_log_dirs))
    return [((kind,), quota.limit if quota.is_limited else math.inf) for kind, quota in by_kind]


# Led partitions


def _shared(broker: BrokerServices) -> Iterator[tuple[Leader, PartitionLog]]:
    """The led partitions that have followers."""
    return ((each.leader, each.log) for each in tuple(broker.partitions.shared) if each.leader is not None)


# The controller


def _at_controller(read: Callable[[Controller], int]) -> Callable[[BrokerServices], int]:
    return lambda broker: read(broker.control.controller.controller) if broker.control.is_controller else 0


def _partitions(broker: BrokerServices) -> Iterator[PartitionImage]:
    """The partitions of the cluster, at the controller, without those of topics that are being deleted."""
    if broker.control.is_controller:
        controller = broker.control.controller.controller
        deleting = controller.deleting
        for topic in tuple(controller.image.topics.values()):
            if topic.name not in deleting:
                yield from topic.partitions


def _offline_partitions(broker: BrokerServices) -> Iterator[bool]:
    alive = broker.image.brokers
    return (each.leader == NO_LEADER or each.leader not in alive for each in _partitions(broker))


# Log directories


def _volumes(broker: BrokerServices) -> Iterator[tuple[tuple[str, ...], int, int]]:
    """Total and free bytes by log directory; one that has failed has none."""
    for each in broker.config.log_dirs:
        try:
            total, free = broker.disk.space(each)
        except DiskError:
            continue
        yield (each,), total, free


# Groups


def _all_groups(broker: BrokerServices) -> list[GroupView]:
    return broker.groups.groups()[1]


def _groups_in(state: GroupState) -> BrokerMetric:
    def numbers(broker: BrokerServices) -> Iterator[bool]:
        return (group.state is state for group in _all_groups(broker))

    return kafka(f"{_GROUPS}NumGroups{state.value}", f"Groups in the state {state.value}.", summed(numbers))


def _coordinators(broker: BrokerServices) -> Labelled:
    return [((state.label,), count) for state, count in broker.groups.coordinator_states().items()]


def _coordinator_of_each(broker: BrokerServices) -> Labelled:
    return [((each.group_id,), broker.groups.coordinator_state(each.group_id).value) for each in _all_groups(broker)]


_STATES = ", ".join(f"{state.value} {state.label}" for state in CoordinatorState)
_CONTROLLER = "kafka.controller:type=KafkaController,name="
_GROUPS = "kafka.coordinator.group:type=GroupMetadataManager,name="
_REPLICAS = "kafka.server:type=ReplicaManager,name="
_SESSIONS = "kafka.server:type=FetchSessionCache,name="
_SOCKETS = "kafka.server:type=socket-server-metrics,"


def _of_connections() -> list[BrokerMetric]:
    return [
        kafka(f"{_SOCKETS}connection-count", "Open connections.", lambda broker: len(broker.connections)),
        kafka(
            f"{_SOCKETS}incoming-byte-total",
            "Bytes received on all connections.",
            lambda broker: broker.connections.bytes_in(),
        ),
        kafka(
            f"{_SOCKETS}outgoing-byte-total",
            "Bytes sent on all connections.",
            lambda broker: broker.connections.bytes_out(),
        ),
        kafka(
            f"{_SOCKETS}connection-creation-total",
            "Connections accepted.",
            lambda broker: broker.connections.accepted,
        ),
        ottla(
            "connections_refused_total",
            "Connections refused by max.connections, max.connections.per.ip or the limit of open files.",
            lambda broker: broker.connections.refused,
        ),
        ottla(
            "refused_frames_total",
            "Requests that closed their connection: too large, unreadable, or of a version that is not served.",
            lambda broker: broker.dispatcher.refused_frames,
        ),
        ottla(
            "listener_certificate_expiry_timestamp_seconds",
            "When the certificate of a TLS listener expires, in seconds since 1970.",
            lambda broker: [((name,), each.expires_ms / 1000) for name, each in broker.listener_tls.terms.items()],
            "listener",
        ),
    ]


def _of_reads() -> list[BrokerMetric]:
    return [
        ottla(
            "cold_reads_total",
            "Ranges of files that were not in the page cache and read by a disk thread first.",
            lambda broker: broker.dispatcher.cold_reads,
        ),
        ottla(
            "rack_reads_told_total",
            "How often a leader here sent a consumer to a follower in its rack, to read a partition.",
            lambda broker: broker.rack_reads.referred,
        ),
        ottla(
            "follower_read_bytes_total",
            "Bytes of records that consumers read from partitions followed here.",
            lambda broker: broker.rack_reads.bytes_read,
        ),
        kafka(
            f"{_SESSIONS}NumIncrementalFetchSessions",
            "Fetch sessions.",
            lambda broker: len(broker.fetch_sessions) + len(broker.follower_sessions),
        ),
        kafka(
            f"{_SESSIONS}NumIncrementalFetchPartitionsCached",
            "Partitions in fetch sessions.",
            lambda broker: broker.fetch_sessions.partitions + broker.follower_sessions.partitions,
        ),
        kafka(
            f"{_SESSIONS}IncrementalFetchSessionEvictionsPerSec",
            "Fetch sessions that made room for others.",
            lambda broker: broker.fetch_sessions.evictions + broker.follower_sessions.evictions,
        ),
        ottla(
            "event_loop_lag_seconds",
            "How late the broker's tick, once a second, ran the last time; a request at that moment waited as long.",
            lambda broker: broker.upkeep.loop_lag.last_s,
        ),
        ottla(
            "event_loop_lag_max_seconds",
            "The latest that the broker's tick has run since the start.",
            lambda broker: broker.upkeep.loop_lag.max_s,
        ),
    ]


def _of_log_directories() -> list[BrokerMetric]:
    return [
        kafka(
            f"{_REPLICAS}PartitionCount",
            "Partitions that this broker holds, in service.",
            summed(lambda broker: (1 for _ in broker.partitions)),
        ),
        kafka(
            f"{_REPLICAS}OfflineReplicaCount",
            "Partitions of this broker whose log directory has failed.",
            lambda broker: broker.partitions.offline_count,
        ),
        kafka(
            "kafka.log:type=LogManager,name=OfflineLogDirectoryCount",
            "Log directories that have failed.",
            lambda broker: len(broker.logs.failed_log_dirs),
        ),
        kafka(
            "kafka.server:type=ReplicaAlterLogDirsManager,name=MaxLag,clientId=ReplicaAlterLogDirs",
            "Records that the move of a replica between log directories is behind, at most.",
            lambda broker: broker.partitions.move_lag,
        ),
        ottla(
            "log_dir_moves",
            "Replicas that are being moved between log directories.",
            lambda broker: len(broker.logs.placement.futures),
        ),
        ottla(
            "unflushed_bytes",
            "Bytes of records that are in the page cache and not forced to disk yet.",
            lambda broker: broker.logs.unflushed_bytes,
        ),
    ]


def _of_client_quotas() -> list[BrokerMetric]:
    return [
        ottla(
            "throttles_total",
            "Throttled requests and connections of clients, by the key of the quota.",
            lambda broker: [((key.value,), count) for key, count in broker.client_quotas.throttled.items()],
            "quota",
        ),
        ottla(
            "throttle_time_seconds_total",
            "Time for which they were throttled.",
            lambda broker: [((key.value,), ms / 1000) for key, ms in broker.client_quotas.throttled_ms.items()],
            "quota",
        ),
    ]


def _of_throttled_replication() -> list[BrokerMetric]:
    return [
        kafka(
            "kafka.server:type=LeaderReplication,byte-rate",
            "Bytes a second that followers get of the partitions whose leaders here are throttled.",
            lambda broker: broker.replication_quotas.leader.rate,
        ),
        kafka(
            "kafka.server:type=FollowerReplication,byte-rate",
            "Bytes a second that are copied to the throttled followers here.",
            lambda broker: broker.replication_quotas.follower.rate,
        ),
        kafka(
            "kafka.server:type=AlterLogDirsReplication,byte-rate",
            "Bytes a second that are moved between the log directories here.",
            lambda broker: broker.replication_quotas.alter_log_dirs.rate,
        ),
        ottla(
            "replication_limit_bytes_per_second",
            "The limits of throttled replication that are in force: leader, follower, log_dirs; +Inf for none.",
            _replication_limits,
            "kind",
        ),
    ]


def _of_led_partitions() -> list[BrokerMetric]:
    return [
        kafka(
            f"{_REPLICAS}LeaderCount",
            "Partitions that this broker leads.",
            summed(lambda broker: (each.leader is not None for each in broker.partitions)),
        ),
        kafka(
            f"{_REPLICAS}IsrShrinksPerSec",
            "Changes of ISRs led here that took a replica out.",
            lambda broker: broker.partitions.replication.isr_shrinks,
        ),
        kafka(
            f"{_REPLICAS}IsrExpandsPerSec",
            "Changes of ISRs led here that added a replica.",
            lambda broker: broker.partitions.replication.isr_expands,
        ),
        kafka(
            f"{_REPLICAS}FailedIsrUpdatesPerSec",
            "Changes of ISRs led here that the controller refused or did not answer.",
            lambda broker: broker.partitions.replication.failed_isr_updates,
        ),
        kafka(
            "kafka.server:type=ReplicaFetcherManager,name=MaxLag,clientId=Replica",
            "Records that a replica followed here is behind its leader, at most.",
            lambda broker: 0 if broker.partitions.fetchers is None else broker.partitions.fetchers.largest_lag,
        ),
        kafka(
            f"{_REPLICAS}UnderReplicatedPartitions",
            "Partitions that it leads of which a replica is not in sync, one that a reassignment adds included.",
            summed(lambda broker: (is_under_replicated(leader) for leader, _ in _shared(broker))),
        ),
        kafka(
            f"{_REPLICAS}UnderMinIsrPartitionCount",
            "Partitions that it leads that refuse acks=all.",
            summed(
                lambda broker: (
                    not leader.has_enough(log.config.min_insync_replicas) for leader, log in _shared(broker)
                )
            ),
        ),
        kafka(
            f"{_REPLICAS}AtMinIsrPartitionCount",
            "Partitions that it leads that lack a replica, and refuse acks=all if one more falls behind.",
            summed(lambda broker: (is_at_min_isr(leader, log) for leader, log in _shared(broker))),
        ),
    ]


def _of_the_controller() -> list[BrokerMetric]:
    return [
        kafka(
            f"{_CONTROLLER}ActiveControllerCount",
            "1 at the controller.",
            lambda broker: int(broker.control.is_controller),
        ),
        kafka(
            f"{_CONTROLLER}GlobalTopicCount",
            "At the controller: topics of the cluster.",
            _at_controller(lambda controller: len(controller.image.topics)),
        ),
        kafka(
            f"{_CONTROLLER}GlobalPartitionCount",
            "At the controller: partitions of the cluster.",
            _at_controller(lambda controller: sum(len(each.partitions) for each in controller.image.topics.values())),
        ),
        kafka(
            f"{_CONTROLLER}ActiveBrokerCount",
            "At the controller: brokers of the cluster that are alive.",
            _at_controller(lambda controller: len(controller.image.brokers)),
        ),
        kafka(
            f"{_CONTROLLER}OfflinePartitionsCount",
            "At the controller: partitions without a live leader.",
            summed(_offline_partitions),
        ),
        kafka(
            f"{_CONTROLLER}PreferredReplicaImbalanceCount",
            "At the controller: partitions that are not led by their preferred replica.",
            summed(lambda broker: (each.leader != each.replicas[0] for each in _partitions(broker))),
        ),
        kafka(
            f"{_CONTROLLER}TopicsToDeleteCount",
            "At the controller: topics whose deletion is under way.",
            _at_controller(lambda controller: len(controller.deleting)),
        ),
        kafka(
            f"{_CONTROLLER}TopicsIneligibleToDeleteCount",
            "At the controller: those that wait for a broker that is not there, or whose log directory has failed.",
            _at_controller(lambda controller: len(controller.waiting_deletions)),
        ),
        ottla(
            "reassigning_partitions",
            "At the controller: partitions that reassignments move.",
            _at_controller(lambda controller: controller.reassigning),
        ),
    ]


def _of_volumes_and_lost_records() -> list[BrokerMetric]:
    return [
        ottla(
            "log_directory_usable_bytes",
            "Free bytes of the volume of a log directory.",
            lambda broker: ((path, free) for path, _, free in _volumes(broker)),
            "log_directory",
        ),
        ottla(
            "log_directory_total_bytes",
            "Size of the volume of a log directory.",
            lambda broker: ((path, total) for path, total, _ in _volumes(broker)),
            "log_directory",
        ),
        kafka(
            "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec",
            "Leaders elected by this broker as controller that were not in sync.",
            lambda broker: broker.control.controller.controller.unclean_elections,
        ),
        ottla(
            "unclean_leaderships_total",
            "Partitions that this broker began to lead without having been in sync.",
            lambda broker: broker.partitions.losses.unclean_leaderships,
        ),
        ottla(
            "removed_records_total",
            "Offsets that replicas here have removed as followers, since their leaders do not have the records.",
            lambda broker: broker.partitions.losses.removed_records,
        ),
        ottla(
            "lost_records_total",
            "Those of them that are known to have been committed.",
            lambda broker: broker.partitions.losses.lost_records,
        ),
    ]


def _of_groups() -> list[BrokerMetric]:
    return [
        kafka(
            f"{_GROUPS}NumGroups",
            "Groups that this broker coordinates, and has loaded.",
            lambda broker: len(_all_groups(broker)),
        ),
        *(_groups_in(state) for state in GroupState),
        kafka(
            f"{_GROUPS}NumOffsets",
            "Committed offsets of these groups.",
            summed(lambda broker: (len(group.committed) for group in _all_groups(broker))),
        ),
        ottla(
            "group_coordinators",
            "Coordinators by how far they are: groups; partitions of the offsets topic where it is not known yet which "
            "groups they hold.",
            _coordinators,
            "state",
        ),
        ottla(
            "group_coordinator_state",
            f"How far a group's coordinator is: {_STATES}.",
            _coordinator_of_each,
            "group",
        ),
    ]


def _of_coordinators() -> list[BrokerMetric]:
    return [
        ottla(
            "group_requests_total",
            "JoinGroup, SyncGroup, LeaveGroup, OffsetCommit, OffsetDelete, DeleteGroups (each group) taken up.",
            lambda broker: broker.groups.metrics.requests,
        ),
        ottla("group_heartbeats_total", "Heartbeats answered.", lambda broker: broker.groups.metrics.heartbeats),
        ottla("group_rebalances_total", "Rebalances that have ended.", lambda broker: broker.groups.rebalances),
        ottla(
            "group_expired_offsets_total",
            "Committed offsets removed by offsets.retention.minutes.",
            lambda broker: broker.groups.metrics.expired_offsets,
        ),
        ottla(
            "rebalance_evidence_written_total",
            "Rebalances recorded in __ottla_rebalances.",
            lambda broker: broker.groups.evidence.written,
        ),
        ottla(
            "rebalance_evidence_dropped_total",
            "Rebalances whose record was lost: the topic could not be made or written.",
            lambda broker: broker.groups.evidence.dropped,
        ),
        ottla(
            "coordinator_append_failures_total",
            "Appends to __consumer_offsets that failed.",
            lambda broker: broker.groups.runtime.metrics.append_failures,
        ),
        ottla(
            "coordinator_loaded_records_total",
            "Records replayed when partitions of __consumer_offsets were loaded.",
            lambda broker: broker.groups.runtime.metrics.loaded_records,
        ),
        ottla(
            "coordinator_load_max_seconds",
            "The longest that loading a partition of __consumer_offsets took.",
            lambda broker: broker.groups.runtime.metrics.load_ms_max / 1000,
        ),
        ottla(
            "coordinator_timer_runs_total",
            "Times that the groups' timer ran.",
            lambda broker: broker.groups.runtime.metrics.timer_runs,
        ),
    ]


def _of_rebalances() -> list[BrokerMetric]:
    def by_group(value: Callable[[GroupFigures], float]) -> Callable[[BrokerServices], Labelled]:
        return lambda broker: [
            ((group,), value(each)) for group, each in broker.groups.rebalance_figures.groups.items()
        ]

    def causes(broker: BrokerServices) -> Labelled:
        groups = broker.groups.rebalance_figures.groups.items()
        return [((group, cause), count) for group, each in groups for cause, count in each.causes.items()]

    return [
        ottla(
            "group_rebalance_causes_total",
            f"Rebalances that have ended, by their first cause, of the {MOST_GROUPS:,} groups that rebalanced last.",
            causes,
            "group",
            "cause",
        ),
        ottla(
            "group_rebalance_seconds_total",
            "How long these rebalances took.",
            by_group(lambda each: each.rebalance_ms / 1000),
            "group",
        ),
        ottla(
            "group_pause_seconds_total",
            "The longest pause of a member in each of these rebalances, summed up.",
            by_group(lambda each: each.pause_ms / 1000),
            "group",
        ),
        ottla(
            "group_last_pause_seconds",
            "The longest pause of a member in the group's last rebalance.",
            by_group(lambda each: each.last_pause_ms / 1000),
            "group",
        ),
    ]


BROKER_METRICS: tuple[BrokerMetric, ...] = (
    *REQUESTS,
    *TOPICS,
    *_of_connections(),
    *_of_reads(),
    *_of_log_directories(),
    *_of_client_quotas(),
    *_of_throttled_replication(),
    *_of_led_partitions(),
    *_of_the_controller(),
    *_of_volumes_and_lost_records(),
    *_of_groups(),
    *_of_coordinators(),
    *_of_rebalances(),
    *GROUP_LAG,
    # The last one, so that it knows of the others.
    ottla(
        "metrics_left_out",
        "Metrics that this scrape leaves out: they have too many values, or cannot be read.",
        lambda broker: broker.metrics.left_out,
    ),
)
