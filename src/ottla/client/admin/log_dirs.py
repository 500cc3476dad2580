"""The log directories in which single replicas are, and their moves between them (KIP-113)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from ottla.client.admin.brokers import BrokerAdmin
from ottla.client.admin.model import LogDirDescription, ReplicaLogDirs, TopicPartitionReplica
from ottla.client.admin.outcomes import AdminCalls, Outcomes, no_such_broker
from ottla.client.errors import BrokerError
from ottla.client.model import TopicPartition
from ottla.peer.arguments import MAX_INT32, mapping, several, text, whole_number
from ottla.peer.errors import InvalidArgumentError
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)

NOT_AVAILABLE = (ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""The broker has no such replica yet, and remembers where to create it."""


class LogDirAdmin(AdminCalls):
    """Admin calls about the log directories of replicas."""

    async def alter_replica_log_dirs(
        self, log_dirs: Mapping[TopicPartitionReplica, str], *, timeout_ms: int | None = None
    ) -> None:
        """Have brokers move replicas to these log directories, given by absolute paths as `describe_log_dirs` has them.

        The move is begun, not over, when this returns: `describe_replica_log_dirs` shows how far it is. A replica that
        is sent where it is moves no more. For one that the broker does not have, the log directory is remembered for
        when it is created, and the error is REPLICA_NOT_AVAILABLE. Raises BrokerError (LOG_DIR_NOT_FOUND,
        KAFKA_STORAGE_ERROR), PartlyFailedError.
        """
        wanted = {_replica(each): text("a log directory", path) for each, path in mapping("log_dirs", log_dirs).items()}
        outcomes: Outcomes[TopicPartitionReplica, None] = Outcomes("moving replicas between log directories", wanted)

        async def ask(broker: int, replicas: list[TopicPartitionReplica]) -> None:
            request = _request({each: wanted[each] for each in replicas})
            answer: AlterReplicaLogDirsResponse = await self._ask(broker, request)
            for topic in answer.results:
                for partition in topic.partitions:
                    replica = TopicPartitionReplica(topic.topic_name, partition.partition_index, broker)
                    if partition.error_code == ErrorCode.NONE:
                        outcomes.succeed(replica, None)
                    else:
                        what = f"{replica} is not moved to {wanted.get(replica)}"
                        error = BrokerError(partition.error_code, what)
                        # Brokers say so until the replica is there; how long to wait is for the caller to say.
                        error.retriable = False
                        outcomes.fail(replica, error)
            outcomes.check_answered(replicas)

        await self._work_off(outcomes, ask, timeout_ms)

    async def describe_replica_log_dirs(
        self, replicas: Iterable[TopicPartitionReplica], *, timeout_ms: int | None = None
    ) -> dict[TopicPartitionReplica, ReplicaLogDirs]:
        """Return the log directories of replicas, and those to which they are being moved.

        Raises BrokerError, PartlyFailedError if several brokers were asked.
        """
        wanted = [_replica(each) for each in several("replicas", replicas)]
        brokers = list(dict.fromkeys(each.broker for each in wanted))
        described = await BrokerAdmin(self._cluster).describe_log_dirs(brokers, timeout_ms=timeout_ms)
        return {each: _log_dirs_of(each, described[each.broker]) for each in wanted}

    async def _ask(self, broker: int, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
        if broker not in self._cluster.metadata.nodes:
            raise no_such_broker(self._cluster, broker)
        answer: AlterReplicaLogDirsResponse = await self._cluster.request(broker, request)
        return answer

    async def _work_off(
        self,
        outcomes: Outcomes[TopicPartitionReplica, None],
        ask: Callable[[int, list[TopicPartitionReplica]], Awaitable[None]],
        timeout_ms: int | None,
    ) -> None:
        async def attempt(pending: list[TopicPartitionReplica]) -> None:
            await self._cluster.refresh([])
            by_broker: dict[int, list[TopicPartitionReplica]] = {}
            for each in pending:
                by_broker.setdefault(each.broker, []).append(each)
            await outcomes.ask_each(by_broker, ask)

        await outcomes.work_off(self._cluster, attempt, timeout_ms)


def _replica(value: Any) -> TopicPartitionReplica:
    """A replica that is given. InvalidArgumentError."""
    try:
        topic, partition, broker = value
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            f"a replica is a TopicPartitionReplica of topic, partition and broker, not {value!r:.80}"
        ) from None
    return TopicPartitionReplica(
        text("a topic", topic),
        whole_number("the number of a partition", partition, 0, MAX_INT32),
        whole_number("the id of a broker", broker, 0, MAX_INT32),
    )


def _request(wanted: Mapping[TopicPartitionReplica, str]) -> AlterReplicaLogDirsRequest:
    dirs: dict[str, dict[str, list[int]]] = {}
    for each, path in wanted.items():
        dirs.setdefault(path, {}).setdefault(each.topic, []).append(each.partition)
    return AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path,
                topics=[AlterReplicaLogDirTopic(name=topic, partitions=indexes) for topic, indexes in topics.items()],
            )
            for path, topics in dirs.items()
        ]
    )


def _log_dirs_of(replica: TopicPartitionReplica, log_dirs: Mapping[str, LogDirDescription]) -> ReplicaLogDirs:
    found = ReplicaLogDirs()
    for path, log_dir in log_dirs.items():
        size = log_dir.replicas.get(TopicPartition(replica.topic, replica.partition))
        if size is None:
            continue
        if size.is_future:
            found = found._replace(future_log_dir=path, future_offset_lag=size.offset_lag)
        else:
            found = found._replace(log_dir=path, offset_lag=size.offset_lag)
    return found
