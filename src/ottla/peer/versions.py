"""Which version of each API a connection uses: the newest that broker and client both know."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.peer.errors import UnsupportedVersionError
from ottla.wire.apis import ApiKey

USED: Mapping[ApiKey, tuple[int, int]] = {
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.PRODUCE: (3, 11),
    ApiKey.FETCH: (4, 12),  # topics by name
    ApiKey.LIST_OFFSETS: (1, 9),
    ApiKey.METADATA: (4, 12),
    ApiKey.OFFSET_COMMIT: (2, 9),
    ApiKey.OFFSET_FETCH: (2, 7),  # one group; all its partitions if need be
    ApiKey.FIND_COORDINATOR: (1, 3),  # one key
    ApiKey.JOIN_GROUP: (0, 9),
    ApiKey.HEARTBEAT: (0, 4),
    ApiKey.LEAVE_GROUP: (0, 5),
    ApiKey.SYNC_GROUP: (0, 5),
    ApiKey.DESCRIBE_GROUPS: (0, 5),
    ApiKey.LIST_GROUPS: (0, 5),
    ApiKey.SASL_HANDSHAKE: (1, 1),
    ApiKey.SASL_AUTHENTICATE: (0, 2),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: (0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.CREATE_DELEGATION_TOKEN: (0, 3),  # for another owner from 3 on
    ApiKey.RENEW_DELEGATION_TOKEN: (0, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (0, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (0, 3),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (1, 6),  # by name up to 5, by id in 6
    ApiKey.DELETE_RECORDS: (0, 2),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 3),  # one transaction; newer ones are for brokers
    ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
    ApiKey.END_TXN: (0, 4),
    ApiKey.WRITE_TXN_MARKERS: (0, 1),
    ApiKey.TXN_OFFSET_COMMIT: (0, 4),
    ApiKey.DESCRIBE_ACLS: (1, 3),  # these three with pattern types
    ApiKey.CREATE_ACLS: (1, 3),
    ApiKey.DELETE_ACLS: (1, 3),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.ALTER_CONFIGS: (0, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (0, 2),
    ApiKey.DESCRIBE_LOG_DIRS: (0, 4),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.DELETE_GROUPS: (0, 2),
    ApiKey.ELECT_LEADERS: (0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.UNREGISTER_BROKER: (0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.LIST_TRANSACTIONS: (0, 1),  # by how long they are open from 1 on
    ApiKey.OFFSET_DELETE: (0, 0),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (3, 4),  # for clients, not for replicas only
}
"""Oldest and newest version that the code above the connection fills in and reads rightly."""

BETWEEN_BROKERS: Mapping[ApiKey, tuple[int, int]] = {
    ApiKey.LEADER_AND_ISR: (7, 7),
    ApiKey.STOP_REPLICA: (4, 4),
    ApiKey.UPDATE_METADATA: (8, 8),
    ApiKey.CONTROLLED_SHUTDOWN: (0, 3),
    ApiKey.ALTER_PARTITION: (2, 3),  # topics by id
    ApiKey.ALLOCATE_PRODUCER_IDS: (0, 0),
}
"""The same for what only brokers send; a controller's requests have fixed versions, those of Apache Kafka 3.9."""

Offered = Mapping[int, tuple[int, int]]


def choose_version(api_key: ApiKey, offered: Offered, versions: tuple[int, int] | None = None) -> int:
    """The version to use, among `versions` where a message needs some; UnsupportedVersionError where none is common."""
    oldest, newest = versions or USED.get(api_key) or BETWEEN_BROKERS[api_key]
    if api_key not in offered:
        raise UnsupportedVersionError(f"the broker does not serve {api_key.name}; a newer broker does")
    version = min(newest, offered[api_key][1])
    if version < max(oldest, offered[api_key][0]):
        low, high = offered[api_key]
        raise UnsupportedVersionError(
            f"the broker serves {api_key.name} in versions {low} to {high}, this client needs {oldest} to {newest}; "
            "brokers from Apache Kafka 0.11 on are supported"
        )
    return version
