"""Filters of ACLs, and what Kafka checks of ACLs that are created."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from ottla.cluster.acls import (
    CLUSTER_NAME,
    WILDCARD,
    AclEntry,
    AclPattern,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from ottla.cluster.refusal import TopicRefusal
from ottla.wire.errors import ErrorCode

#: The code of each enumeration that a filter has for all its values.
ANY: Final = 1
#: The code that a filter of pattern types has for all patterns that are for a resource of its name.
MATCH: Final = 2


class AclFilter(NamedTuple):
    """ACLs that are alike in what is given here; None and ANY are for everything."""

    resource_type: int = ANY
    name: str | None = None
    pattern_type: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = ANY

    @property
    def is_known(self) -> bool:
        """Whether Kafka knows all codes of it."""
        return (
            _is_known(ResourceType, self.resource_type, ANY)
            and _is_known(PatternType, self.pattern_type, ANY, MATCH)
            and _is_known(Operation, self.operation, ANY)
            and _is_known(Permission, self.permission, ANY)
        )

    @property
    def one_pattern(self) -> AclPattern | None:
        """The only pattern that it may match, None if there may be several."""
        if self.name is None or self.resource_type == ANY or self.pattern_type in (ANY, MATCH):
            return None
        return AclPattern(ResourceType(self.resource_type), self.name, PatternType(self.pattern_type))

    def matches_pattern(self, pattern: AclPattern) -> bool:
        """Whether the ACLs of this pattern may be among those of the filter."""
        if self.resource_type not in (ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (ANY, MATCH, pattern.pattern_type):
            return False
        if self.name is None or self.name == pattern.name:
            return True
        if self.pattern_type != MATCH:
            return False
        if pattern.pattern_type is PatternType.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name == WILDCARD

    def matches_entry(self, entry: AclEntry) -> bool:
        """Whether an ACL is among those of the filter, if its pattern is."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (ANY, entry.operation)
            and self.permission in (ANY, entry.permission)
        )


def _is_known(codes: Iterable[int], code: int, *others: int) -> bool:
    return code in others or code in list(codes)


def creation_problem(pattern: AclPattern, entry: AclEntry) -> TopicRefusal | None:
    """Why an ACL cannot be created, in Kafka's words where it has any."""
    name = pattern.name
    if pattern.resource_type is ResourceType.CLUSTER and name != CLUSTER_NAME:
        return _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not name:
        return _invalid("Invalid empty resource name")
    if "/" in name:
        return _invalid(f"ACL binding contains invalid resource name: {name}")
    if "/" in entry.host:
        return _invalid(f"{entry.host} is a network: here an ACL is for one host, or for all by *. Name each host.")
    if ":" not in entry.principal:
        message = f"expected a string in format principalType:principalName but got {entry.principal}"
        return TopicRefusal(ErrorCode.UNKNOWN_SERVER_ERROR, message)
    return None


def _invalid(message: str) -> TopicRefusal:
    return TopicRefusal(ErrorCode.INVALID_REQUEST, message)
