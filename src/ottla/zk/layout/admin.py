"""`/admin/…` and the notifications: requests of tools to the controller, and notifications from brokers to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ottla.zk.layout.codec import dump, dump_partitions, expected, load, load_partitions


class DeleteTopicZnode:
    """`/admin/delete_topics/<topic>`: a topic whose deletion has begun."""

    ROOT = "/admin/delete_topics"

    @staticmethod
    def path(topic: str) -> str:
        """The topic's deletion marker."""
        return f"/admin/delete_topics/{topic}"


class ReassignPartitionsZnode:
    """`/admin/reassign_partitions`: partitions being moved to other brokers; removed when done (version 1)."""

    PATH = "/admin/reassign_partitions"

    @staticmethod
    def encode(replicas: Mapping[tuple[str, int], Sequence[int]]) -> bytes:
        """The JSON as Kafka and its tools write it: target replicas by topic and partition."""
        partitions = [
            {"topic": topic, "partition": number, "replicas": list(brokers)}
            for (topic, number), brokers in replicas.items()
        ]
        return dump({"version": 1, "partitions": partitions})

    @staticmethod
    def decode(data: bytes | None) -> dict[tuple[str, int], tuple[int, ...]]:
        """Raises `ZnodeDataError`."""
        path = ReassignPartitionsZnode.PATH
        value = load(path, data)
        with expected(path, "holds no reassignment"):
            return {
                (str(one["topic"]), int(one["partition"])): tuple(map(int, one["replicas"]))
                for one in value["partitions"]
            }


class PreferredReplicaElectionZnode:
    """`/admin/preferred_replica_election`: partitions to move back to their preferred leaders (version 1)."""

    PATH = "/admin/preferred_replica_election"

    @staticmethod
    def encode(partitions: Iterable[tuple[str, int]]) -> bytes:
        """The JSON as Kafka and its tools write it."""
        return dump_partitions(partitions)

    @staticmethod
    def decode(data: bytes | None) -> tuple[tuple[str, int], ...]:
        """Topics and partitions. Raises `ZnodeDataError`."""
        return load_partitions(PreferredReplicaElectionZnode.PATH, data)


class IsrChangeNotificationZnode:
    """`/isr_change_notification/isr_change_<sequence>`: leaders changed the in-sync replicas of these (version 1)."""

    ROOT = "/isr_change_notification"
    PREFIX = "/isr_change_notification/isr_change_"

    @staticmethod
    def encode(partitions: Iterable[tuple[str, int]]) -> bytes:
        """The JSON as Kafka writes it."""
        return dump_partitions(partitions)

    @staticmethod
    def decode(path: str, data: bytes | None) -> tuple[tuple[str, int], ...]:
        """Topics and partitions. Raises `ZnodeDataError`."""
        return load_partitions(path, data)


class LogDirEventNotificationZnode:
    """`/log_dir_event_notification/log_dir_event_<sequence>`: a log directory of a broker has failed (version 1)."""

    ROOT = "/log_dir_event_notification"
    PREFIX = "/log_dir_event_notification/log_dir_event_"
    LOG_DIR_FAILURE = 1

    @staticmethod
    def encode(broker_id: int) -> bytes:
        """The JSON as Kafka writes it."""
        return dump({"version": 1, "broker": broker_id, "event": LogDirEventNotificationZnode.LOG_DIR_FAILURE})

    @staticmethod
    def decode(path: str, data: bytes | None) -> int:
        """The broker. Raises `ZnodeDataError`."""
        value = load(path, data)
        with expected(path, "names no broker"):
            return int(value["broker"])
