"""AlterReplicaLogDirs (key 34): choose the log directories of replicas (KIP-113).

Versions: 1 is the same as 0; 2 flexible.
"""

from __future__ import annotations

from ottla.wire.schema import INT16, INT32, STRING, Message, Struct, array, field, message, struct


@struct
class AlterReplicaLogDirTopic(Struct):
    name: str = field(STRING)
    partitions: list[int] = field(array(INT32))


@struct
class AlterReplicaLogDir(Struct):
    """A log directory, and the replicas for it."""

    path: str = field(STRING)  # Absolute.
    topics: list[AlterReplicaLogDirTopic] = field(array(AlterReplicaLogDirTopic))


@message(versions=(0, 2), flexible_since=2, api_key=34)
class AlterReplicaLogDirsRequest(Message):
    dirs: list[AlterReplicaLogDir] = field(array(AlterReplicaLogDir))


@struct
class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


@struct
class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = field(STRING)
    partitions: list[AlterReplicaLogDirPartitionResult] = field(array(AlterReplicaLogDirPartitionResult))


@message(versions=(0, 2), flexible_since=2, api_key=34)
class AlterReplicaLogDirsResponse(Message):
    throttle_time_ms: int = field(INT32)
    results: list[AlterReplicaLogDirTopicResult] = field(array(AlterReplicaLogDirTopicResult))
