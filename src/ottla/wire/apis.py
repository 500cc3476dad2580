"""Kafka's APIs: their keys, and the versions of those that are declared here.

A declared API loads its message module when a class of it is first asked for, so that a process pays only for the
messages it uses.
"""

from __future__ import annotations

from enum import IntEnum
from importlib import import_module
from typing import Any

from ottla.wire.schema import Message


class ApiKey(IntEnum):
    """The key of every API of Apache Kafka 3.9, declared here or not."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CLIENT_METRICS_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87


NEVER = 2**15 - 1
"""Stands for the first flexible version where there is none."""


class Api:
    """An API that is declared: all versions that Apache Kafka 3.9 has of it.

    Which of them a broker serves is the broker's own matter.
    """

    __slots__ = ("_request", "_response", "flexible_since", "key", "max_version", "min_version", "name")

    def __init__(self, key: ApiKey, min_version: int, max_version: int, *, flexible_since: int = NEVER) -> None:
        self.key = key
        self.min_version = min_version
        self.max_version = max_version
        self.flexible_since = flexible_since
        self.name = "".join(word.capitalize() for word in key.name.split("_"))
        self._request: type[Message] | None = None
        self._response: type[Message] | None = None

    @property
    def request(self) -> type[Any]:
        """The class of the request."""
        if self._request is None:
            self._load()
        return self._request  # type: ignore[return-value]

    @property
    def response(self) -> type[Any]:
        """The class of the response."""
        if self._response is None:
            self._load()
        return self._response  # type: ignore[return-value]

    def _load(self) -> None:
        module = import_module(f"ottla.wire.messages.{self.key.name.lower()}")
        self._request = getattr(module, f"{self.name}Request")
        self._response = getattr(module, f"{self.name}Response")

    def request_header_version(self, version: int) -> int:
        """2 with tagged fields, 1 without, 0 (no client id) for ControlledShutdown version 0.

        Also right for versions above ours, as far as anybody can know.
        """
        if version == 0 and self.key == ApiKey.CONTROLLED_SHUTDOWN:
            return 0
        return 2 if version >= self.flexible_since else 1

    def response_header_version(self, version: int) -> int:
        """1 with tagged fields, 0 without; always 0 for ApiVersions, so that every client can read it (KIP-511)."""
        return 1 if version >= self.flexible_since and self.key != ApiKey.API_VERSIONS else 0

    def __repr__(self) -> str:
        return f"Api({self.name}, key {int(self.key)}, versions {self.min_version} to {self.max_version})"


API: dict[int, Api] = {
    int(api.key): api
    for api in (
        Api(ApiKey.PRODUCE, 0, 11, flexible_since=9),
        Api(ApiKey.FETCH, 0, 17, flexible_since=12),
        Api(ApiKey.LIST_OFFSETS, 0, 9, flexible_since=6),
        Api(ApiKey.METADATA, 0, 12, flexible_since=9),
        Api(ApiKey.LEADER_AND_ISR, 0, 7, flexible_since=4),
        Api(ApiKey.STOP_REPLICA, 0, 4, flexible_since=2),
        Api(ApiKey.UPDATE_METADATA, 0, 8, flexible_since=6),
        Api(ApiKey.CONTROLLED_SHUTDOWN, 0, 3, flexible_since=3),
        Api(ApiKey.OFFSET_COMMIT, 0, 9, flexible_since=8),
        Api(ApiKey.OFFSET_FETCH, 0, 9, flexible_since=6),
        Api(ApiKey.FIND_COORDINATOR, 0, 6, flexible_since=3),
        Api(ApiKey.JOIN_GROUP, 0, 9, flexible_since=6),
        Api(ApiKey.HEARTBEAT, 0, 4, flexible_since=4),
        Api(ApiKey.LEAVE_GROUP, 0, 5, flexible_since=4),
        Api(ApiKey.SYNC_GROUP, 0, 5, flexible_since=4),
        Api(ApiKey.DESCRIBE_GROUPS, 0, 5, flexible_since=5),
        Api(ApiKey.LIST_GROUPS, 0, 5, flexible_since=3),
        Api(ApiKey.SASL_HANDSHAKE, 0, 1),
        Api(ApiKey.API_VERSIONS, 0, 4, flexible_since=3),
        Api(ApiKey.CREATE_TOPICS, 0, 7, flexible_since=5),
        Api(ApiKey.DELETE_TOPICS, 0, 6, flexible_since=4),
        Api(ApiKey.DELETE_RECORDS, 0, 2, flexible_since=2),
        Api(ApiKey.INIT_PRODUCER_ID, 0, 5, flexible_since=2),
        Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 0, 4, flexible_since=4),
        Api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, flexible_since=3),
        Api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, flexible_since=3),
        Api(ApiKey.END_TXN, 0, 4, flexible_since=3),
        Api(ApiKey.WRITE_TXN_MARKERS, 0, 1, flexible_since=1),
        Api(ApiKey.TXN_OFFSET_COMMIT, 0, 4, flexible_since=3),
        Api(ApiKey.DESCRIBE_ACLS, 0, 3, flexible_since=2),
        Api(ApiKey.CREATE_ACLS, 0, 3, flexible_since=2),
        Api(ApiKey.DELETE_ACLS, 0, 3, flexible_since=2),
        Api(ApiKey.DESCRIBE_CONFIGS, 0, 4, flexible_since=4),
        Api(ApiKey.ALTER_CONFIGS, 0, 2, flexible_since=2),
        Api(ApiKey.ALTER_REPLICA_LOG_DIRS, 0, 2, flexible_since=2),
        Api(ApiKey.DESCRIBE_LOG_DIRS, 0, 4, flexible_since=2),
        Api(ApiKey.SASL_AUTHENTICATE, 0, 2, flexible_since=2),
        Api(ApiKey.CREATE_PARTITIONS, 0, 3, flexible_since=2),
        Api(ApiKey.CREATE_DELEGATION_TOKEN, 0, 3, flexible_since=2),
        Api(ApiKey.RENEW_DELEGATION_TOKEN, 0, 2, flexible_since=2),
        Api(ApiKey.EXPIRE_DELEGATION_TOKEN, 0, 2, flexible_since=2),
        Api(ApiKey.DESCRIBE_DELEGATION_TOKEN, 0, 3, flexible_since=2),
        Api(ApiKey.DELETE_GROUPS, 0, 2, flexible_since=2),
        Api(ApiKey.ELECT_LEADERS, 0, 2, flexible_since=2),
        Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, flexible_since=1),
        Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 0, flexible_since=0),
        Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, flexible_since=0),
        Api(ApiKey.OFFSET_DELETE, 0, 0),
        Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, flexible_since=1),
        Api(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, flexible_since=1),
        Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, flexible_since=0),
        Api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, flexible_since=0),
        Api(ApiKey.ALTER_PARTITION, 0, 3, flexible_since=0),
        Api(ApiKey.DESCRIBE_CLUSTER, 0, 1, flexible_since=0),
        Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, flexible_since=0),
        Api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, flexible_since=0),
        Api(ApiKey.LIST_TRANSACTIONS, 0, 1, flexible_since=0),
        Api(ApiKey.UNREGISTER_BROKER, 0, 0, flexible_since=0),
        Api(ApiKey.ALLOCATE_PRODUCER_IDS, 0, 0, flexible_since=0),
    )
}
