"""Metrics of topics and partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from ottla.broker.metrics.declaring import BrokerMetric, exporter, kafka

if TYPE_CHECKING:
    from ottla.broker.metrics.registry import Labelled
    from ottla.broker.replicas.leader import Leader
    from ottla.broker.replicas.partition import Partition
    from ottla.broker.replicas.traffic import TopicTraffic
    from ottla.broker.services import BrokerServices
    from ottla.cluster.image import TopicImage
    from ottla.storage.log import PartitionLog

_TRAFFIC: Final = "kafka.server:type=BrokerTopicMetrics,name="
_LED: Final = "kafka.cluster:type=Partition,name="
_LOG: Final = "kafka.log:type=Log,name="
_BOTH: Final = ",topic=*,partition=*"


def _by_topic(name: str, text: str, value: Callable[[TopicTraffic], int]) -> BrokerMetric:
    def read(broker: BrokerServices) -> Labelled:
        return [((topic,), value(traffic)) for topic, traffic in broker.partitions.traffic.items()]

    return kafka(f"{_TRAFFIC}{name}PerSec,topic=*", text, read)


def _by_log(name: str, text: str, value: Callable[[PartitionLog], int]) -> BrokerMetric:
    def read(broker: BrokerServices) -> Labelled:
        return (((each.topic, str(each.index)), value(each.log)) for each in broker.partitions)

    return kafka(f"{_LOG}{name}{_BOTH}", text, read)


def _led(broker: BrokerServices) -> Iterator[tuple[Partition, Leader]]:
    return ((each, each.leader) for each in broker.partitions if each.leader is not None)


def _by_led(value: Callable[[Partition, Leader], float]) -> Callable[[BrokerServices], Labelled]:
    return lambda broker: (((each.topic, str(each.index)), value(each, leader)) for each, leader in _led(broker))


def replica_count(leader: Leader) -> int:
    """Replicas of a led partition, this one included."""
    return 1 + len(leader.replicas.followers)


def is_under_replicated(leader: Leader) -> bool:
    """Whether a replica of a led partition is not in sync."""
    return len(leader.isr) < replica_count(leader)


def is_at_min_isr(leader: Leader, log: PartitionLog) -> bool:
    """Whether a led partition lacks a replica, and refuses acks=all if one more falls behind."""
    return len(leader.isr) == leader.effective_minimum(log.config.min_insync_replicas) and is_under_replicated(leader)


def _is_preferred(broker: BrokerServices) -> Labelled:
    topics = broker.image.topics
    return (
        ((each.topic, str(each.index)), int(topics[each.topic].partitions[each.index].replicas[0] == broker.id))
        for each, _ in _led(broker)
        if broker.image.has_partition(each.topic, each.index)
    )


def _partition_counts(broker: BrokerServices) -> Labelled:
    topics: Iterator[TopicImage] = iter(broker.image.topics.values() if broker.control.is_controller else ())
    return [((topic.name,), len(topic.partitions)) for topic in topics]


def _of_traffic() -> list[BrokerMetric]:
    return [
        _by_topic("MessagesIn", "Records appended by leaders here.", lambda traffic: traffic.records_in),
        _by_topic("BytesIn", "Bytes of batches appended by leaders here.", lambda traffic: traffic.bytes_in),
        _by_topic("BytesOut", "Bytes of batches given to consumers.", lambda traffic: traffic.bytes_out),
        _by_topic("BytesRejected", "Bytes of batches refused as too large.", lambda traffic: traffic.bytes_rejected),
        _by_topic("TotalProduceRequests", "Appends by leaders, each partition.", lambda traffic: traffic.appends),
        _by_topic(
            "FailedProduceRequests",
            "Those that were refused, not as too large, corrupt, or by a disk error, as in Kafka.",
            lambda traffic: traffic.failed_appends,
        ),
        _by_topic("TotalFetchRequests", "Reads for fetches, each partition.", lambda traffic: traffic.reads),
        _by_topic(
            "FailedFetchRequests",
            "Reads that failed, not by a disk error, as in Kafka.",
            lambda traffic: traffic.failed_reads,
        ),
        kafka(
            f"{_TRAFFIC}ReplicationBytesInPerSec",
            "Bytes of batches that replicas here copied from their leaders.",
            lambda broker: broker.partitions.replication_bytes_in,
        ),
        kafka(
            f"{_TRAFFIC}ReplicationBytesOutPerSec",
            "Bytes of batches that followers read here.",
            lambda broker: broker.partitions.replication_bytes_out,
        ),
    ]


def _of_logs() -> list[BrokerMetric]:
    return [
        _by_log("Size", "Bytes of a partition's batches here.", lambda log: log.size_bytes),
        _by_log("NumLogSegments", "Segments of a partition here.", lambda log: len(log.segments)),
        _by_log("LogStartOffset", "The first offset of a partition here.", lambda log: log.log_start_offset),
        _by_log("LogEndOffset", "The offset after the last record here.", lambda log: log.log_end_offset),
    ]


def _of_led_partitions() -> list[BrokerMetric]:
    labels = ("topic", "partition")
    in_sync = _by_led(lambda _, leader: len(leader.isr))
    replicas = _by_led(lambda _, leader: replica_count(leader))
    lacking = _by_led(lambda _, leader: int(is_under_replicated(leader)))
    return [
        kafka(f"{_LED}InSyncReplicasCount{_BOTH}", "At the leader: replicas in sync.", in_sync),
        kafka(f"{_LED}ReplicasCount{_BOTH}", "At the leader: replicas.", replicas),
        kafka(f"{_LED}UnderReplicated{_BOTH}", "At the leader: 1 if a replica is not in sync.", lacking),
        kafka(
            f"{_LED}UnderMinIsr{_BOTH}",
            "At the leader: 1 if acks=all is refused.",
            _by_led(lambda each, leader: int(not leader.has_enough(each.log.config.min_insync_replicas))),
        ),
        kafka(
            f"{_LED}AtMinIsr{_BOTH}",
            "At the leader: 1 if a replica is missing, and acks=all is refused if one more falls behind.",
            _by_led(lambda each, leader: int(is_at_min_isr(leader, each.log))),
        ),
        exporter(
            "topic_partition_current_offset",
            "At the leader: the high watermark, up to which consumers read.",
            _by_led(lambda each, _: each.log.high_watermark),
            *labels,
        ),
        exporter(
            "topic_partition_oldest_offset",
            "At the leader: the first offset.",
            _by_led(lambda each, _: each.log.log_start_offset),
            *labels,
        ),
        exporter("topic_partition_in_sync_replica", "At the leader: replicas in sync.", in_sync, *labels),
        exporter("topic_partition_replicas", "At the leader: replicas.", replicas, *labels),
        exporter(
            "topic_partition_under_replicated_partition",
            "At the leader: 1 if a replica is not in sync.",
            lacking,
            *labels,
        ),
        exporter(
            "topic_partition_leader",
            "At the leader: its broker id.",
            lambda broker: _by_led(lambda _each, _leader: broker.id)(broker),
            *labels,
        ),
        exporter(
            "topic_partition_leader_is_preferred",
            "At the leader: 1 if it is the preferred one.",
            _is_preferred,
            *labels,
        ),
        exporter("topic_partitions", "At the controller: partitions of a topic.", _partition_counts, "topic"),
        exporter(
            "brokers",
            "At the controller: brokers that are alive.",
            lambda broker: len(broker.image.brokers) if broker.control.is_controller else 0,
        ),
    ]


TOPICS: Final[tuple[BrokerMetric, ...]] = (*_of_traffic(), *_of_logs(), *_of_led_partitions())
