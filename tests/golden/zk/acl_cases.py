"""ACLs and requests for Apache Kafka's own AclAuthorizer (`Acls.java`) and for ours: a life, and random sets."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from ottla.cluster.acls import AclEntry, AclPattern, Operation, PatternType, Permission, ResourceType

Acl = tuple[AclPattern, AclEntry]
Request = tuple[str, str, Operation, ResourceType, str]

SUPER_USERS = ("User:root", "User:CN=a,O=b")
SEEDS = 50
REQUESTS = 200
NAMES = ("a", "ab", "abc", "b", "bc", "c", "*")
PRINCIPALS = ("User:alice", "User:bob", "Group:ops", "User:*")
HOSTS = ("10.0.0.1", "10.0.0.2", "*")


def acl(kind: str, name: str, pattern: str, principal: str, host: str, operation: str, permission: str) -> Acl:
    return AclPattern(ResourceType[kind], name, PatternType[pattern]), AclEntry(
        principal, host, Operation[operation], Permission[permission]
    )


#: Steps that add or remove an ACL. Each pattern has one ACL at the end: Apache Kafka writes several in any order.
LIFE: list[tuple[str, Acl]] = [
    ("add", acl("TOPIC", "orders", "LITERAL", "User:alice", "*", "READ", "ALLOW")),
    ("add", acl("TOPIC", "orders", "PREFIXED", "User:alice", "10.0.0.1", "DESCRIBE_CONFIGS", "DENY")),
    ("add", acl("TOPIC", "*", "LITERAL", "User:*", "*", "ALL", "ALLOW")),
    ("add", acl("GROUP", "Åsa \"1\":x", "LITERAL", "User:CN=é,O=\"b\"", "::1", "READ", "ALLOW")),
    ("add", acl("GROUP", "g\\", "PREFIXED", "Group:ops:x", "*", "DELETE", "ALLOW")),
    ("add", acl("CLUSTER", "kafka-cluster", "LITERAL", "User:bob", "*", "CLUSTER_ACTION", "ALLOW")),
    ("add", acl("TRANSACTIONAL_ID", "t", "LITERAL", "User:bob", "*", "WRITE", "ALLOW")),
    ("add", acl("TRANSACTIONAL_ID", "t", "PREFIXED", "User:bob", "*", "ALTER_CONFIGS", "ALLOW")),
    ("add", acl("DELEGATION_TOKEN", "d", "LITERAL", "User:bob", "*", "IDEMPOTENT_WRITE", "ALLOW")),
    ("add", acl("USER", "User:u", "LITERAL", "User:bob", "*", "CREATE_TOKENS", "ALLOW")),
    ("add", acl("TOPIC", "gone", "LITERAL", "User:bob", "*", "ALTER", "ALLOW")),
    ("add", acl("TOPIC", "gone", "LITERAL", "User:bob", "*", "CREATE", "DENY")),
    ("add", acl("TOPIC", "gone", "LITERAL", "User:bob", "*", "CREATE", "DENY")),
    ("remove", acl("TOPIC", "gone", "LITERAL", "User:bob", "*", "CREATE", "DENY")),
    ("remove", acl("TOPIC", "gone", "LITERAL", "User:bob", "*", "CREATE", "DENY")),
    ("remove", acl("TOPIC", "gone", "LITERAL", "User:bob", "*", "ALTER", "ALLOW")),
]  # fmt: skip


def random_set(seed: int) -> tuple[bool, list[Acl], list[Request]]:
    """Whether everything is allowed without ACLs, ACLs, and requests."""
    chance = random.Random(seed)
    allows_without = chance.random() < 0.5
    kinds = (ResourceType.TOPIC, ResourceType.GROUP)
    acls = [
        (
            AclPattern(chance.choice(kinds), chance.choice(NAMES), chance.choice(list(PatternType))),
            AclEntry(
                chance.choice(PRINCIPALS),
                chance.choice(HOSTS),
                chance.choice(list(Operation)),
                Permission.DENY if chance.random() < 0.3 else Permission.ALLOW,
            ),
        )
        for _ in range(chance.randrange(20))
    ]
    requests = [
        (
            chance.choice((*PRINCIPALS[:3], *SUPER_USERS)),
            chance.choice(HOSTS[:2]),
            chance.choice(list(Operation)[1:]),
            chance.choice(kinds),
            chance.choice(("a", "ab", "abcd", "b", "bcd", "c", "d")),
        )
        for _ in range(REQUESTS)
    ]
    return allows_without, acls, requests


def lines() -> Iterator[str]:
    """The same for `Acls.java`."""
    yield "configure\tfalse\t/life"
    yield from ("\t".join((word, *_fields(each))) for word, each in LIFE)
    for seed in range(SEEDS):
        allows_without, acls, requests = random_set(seed)
        yield f"configure\t{str(allows_without).lower()}\t/set{seed}"
        if acls:
            yield "\t".join(("add", *(field for each in acls for field in _fields(each))))
        for who, host, operation, kind, name in requests:
            yield "\t".join(("ask", who, host, operation.name, kind.name, name))
            yield "\t".join(("any", who, host, operation.name, kind.name))


def _fields(each: Acl) -> Iterable[str]:
    (kind, name, pattern_type), (principal, host, operation, permission) = each
    return kind.name, name, pattern_type.name, principal, host, operation.name, permission.name
