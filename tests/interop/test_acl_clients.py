"""ACLs through the admin clients of other projects: created, described, deleted, refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AclBinding as ConfluentAcl
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.error import KafkaException
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePattern,
    ResourcePatternFilter,
)
from kafka.admin import ResourceType as KafkaPythonType

from ottla.testing import Broker
from support.waiting import wait_until

TIMEOUT_S = 120
AUTHORIZER = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}

pytestmark = pytest.mark.spec("S3")


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker({"orders": 1}, settings=AUTHORIZER) as broker:
        yield broker.bootstrap_servers


def test_kafka_python(bootstrap: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        orders = ResourcePattern(KafkaPythonType.TOPIC, "orders", ACLResourcePatternType.LITERAL)
        acl = ACL("User:alice", "*", ACLOperation.READ, ACLPermissionType.ALLOW, orders)
        created = admin.create_acls([acl])
        assert (created["succeeded"], created["failed"]) == ([acl], [])
        every = ACLFilter(
            "User:alice",
            None,
            ACLOperation.ANY,
            ACLPermissionType.ANY,
            ResourcePatternFilter(KafkaPythonType.ANY, None, ACLResourcePatternType.ANY),
        )
        found, error = admin.describe_acls(every)
        assert (found, error.errno) == ([acl], 0)
        ((of, deleted, failure),) = admin.delete_acls([every])
        assert (of, list(deleted), failure.errno) == (every, [acl], 0)
        assert admin.describe_acls(every)[0] == []
    finally:
        admin.close()


def test_librdkafka(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    acl = ConfluentAcl(
        ResourceType.GROUP,
        "app-",
        ResourcePatternType.PREFIXED,
        "User:bob",
        "127.0.0.1",
        AclOperation.READ,
        AclPermissionType.DENY,
    )
    wrong = ConfluentAcl(
        ResourceType.BROKER,
        "other",
        ResourcePatternType.LITERAL,
        "User:bob",
        "*",
        AclOperation.ALTER,
        AclPermissionType.ALLOW,
    )
    for made in admin.create_acls([acl]).values():
        assert made.result(TIMEOUT_S) is None
    (refused,) = admin.create_acls([wrong]).values()
    with pytest.raises(KafkaException, match="kafka-cluster"):
        refused.result(TIMEOUT_S)
    matching = AclBindingFilter(
        ResourceType.GROUP,
        "app-1",
        ResourcePatternType.MATCH,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    assert admin.describe_acls(matching).result(TIMEOUT_S) == [acl]
    (deleted,) = admin.delete_acls([matching]).values()
    assert deleted.result(TIMEOUT_S) == [acl]
    wait_until(lambda: admin.describe_acls(matching).result(TIMEOUT_S) == [], "the end of the ACL")
