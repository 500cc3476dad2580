"""`/kafka-acl…`: the ACLs of each resource pattern, and notifications of their changes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.cluster.acls import AclEntry, AclPattern, Operation, PatternType, Permission, ResourceType
from ottla.zk.layout.codec import ZnodeDataError, dump, expected, load

_ROOTS: Final = {PatternType.LITERAL: "/kafka-acl", PatternType.PREFIXED: "/kafka-acl-extended/prefixed"}
_VERSION: Final = 1


class AclZnode:
    """`/kafka-acl/<ResourceType>/<name>`, prefixed ones below `/kafka-acl-extended/prefixed`: the ACLs of a pattern."""

    #: The folders, each with its type of pattern and resource; every cluster with an authorizer has them.
    FOLDERS: Final = {
        f"{_ROOTS[pattern_type]}/{resource_type.kafka_name}": (pattern_type, resource_type)
        for pattern_type in PatternType
        for resource_type in ResourceType
    }

    @staticmethod
    def path(pattern: AclPattern) -> str:
        """The ACLs of this pattern; its name must not contain a slash."""
        return f"{_ROOTS[pattern.pattern_type]}/{pattern.resource_type.kafka_name}/{pattern.name}"

    @staticmethod
    def encode(entries: Iterable[AclEntry]) -> bytes:
        """The JSON as Kafka writes it (version 1), in a fixed order."""
        acls = [
            {
                "principal": entry.principal,
                "permissionType": entry.permission.kafka_name,
                "host": entry.host,
                "operation": entry.operation.kafka_name,
            }
            for entry in sorted(entries)
        ]
        return dump({"acls": acls, "version": _VERSION})

    @staticmethod
    def decode(path: str, data: bytes | None) -> frozenset[AclEntry]:
        """Raises `ZnodeDataError`."""
        if not data:
            return frozenset()
        value = load(path, data)
        with expected(path, "holds no ACLs"):
            if value["version"] != _VERSION:
                raise ValueError(f"version {value['version']}")
            return frozenset(
                AclEntry(
                    _principal(acl["principal"]),
                    str(acl["host"]),
                    Operation.named(acl["operation"]),
                    Permission.named(acl["permissionType"]),
                )
                for acl in value["acls"]
            )


def _principal(text: str) -> str:
    if ":" not in text:
        raise ValueError(f"{text!r} is not a principal")
    return text


class AclChangeZnode:
    """`/kafka-acl-changes/acl_changes_<sequence>`, of prefixed ones below `/kafka-acl-extended-changes`: a change."""

    ROOTS: Final = {
        PatternType.LITERAL: "/kafka-acl-changes",
        PatternType.PREFIXED: "/kafka-acl-extended-changes",
    }
    PREFIX: Final = "acl_changes_"
    #: Kafka removes older ones when it handles a newer one.
    EXPIRATION_MS: Final = 15 * 60 * 1000

    @staticmethod
    def encode(pattern: AclPattern) -> bytes:
        """Text as in `TOPIC:name`; JSON (version 1) where the pattern is prefixed."""
        if pattern.pattern_type is PatternType.LITERAL:
            return f"{pattern.resource_type.name}:{pattern.name}".encode()
        return dump(
            {
                "version": _VERSION,
                "resourceType": pattern.resource_type.name,
                "name": pattern.name,
                "patternType": pattern.pattern_type.name,
            }
        )

    @staticmethod
    def decode(path: str, data: bytes | None) -> AclPattern:
        """The changed pattern. Raises `ZnodeDataError`."""
        otherwise = "names no resource pattern"
        with expected(path, otherwise):
            if path.startswith(f"{AclChangeZnode.ROOTS[PatternType.LITERAL]}/"):
                kind, colon, name = (data or b"").decode().partition(":")
                if not colon:
                    raise ZnodeDataError(f"{path} {otherwise}")
                # Kafka before 2.0 wrote `Topic:name`.
                return AclPattern(ResourceType[kind] if kind.isupper() else ResourceType.named(kind), name)
            value = load(path, data)
            if value["version"] != _VERSION:
                raise ValueError(f"version {value['version']}")
            pattern_type = PatternType[value["patternType"]]
            return AclPattern(ResourceType[value["resourceType"]], str(value["name"]), pattern_type)
