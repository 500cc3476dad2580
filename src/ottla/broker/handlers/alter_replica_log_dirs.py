"""AlterReplicaLogDirs (key 34), versions 0-2: move replicas of this broker to other log directories (KIP-113).

1 is the same as 0, 2 is flexible. The response says whether the move has begun; DescribeLogDirs shows how far it is. A
partition that is asked to be where it is moves no more. Of one that is named twice the last log directory counts.
"""

from __future__ import annotations

from ottla.broker.authorization import Accesses, on_cluster
from ottla.broker.context import RequestContext
from ottla.cluster.acls import CLUSTER_NAME, Operation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def accesses(context: RequestContext, request: AlterReplicaLogDirsRequest) -> Accesses:
    return (on_cluster(Operation.ALTER),)


def handle(context: RequestContext, request: AlterReplicaLogDirsRequest) -> None:
    context.spawn(_alter(context, request))


async def _alter(context: RequestContext, request: AlterReplicaLogDirsRequest) -> None:
    broker = context.broker
    is_permitted = context.permits(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    wanted: dict[tuple[str, int], str] = {}
    for log_dir in request.dirs:
        await broker.slices.point()
        for topic in log_dir.topics:
            async for chunk in broker.slices.chunks(topic.partitions):
                wanted.update(((topic.name, index), log_dir.path) for index in chunk)
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    moves = broker.partitions.moves()
    for (name, index), path in wanted.items():
        await broker.slices.point()
        error = moves.move(name, index, path) if is_permitted else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        result = results.setdefault(name, AlterReplicaLogDirTopicResult(topic_name=name, partitions=[]))
        result.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=int(error)))
    await context.replied(AlterReplicaLogDirsResponse(results=list(results.values())))
