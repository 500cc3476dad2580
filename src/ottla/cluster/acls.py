"""Access control lists (KIP-11, KIP-290), and what Kafka's AclAuthorizer decides by them.

An operation on a resource is allowed to super users. To others it is allowed if an ACL allows it and none denies it,
or if there are no ACLs for the resource and `allow.everyone.if.no.acl.found` is set. ACLs are for a resource when they
have its name, a prefix of it, or the name `*`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple, Self


class Code(IntEnum):
    """A code of Kafka's protocol for ACLs, with its name in znodes and in log lines."""

    # An Enum's own hash is that of its name, by a call in Python for each look-up of a decision.
    __hash__ = int.__hash__

    @property
    def kafka_name(self) -> str:
        """As in `TransactionalId`."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @classmethod
    def named(cls, kafka_name: str) -> Self:
        """The code of this name. Raises ValueError."""
        found = next((each for each in cls if each.kafka_name == kafka_name), None)
        if found is None:
            raise ValueError(f"{kafka_name!r} is not a {cls.__name__}")
        return found


class Operation(Code):
    """Kafka's AclOperation codes."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class ResourceType(Code):
    """Kafka's ResourceType codes."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


#: The name of the only resource of type CLUSTER.
CLUSTER_NAME: Final = "kafka-cluster"
#: The operations that there are on each type of resource.
SUPPORTED_OPERATIONS: Final = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}


class PatternType(Code):
    """How the name of an ACL names resources: Kafka's PatternType codes."""

    LITERAL = 3
    PREFIXED = 4


class Permission(Code):
    """Kafka's AclPermissionType codes."""

    DENY = 2
    ALLOW = 3


#: The name of an ACL for all resources of a type.
WILDCARD: Final = "*"
#: The principal of an ACL for everyone, whatever the type of their principals.
EVERYONE: Final = "User:*"
ANY_HOST: Final = "*"
#: Decisions kept; with more, all are worked out again.
MOST_DECISIONS: Final = 20_000


class AclPattern(NamedTuple):
    """The resources that an ACL is for."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL


class AclEntry(NamedTuple):
    """An operation that an ACL allows or denies to a principal (as in `User:alice`) from a host."""

    principal: str
    host: str
    operation: Operation
    permission: Permission


#: What stands for the entries of a pattern that cannot be read.
_UNREADABLE: Final = frozenset((AclEntry(EVERYONE, ANY_HOST, Operation.ALL, Permission.DENY),))


class _Rules(NamedTuple):
    """The entries of one pattern: the operations denied and allowed to a principal from a host, as bits."""

    denied: dict[tuple[str, str], int]
    allowed: dict[tuple[str, str], int]


def _bit(operation: Operation) -> int:
    return 1 << operation


_EVERY_OPERATION: Final = sum(_bit(each) for each in Operation)
_IMPLY_DESCRIBE: Final = sum(
    _bit(each) for each in (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
)


def _implied(allowed: int) -> int:
    """The allowed operations with those that they imply."""
    if allowed & _IMPLY_DESCRIBE:
        allowed |= _bit(Operation.DESCRIBE)
    if allowed & _bit(Operation.ALTER_CONFIGS):
        allowed |= _bit(Operation.DESCRIBE_CONFIGS)
    return allowed


def _operations(operation: Operation) -> int:
    return _EVERY_OPERATION if operation is Operation.ALL else _bit(operation)


class AclRules:
    """The ACLs of a cluster, and the decisions by them. Principals are given as in `User:alice`."""

    def __init__(self, super_users: Collection[str] = (), *, allows_without_acls: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._allows_without_acls = allows_without_acls
        self._entries: dict[AclPattern, frozenset[AclEntry]] = {}
        self._rules: dict[AclPattern, _Rules] = {}
        #: The rules of prefixes, by type of resource, length and prefix.
        self._prefixed: dict[ResourceType, dict[int, dict[str, _Rules]]] = {}
        #: The patterns that have an entry, by type of resource.
        self._having: dict[tuple[ResourceType, AclEntry], set[AclPattern]] = {}
        #: What a principal may do from a host, by resource.
        self._decided: dict[tuple[str, str, ResourceType, str], int] = {}

    @property
    def patterns(self) -> Collection[AclPattern]:
        """The patterns that have entries, or unreadable ones."""
        return self._rules.keys()

    def entries(self, pattern: AclPattern) -> frozenset[AclEntry]:
        """The entries of one pattern; none where they are unreadable."""
        return self._entries.get(pattern, frozenset())

    def deny_everything(self, pattern: AclPattern) -> None:
        """Deny everything that this pattern is for, since its entries are unreadable. It then has no entries."""
        self.replace(pattern, _UNREADABLE)
        del self._entries[pattern]

    def replace(self, pattern: AclPattern, entries: Iterable[AclEntry]) -> None:
        """Have these entries for a pattern in place of those that it has; none removes it."""
        self._decided.clear()
        kept = frozenset(entries)
        if pattern in self._rules:
            self._remove(pattern)
        if not kept:
            return
        self._entries[pattern] = kept
        rules = self._rules[pattern] = _Rules({}, {})
        for principal, host, operation, permission in kept:
            bits = rules.denied if permission is Permission.DENY else rules.allowed
            bits[principal, host] = bits.get((principal, host), 0) | _operations(operation)
        for entry in kept:
            self._having.setdefault((pattern.resource_type, entry), set()).add(pattern)
        # As in Kafka an empty prefix is for nothing.
        if pattern.pattern_type is PatternType.PREFIXED and pattern.name:
            by_length = self._prefixed.setdefault(pattern.resource_type, {})
            by_length.setdefault(len(pattern.name), {})[pattern.name] = rules

    def _remove(self, pattern: AclPattern) -> None:
        resource_type, name, pattern_type = pattern
        del self._rules[pattern]
        for entry in self._entries.pop(pattern, _UNREADABLE):
            having = self._having[resource_type, entry]
            having.remove(pattern)
            if not having:
                del self._having[resource_type, entry]
        if pattern_type is PatternType.PREFIXED and name:
            by_length = self._prefixed[resource_type]
            del by_length[len(name)][name]
            if not by_length[len(name)]:
                del by_length[len(name)]

    def allows(self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether the principal may do this from this host."""
        return bool(self.allowed_operations(principal, host, resource_type, name) >> operation & 1)

    def allowed_operations(self, principal: str, host: str, resource_type: ResourceType, name: str) -> int:
        """The operations on a resource that are allowed to the principal from this host, as bits by their codes."""
        key = (principal, host, resource_type, name)
        found = self._decided.get(key)
        if found is None:
            if len(self._decided) >= MOST_DECISIONS:
                self._decided.clear()
            found = self._decided[key] = self._decide(*key)
        return found

    def _decide(self, principal: str, host: str, resource_type: ResourceType, name: str) -> int:
        if principal in self._super_users:
            return _EVERY_OPERATION
        rules = self._rules_for(resource_type, name)
        if not rules:
            return _EVERY_OPERATION if self._allows_without_acls else 0
        denied = allowed = 0
        for who in ((principal, host), (principal, ANY_HOST), (EVERYONE, host), (EVERYONE, ANY_HOST)):
            for one in rules:
                denied |= one.denied.get(who, 0)
                allowed |= one.allowed.get(who, 0)
        return _implied(allowed) & ~denied

    def _rules_for(self, resource_type: ResourceType, name: str) -> list[_Rules]:
        found = [self._rules.get(AclPattern(resource_type, each)) for each in dict.fromkeys((name, WILDCARD))]
        by_length = self._prefixed.get(resource_type, {})
        found += [by_prefix.get(name[:size]) for size, by_prefix in by_length.items() if size <= len(name)]
        return [each for each in found if each is not None]

    def allows_on_any(self, principal: str, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the principal may do this with any resource of a type (KIP-679); operations imply no others here."""
        if principal in self._super_users:
            return True
        denied = set(self._having_any(principal, host, operation, resource_type, Permission.DENY))
        if AclPattern(resource_type, WILDCARD) in denied:
            return False
        allowed = self._having_any(principal, host, operation, resource_type, Permission.ALLOW)
        return self._allows_without_acls or any(not denied or not _is_denied(each, denied) for each in allowed)

    def _having_any(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, permission: Permission
    ) -> Iterator[AclPattern]:
        """The patterns that allow or deny the operation, implied ones left out, to the principal from the host."""
        for who, where in ((principal, host), (principal, ANY_HOST), (EVERYONE, host), (EVERYONE, ANY_HOST)):
            for one in (operation, Operation.ALL):
                yield from self._having.get((resource_type, AclEntry(who, where, one, permission)), ())


def _is_denied(allowed: AclPattern, denied: Collection[AclPattern]) -> bool:
    """Whether what one pattern allows is denied by its name or by a prefix of it."""
    resource_type, name, pattern_type = allowed
    if pattern_type is PatternType.LITERAL:
        if name == WILDCARD:
            return False
        if allowed in denied:
            return True
    return any(
        AclPattern(resource_type, name[:size], PatternType.PREFIXED) in denied for size in range(1, len(name) + 1)
    )
