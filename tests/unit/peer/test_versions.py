from __future__ import annotations

import pytest

from ottla.client.errors import UnsupportedVersionError
from ottla.peer.versions import BETWEEN_BROKERS, USED, choose_version
from ottla.wire.apis import API, ApiKey


@pytest.mark.parametrize(("low", "high", "chosen"), [(0, 17, 12), (0, 8, 8), (4, 4, 4), (12, 20, 12)])
def test_the_newest_that_both_know(low, high, chosen):
    assert choose_version(ApiKey.FETCH, {ApiKey.FETCH: (low, high)}) == chosen


@pytest.mark.parametrize(("low", "high"), [(0, 3), (13, 17)])
def test_nothing_in_common(low, high):
    with pytest.raises(UnsupportedVersionError, match=f"FETCH in versions {low} to {high}, this client needs 4 to 12"):
        choose_version(ApiKey.FETCH, {ApiKey.FETCH: (low, high)})


def test_not_served_at_all():
    with pytest.raises(UnsupportedVersionError, match="does not serve INIT_PRODUCER_ID"):
        choose_version(ApiKey.INIT_PRODUCER_ID, {})


def test_all_used_versions_are_declared():
    for api_key, (oldest, newest) in (*USED.items(), *BETWEEN_BROKERS.items()):
        assert API[api_key].min_version <= oldest <= newest <= API[api_key].max_version


#: What Apache Kafka 1.1 serves, of the APIs that clients use.
KAFKA_1_1 = {
    ApiKey.PRODUCE: (0, 5), ApiKey.FETCH: (0, 7), ApiKey.LIST_OFFSETS: (0, 2), ApiKey.METADATA: (0, 5),
    ApiKey.OFFSET_COMMIT: (0, 3), ApiKey.OFFSET_FETCH: (0, 3), ApiKey.FIND_COORDINATOR: (0, 1),
    ApiKey.JOIN_GROUP: (0, 2),
    ApiKey.HEARTBEAT: (0, 1), ApiKey.LEAVE_GROUP: (0, 1), ApiKey.SYNC_GROUP: (0, 1), ApiKey.DESCRIBE_GROUPS: (0, 1),
    ApiKey.LIST_GROUPS: (0, 1), ApiKey.SASL_HANDSHAKE: (0, 1),
    ApiKey.API_VERSIONS: (0, 1), ApiKey.CREATE_TOPICS: (0, 2), ApiKey.DELETE_TOPICS: (0, 1),
    ApiKey.DELETE_RECORDS: (0, 0), ApiKey.INIT_PRODUCER_ID: (0, 0), ApiKey.OFFSET_FOR_LEADER_EPOCH: (0, 0),
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 0), ApiKey.ADD_OFFSETS_TO_TXN: (0, 0), ApiKey.END_TXN: (0, 0),
    ApiKey.TXN_OFFSET_COMMIT: (0, 0), ApiKey.WRITE_TXN_MARKERS: (0, 0),
    ApiKey.DESCRIBE_CONFIGS: (0, 1), ApiKey.ALTER_CONFIGS: (0, 0), ApiKey.ALTER_REPLICA_LOG_DIRS: (0, 0),
    ApiKey.DESCRIBE_LOG_DIRS: (0, 0), ApiKey.SASL_AUTHENTICATE: (0, 0),
    ApiKey.CREATE_PARTITIONS: (0, 0), ApiKey.DELETE_GROUPS: (0, 0),
    ApiKey.CREATE_DELEGATION_TOKEN: (0, 0), ApiKey.RENEW_DELEGATION_TOKEN: (0, 0),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (0, 0), ApiKey.DESCRIBE_DELEGATION_TOKEN: (0, 0),
}  # fmt: skip
NEWER_THAN_1_1 = {
    ApiKey.DESCRIBE_ACLS,  # these three with pattern types
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.ELECT_LEADERS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.OFFSET_DELETE,
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.UNREGISTER_BROKER,
}


@pytest.mark.parametrize("api_key", sorted(USED.keys() - NEWER_THAN_1_1))
def test_older_brokers_are_asked_in_their_newest_version(api_key):
    assert choose_version(api_key, KAFKA_1_1) == KAFKA_1_1[api_key][1]


@pytest.mark.parametrize("api_key", sorted(NEWER_THAN_1_1))
def test_what_older_brokers_do_not_serve_is_refused(api_key):
    with pytest.raises(UnsupportedVersionError):
        choose_version(api_key, KAFKA_1_1)
