"""Random ACLs and requests: the index decides as a fold over the plain list of ACLs does, by Kafka's rules."""

from __future__ import annotations

import random
from collections.abc import Iterable
from time import process_time

import pytest

from ottla.cluster.acls import (
    ANY_HOST,
    EVERYONE,
    WILDCARD,
    AclEntry,
    AclPattern,
    AclRules,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

SEEDS = 60
REQUESTS = 100
NAMES = ("a", "ab", "abc", "b", "bc", "c", WILDCARD)
PRINCIPALS = ("User:alice", "User:bob", "Group:ops", EVERYONE)
HOSTS = ("10.0.0.1", "10.0.0.2", ANY_HOST)
TYPES = (ResourceType.TOPIC, ResourceType.GROUP)
SUPER_USER = "User:root"

Acl = tuple[AclPattern, AclEntry]

pytestmark = pytest.mark.spec("S3")


def random_acl(chance: random.Random) -> Acl:
    pattern = AclPattern(chance.choice(TYPES), chance.choice(NAMES), chance.choice(list(PatternType)))
    permission = Permission.DENY if chance.random() < 0.3 else Permission.ALLOW
    operation = chance.choice(list(Operation))
    return pattern, AclEntry(chance.choice(PRINCIPALS), chance.choice(HOSTS), operation, permission)


def matches(entry: AclEntry, who: str, host: str, operation: Operation, permission: Permission) -> bool:
    return (
        entry.permission is permission
        and entry.principal in (who, EVERYONE)
        and entry.host in (host, ANY_HOST)
        and entry.operation in (operation, Operation.ALL)
    )


def decided(
    acls: Iterable[Acl], without: bool, who: str, host: str, operation: Operation, kind: ResourceType, name: str
) -> bool:
    """What `AclAuthorizer.authorizeAction` decides."""
    if who == SUPER_USER:
        return True
    found = [
        entry
        for pattern, entry in acls
        if pattern.resource_type is kind
        and (
            pattern.name in (name, WILDCARD)
            if pattern.pattern_type is PatternType.LITERAL
            else name.startswith(pattern.name)
        )
    ]
    if not found:
        return without
    if any(matches(each, who, host, operation, Permission.DENY) for each in found):
        return False
    enough = {operation}
    if operation is Operation.DESCRIBE:
        enough |= {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    elif operation is Operation.DESCRIBE_CONFIGS:
        enough.add(Operation.ALTER_CONFIGS)
    return any(matches(each, who, host, one, Permission.ALLOW) for each in found for one in enough)


def decided_on_any(
    acls: Iterable[Acl], without: bool, who: str, host: str, operation: Operation, kind: ResourceType
) -> bool:
    """What `AclAuthorizer.authorizeByResourceType` decides."""
    if who == SUPER_USER:
        return True
    allowed, denied = (
        {p for p, entry in acls if p.resource_type is kind and matches(entry, who, host, operation, permission)}
        for permission in (Permission.ALLOW, Permission.DENY)
    )
    if any(p.name == WILDCARD and p.pattern_type is PatternType.LITERAL for p in denied):
        return False
    prefixes = tuple(p.name for p in denied if p.pattern_type is PatternType.PREFIXED)

    def stays(pattern: AclPattern) -> bool:
        if pattern.pattern_type is PatternType.LITERAL and pattern.name == WILDCARD:
            return True
        return not pattern.name.startswith(prefixes) and (
            pattern.pattern_type is PatternType.PREFIXED or pattern not in denied
        )

    return without or any(map(stays, allowed))


def put(rules: AclRules, acls: Iterable[Acl]) -> None:
    by_pattern: dict[AclPattern, set[AclEntry]] = {}
    for pattern, entry in acls:
        by_pattern.setdefault(pattern, set()).add(entry)
    for pattern, entries in by_pattern.items():
        rules.replace(pattern, entries)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_index_decides_as_a_fold_over_all_acls(seed: int) -> None:
    chance = random.Random(seed)
    without = chance.random() < 0.5
    rules = AclRules([SUPER_USER], allows_without_acls=without)
    acls = [random_acl(chance) for _ in range(chance.randrange(20))]
    put(rules, acls)
    for _ in range(3):
        for _ in range(REQUESTS):
            who, host = chance.choice((*PRINCIPALS[:3], SUPER_USER)), chance.choice(HOSTS[:2])
            operation, kind = chance.choice(list(Operation)[1:]), chance.choice(TYPES)
            name = chance.choice(("a", "ab", "abcd", "b", "bcd", "c", "d"))
            request = (who, host, operation, kind, name)
            assert rules.allows(*request) is decided(acls, without, *request), request
            assert rules.allows_on_any(*request[:4]) is decided_on_any(acls, without, *request[:4]), request
        gone = {pattern for pattern, _ in acls if chance.random() < 0.5}
        acls = [each for each in acls if each[0] not in gone]
        for pattern in gone:
            rules.replace(pattern, ())
            assert rules.entries(pattern) == frozenset()


def test_ten_thousand_acls_are_not_walked_for_a_decision() -> None:
    rules = AclRules()
    for number in range(10_000):
        kind = PatternType.PREFIXED if number % 2 else PatternType.LITERAL
        entry = AclEntry(f"User:u{number}", ANY_HOST, Operation.READ, Permission.ALLOW)
        rules.replace(AclPattern(ResourceType.TOPIC, f"topic-{number}", kind), [entry])
    begun = process_time()
    for number in range(2_000):
        assert rules.allows(f"User:u{number}", "10.0.0.1", Operation.DESCRIBE, ResourceType.TOPIC, f"topic-{number}")
        assert rules.allows_on_any(f"User:u{number}", "10.0.0.1", Operation.READ, ResourceType.TOPIC)
    # A walk over all would take some 2 ms a decision.
    assert process_time() - begun < 2
