"""Requests of a client that may do little: scenes, each with ACLs and requests, for Apache Kafka and for ottla.

The topics `t` and `hidden` exist with a partition each, and the group `g` with a committed offset.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from golden.wire.kafka_json import from_json, to_json
from ottla.cluster.acls import AclEntry, AclPattern, Operation, PatternType, Permission, ResourceType
from ottla.wire.apis import API, ApiKey
from ottla.wire.schema import Message

Json = dict[str, Any]
Acl = tuple[AclPattern, AclEntry]
Ask = tuple[ApiKey, int, Json]

ME = "User:ANONYMOUS"
#: Differ from run to run, or between the two: Apache Kafka's messages name Java's request.
VOLATILE = {"throttleTimeMs", "clusterId", "host", "port", "controllerId", "brokers", "nodeId", "producerId"}
VOLATILE |= {"errorMessage", "leaderId", "leaderEpoch", "replicaNodes", "isrNodes", "configs"}


class Scene(NamedTuple):
    """What the client may do, and what it asks for."""

    name: str
    acls: list[Acl]
    asks: list[Ask]


def allow(kind: str, name: str, operation: str, permission: str = "ALLOW") -> Acl:
    pattern_type = PatternType.PREFIXED if name.endswith("…") else PatternType.LITERAL
    pattern = AclPattern(ResourceType[kind], name.rstrip("…"), pattern_type)
    return pattern, AclEntry(ME, "*", Operation[operation], Permission[permission])


#: Everything, while the topics and the group are made.
EVERYTHING = [allow("TOPIC", "*", "ALL"), allow("GROUP", "*", "ALL"), allow("CLUSTER", "kafka-cluster", "ALL")]


def partitions(name: str, **more: Any) -> list[Json]:
    return [{name: topic, "partitions": [{"partition": 0, "partitionIndex": 0, **more}]} for topic in ("t", "nosuch")]


def names(topics: tuple[str, ...] = ("t", "nosuch"), **more: Any) -> list[Json]:
    return [{"name": topic, **more} for topic in topics]


METADATA = {"includeTopicAuthorizedOperations": True, "includeClusterAuthorizedOperations": True}
NEW_TOPIC = {"numPartitions": 1, "replicationFactor": 1, "assignments": [], "configs": []}
CREATION = {"resourceType": 2, "resourceName": "t", "resourcePatternType": 3, "principal": ME, "host": "*"}
CREATION |= {"operation": 3, "permissionType": 3}
FILTER = {"resourceTypeFilter": 1, "patternTypeFilter": 1, "operation": 1, "permissionType": 1}


def of_topics(ids: Mapping[str, str]) -> list[Ask]:
    """Requests about topics; `ids` are those of the topics."""
    offset = {"timestamp": -1, "currentLeaderEpoch": -1, "partitionMaxBytes": 100}
    by_id = [{"topicId": ids["t"], "name": None}, {"topicId": "AAAAAAAAAAAAAAAAAAAABQ", "name": None}]
    fetched = [{"partition": 0, **offset}]
    return [
        (ApiKey.PRODUCE, 9, {"acks": 1, "topicData": names(partitionData=[{"index": 0, "records": None}])}),
        (ApiKey.FETCH, 11, {"topics": partitions("topic", **offset), "maxBytes": 100}),
        (ApiKey.FETCH, 13, {"topics": [{"topicId": each["topicId"], "partitions": fetched} for each in by_id]}),
        (ApiKey.FETCH, 11, {"replicaId": 5, "topics": partitions("topic", **offset), "maxBytes": 100}),
        (ApiKey.LIST_OFFSETS, 7, {"replicaId": -1, "topics": partitions("name", **offset)}),
        (ApiKey.METADATA, 9, {"topics": names(), "allowAutoTopicCreation": False, **METADATA}),
        (ApiKey.METADATA, 9, {"topics": names(), "allowAutoTopicCreation": True}),
        (ApiKey.METADATA, 10, {"topics": None, "allowAutoTopicCreation": False, **METADATA}),
        (ApiKey.METADATA, 12, {"topics": by_id, "includeTopicAuthorizedOperations": True}),
        (ApiKey.METADATA, 0, {"topics": []}),
        (ApiKey.DELETE_TOPICS, 5, {"topicNames": ["nosuch"], "timeoutMs": 1000}),
        (ApiKey.DELETE_TOPICS, 6, {"topics": [*by_id, {"name": "t"}], "timeoutMs": 1000}),
        (ApiKey.DELETE_RECORDS, 2, {"topics": partitions("name", offset=0), "timeoutMs": 1000}),
        (ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, {"replicaId": -1, "topics": partitions("topic", leaderEpoch=7)}),
        (ApiKey.CREATE_PARTITIONS, 3, {"topics": [{"name": "nosuch", "count": 2, "assignments": None}]}),
        (ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": names(("t", "nosuch"), partitionIndexes=[0])}),
    ]


def of_groups() -> list[Ask]:
    group: Json = {"groupId": "g", "generationId": 1, "memberId": "m", "groupInstanceId": None}
    join = {"sessionTimeoutMs": 6000, "protocolType": "consumer", "protocols": [{"name": "range", "metadata": ""}]}
    wanted = names(("t", "hidden"), partitionIndexes=[0])
    committed = names(partitions=[{"partitionIndex": 0, "committedOffset": 3, "committedMetadata": ""}])
    return [
        (ApiKey.OFFSET_COMMIT, 8, {**group, "generationId": -1, "memberId": "", "topics": committed}),
        (ApiKey.OFFSET_FETCH, 5, {"groupId": "g", "topics": wanted}),
        (ApiKey.OFFSET_FETCH, 5, {"groupId": "g", "topics": None}),
        (ApiKey.OFFSET_FETCH, 1, {"groupId": "g", "topics": wanted}),
        (ApiKey.OFFSET_FETCH, 8, {"groups": [{"groupId": "g", "topics": wanted}, {"groupId": "h", "topics": None}]}),
        (ApiKey.FIND_COORDINATOR, 3, {"key": "g", "keyType": 0}),
        (ApiKey.FIND_COORDINATOR, 4, {"keyType": 0, "coordinatorKeys": ["g", "h"]}),
        (ApiKey.JOIN_GROUP, 7, {**group, **join, "memberId": ""}),
        (ApiKey.HEARTBEAT, 4, group),
        (ApiKey.LEAVE_GROUP, 5, {"groupId": "g", "members": [{"memberId": "m"}]}),
        (ApiKey.SYNC_GROUP, 5, {**group, "assignments": []}),
        (ApiKey.DESCRIBE_GROUPS, 5, {"groups": ["g", "h"], "includeAuthorizedOperations": True}),
        (ApiKey.DESCRIBE_GROUPS, 5, {"groups": ["g"], "includeAuthorizedOperations": False}),
        (ApiKey.LIST_GROUPS, 4, {"statesFilter": []}),
        (ApiKey.OFFSET_DELETE, 0, {"groupId": "g", "topics": partitions("name")}),
    ]


def of_transactions() -> list[Ask]:
    producer: Json = {"transactionalId": "x", "producerId": 7, "producerEpoch": 0}
    added = names(("t", "nosuch"), partitions=[0])
    older = {"v3AndBelow" + name[0].upper() + name[1:]: value for name, value in producer.items()}
    positions = names(("t", "nosuch"), partitions=[{"partitionIndex": 0, "committedOffset": 3}])
    commit = {**producer, "groupId": "g", "generationId": -1, "memberId": "", "topics": positions}
    marker = {"producerId": 7, "producerEpoch": 0, "transactionResult": False, "coordinatorEpoch": 0}
    return [
        (ApiKey.ADD_PARTITIONS_TO_TXN, 3, {**older, "v3AndBelowTopics": added}),
        (ApiKey.ADD_PARTITIONS_TO_TXN, 4, {"transactions": [{**producer, "verifyOnly": True, "topics": added}]}),
        (ApiKey.ADD_OFFSETS_TO_TXN, 3, {**producer, "groupId": "g"}),
        (ApiKey.END_TXN, 3, {**producer, "committed": False}),
        (ApiKey.TXN_OFFSET_COMMIT, 3, commit),
        (ApiKey.WRITE_TXN_MARKERS, 1, {"markers": [{**marker, "topics": names(("nosuch",), partitionIndexes=[0])}]}),
        (ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactionalIds": ["x"]}),
        (ApiKey.LIST_TRANSACTIONS, 1, {"stateFilters": [], "producerIdFilters": [], "durationFilter": -1}),
    ]


def of_the_cluster() -> list[Ask]:
    config = {"resourceType": 2, "resourceName": "t", "configs": []}
    broker = {"resourceType": 4, "resourceName": "1", "configs": []}
    moved = [{"name": "t", "partitions": [{"partitionIndex": 0, "replicas": [1]}]}]
    return [
        (ApiKey.INIT_PRODUCER_ID, 4, {"transactionalId": None, "transactionTimeoutMs": 1, "producerEpoch": -1}),
        (ApiKey.INIT_PRODUCER_ID, 4, {"transactionalId": "x", "transactionTimeoutMs": 1, "producerEpoch": -1}),
        (ApiKey.FIND_COORDINATOR, 4, {"keyType": 1, "coordinatorKeys": ["x"]}),
        (ApiKey.DESCRIBE_ACLS, 3, FILTER),
        (ApiKey.CREATE_ACLS, 3, {"creations": [CREATION]}),
        (ApiKey.DELETE_ACLS, 3, {"filters": [FILTER]}),
        (ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [{**each, "configurationKeys": []} for each in (config, broker)]}),
        (ApiKey.ALTER_CONFIGS, 2, {"resources": [config, broker], "validateOnly": True}),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [config, broker], "validateOnly": True}),
        (ApiKey.ALTER_REPLICA_LOG_DIRS, 2, {"dirs": [{"path": "/x", "topics": names(("t",), partitions=[0])}]}),
        (ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None}),
        (ApiKey.ELECT_LEADERS, 2, {"timeoutMs": 9, "topicPartitions": [{"topic": "t", "partitions": [0]}]}),
        (ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {"timeoutMs": 9, "topics": moved}),
        (ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"timeoutMs": 9, "topics": None}),
        (ApiKey.DESCRIBE_CLUSTER, 1, {"includeClusterAuthorizedOperations": True, "endpointType": 1}),
        (ApiKey.DESCRIBE_CLUSTER, 1, {"includeClusterAuthorizedOperations": False, "endpointType": 1}),
        (ApiKey.CREATE_TOPICS, 7, {"topics": names(("new",), **NEW_TOPIC), "timeoutMs": 5000, "validateOnly": True}),
        (ApiKey.DELETE_GROUPS, 2, {"groupsNames": ["h"]}),
        (ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": [], "strict": False}),
        (ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": [QUOTA], "validateOnly": True}),
        (ApiKey.CREATE_DELEGATION_TOKEN, 3, {"ownerPrincipalType": "User", "ownerPrincipalName": "u", "renewers": []}),
        (ApiKey.RENEW_DELEGATION_TOKEN, 2, {"hmac": "", "renewPeriodMs": -1}),
        (ApiKey.EXPIRE_DELEGATION_TOKEN, 2, {"hmac": "", "expiryTimePeriodMs": -1}),
        (ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, {"owners": None}),
        (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": [{"name": "u"}]}),
        (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, {"deletions": [{"name": "u", "mechanism": 1}], "upsertions": []}),
    ] + [(key, version, {"controllerId": 1, "brokerId": 1}) for key, version in OF_BROKERS]


QUOTA = {
    "entity": [{"entityType": "user", "entityName": "u"}],
    "ops": [{"key": "producer_byte_rate", "value": 1000, "remove": False}],
}
#: Requests between brokers.
OF_BROKERS = [
    (ApiKey.LEADER_AND_ISR, 7),
    (ApiKey.STOP_REPLICA, 4),
    (ApiKey.UPDATE_METADATA, 8),
    (ApiKey.CONTROLLED_SHUTDOWN, 3),
    (ApiKey.ALTER_PARTITION, 2),
    (ApiKey.ALLOCATE_PRODUCER_IDS, 0),
]


def scenes(ids: Mapping[str, str]) -> list[Scene]:
    """All scenes, in order."""
    topics = of_topics(ids)
    metadata = [ask for ask in topics if ask[0] is ApiKey.METADATA]
    creations: list[Ask] = [
        ask for ask in of_the_cluster() if ask[0] in (ApiKey.CREATE_TOPICS, ApiKey.INIT_PRODUCER_ID)
    ]
    harmful = (ApiKey.PRODUCE, ApiKey.DELETE_TOPICS, ApiKey.FETCH, ApiKey.METADATA)
    harmless = [ask for ask in topics if ask[0] not in harmful]
    cluster = "kafka-cluster"
    unmade = [ask for ask in metadata if not ask[2].get("allowAutoTopicCreation")]
    writes = allow("TOPIC", "t", "WRITE", "DENY")
    added = of_transactions()
    committed = [ask for ask in added if ask[0] is ApiKey.TXN_OFFSET_COMMIT]
    markers = [ask for ask in added if ask[0] is ApiKey.WRITE_TXN_MARKERS]
    return [
        Scene("nothing", [], topics + of_groups() + of_the_cluster() + of_transactions()),
        Scene("describe of a topic", [allow("TOPIC", "t", "DESCRIBE")], metadata + harmless),
        Scene("describe of all topics", [allow("TOPIC", "*", "DESCRIBE")], metadata + topics[-6:-4]),
        Scene("a prefix", [allow("TOPIC", "hid…", "READ"), allow("GROUP", "g…", "READ")], metadata + of_groups()[1:6]),
        Scene("describe of the group", [allow("GROUP", "g", "DESCRIBE"), allow("TOPIC", "t", "READ")], of_groups()),
        Scene("write of some topic", [allow("TOPIC", "x…", "WRITE")], creations),
        Scene("idempotent writes", [allow("CLUSTER", cluster, "IDEMPOTENT_WRITE")], creations),
        Scene("creation of a topic", [allow("TOPIC", "new", "CREATE")], creations),
        Scene(
            "creation with settings",
            [allow("CLUSTER", cluster, "CREATE"), allow("TOPIC", "new", "DESCRIBE_CONFIGS")],
            creations,
        ),
        Scene(
            "the cluster described",
            [allow("CLUSTER", cluster, "DESCRIBE"), allow("TOPIC", "*", "ALL"), writes],
            [*unmade, *of_the_cluster()[14:16], *of_groups()[-2:-1]],
        ),
        Scene(
            "of a broker",
            [allow("CLUSTER", cluster, "CLUSTER_ACTION")],
            [ask for ask in topics if ask[0] is ApiKey.OFFSET_FOR_LEADER_EPOCH] + markers,
        ),
        Scene("a transaction alone", [allow("TRANSACTIONAL_ID", "x", "WRITE")], [added[0], *added[2:3], *committed]),
        Scene(
            "a transaction and a group",
            [allow("TRANSACTIONAL_ID", "x", "WRITE"), allow("GROUP", "g", "READ")],
            [added[0], *committed],
        ),
        Scene("markers of an administrator", [allow("CLUSTER", cluster, "ALTER")], markers),
    ]


def message(key: ApiKey, version: int, body: Json) -> Message:
    made = from_json(API[key].request, body, version)
    assert isinstance(made, Message)
    return made


def recorded(response: Message | None, version: int, ids: Mapping[str, str]) -> Any:
    """An answer without what differs from run to run; None where the connection was closed."""
    if response is None:
        return None
    text = json.dumps(to_json(response, version))
    for name, topic_id in ids.items():
        text = text.replace(topic_id, f"id of {name}")
    return _steady(json.loads(text))


def _steady(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _steady(one) for key, one in value.items() if key not in VOLATILE}
    if isinstance(value, list):
        made = [_steady(one) for one in value]
        return sorted(made, key=json.dumps) if all(isinstance(one, dict) for one in made) else made
    return value


def topic_id_text(topic_id: UUID) -> str:
    from ottla.cluster.ids import format_uuid

    return format_uuid(topic_id)
