"""CreateTopics (key 19).

Versions: 1 validate only, error messages; 2 throttle time; 4 partitions and replication factor may be -1, the
broker's defaults (KIP-464); 5 flexible, the topic's configuration in the response (KIP-525);
6 THROTTLING_QUOTA_EXCEEDED; 7 topic id in the response.
"""

from __future__ import annotations

import uuid

from ottla.wire.schema import BOOL, INT8, INT16, INT32, STRING, UUID, Message, Struct, array, field, message, struct


@struct
class CreatableTopicConfig(Struct):
    name: str = field(STRING)
    value: str | None = field(STRING, nullable_since=0, default=None)


@struct
class CreatableReplicaAssignment(Struct):
    """The brokers of one partition, the preferred leader first."""

    partition_index: int = field(INT32)
    broker_ids: list[int] = field(array(INT32))


@struct
class CreatableTopic(Struct):
    name: str = field(STRING)
    num_partitions: int = field(INT32)  # -1 with assignments, or (version 4) for the broker's default.
    replication_factor: int = field(INT16)  # -1 with assignments, or (version 4) for the broker's default.
    assignments: list[CreatableReplicaAssignment] = field(array(CreatableReplicaAssignment))
    configs: list[CreatableTopicConfig] = field(array(CreatableTopicConfig))


@message(versions=(0, 7), flexible_since=5, api_key=19)
class CreateTopicsRequest(Message):
    topics: list[CreatableTopic] = field(array(CreatableTopic))
    timeout_ms: int = field(INT32, default=60000)
    validate_only: bool = field(BOOL, since=1)


@struct
class CreatableTopicConfigs(Struct):
    name: str = field(STRING, since=5)
    value: str | None = field(STRING, since=5, nullable_since=5, default=None)
    read_only: bool = field(BOOL, since=5)
    config_source: int = field(INT8, since=5, default=-1, ignorable=True)
    is_sensitive: bool = field(BOOL, since=5)


@struct
class CreatableTopicResult(Struct):
    """A topic made, or why not."""

    name: str = field(STRING)
    topic_id: uuid.UUID = field(UUID, since=7, ignorable=True)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, since=1, nullable_since=1, default=None, ignorable=True)
    topic_config_error_code: int = field(INT16, since=5, tag=0, ignorable=True)  # Why `configs` is missing.
    num_partitions: int = field(INT32, since=5, default=-1, ignorable=True)
    replication_factor: int = field(INT16, since=5, default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = field(
        array(CreatableTopicConfigs), since=5, nullable_since=5, ignorable=True
    )


@message(versions=(0, 7), flexible_since=5, api_key=19)
class CreateTopicsResponse(Message):
    throttle_time_ms: int = field(INT32, since=2, ignorable=True)
    topics: list[CreatableTopicResult] = field(array(CreatableTopicResult))
