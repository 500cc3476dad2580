"""Access lists of Kafka's znodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from ottla.zk.acl import (
    ANYONE_READS,
    AUTH_SCHEME,
    CREATE,
    EVERYTHING,
    OPEN_ACL,
    READ,
    SASL_SCHEME,
    SUPER_USER,
    Acl,
    AclList,
)

AclOfPath: TypeAlias = Callable[[str], AclList]
"""The access list that a new znode gets."""

SENSITIVE_ROOTS: Final = ("/config/users", "/config/brokers", "/delegation_token/tokens")
"""Below them are credentials, encrypted passwords and tokens (Kafka's `ZkData.SensitiveRootPaths`)."""
_CONSUMERS: Final = "/consumers"
_PARENTS_OF_SECRETS: Final = ("/config", "/delegation_token")
#: Older tools create them, whether or not they are there, and with CREATE only they learn that they are.
_ANYONE_ADDS: Final = ANYONE_READS._replace(perms=READ | CREATE)
_ACLS: Final = "/kafka-acl"
_SUPER: Final = Acl(EVERYTHING, SASL_SCHEME, SUPER_USER)


def open_acl(path: str) -> AclList:
    """The access list that lets everyone do everything."""
    return OPEN_ACL


def _secure_acl(creator: Acl, path: str) -> AclList:
    """As Kafka's `ZkData.defaultAcls`: `creator` may do everything, everyone may read what is not sensitive."""
    if path == _CONSUMERS:
        return OPEN_ACL
    return (creator,) if path.startswith(SENSITIVE_ROOTS) else (creator, ANYONE_READS)


secure_acl: AclOfPath = partial(_secure_acl, Acl(EVERYTHING, AUTH_SCHEME, ""))
"""With `zookeeper.set.acl`: what the session has logged in as is the creator."""
secure_embedded_acl: AclOfPath = partial(_secure_acl, _SUPER)
"""The same in the embedded metadata, whose broker has no session."""


def embedded_acl(path: str) -> AclList:
    """The embedded metadata without `zookeeper.set.acl`: secrets are for the super user alone, ACLs for all to read.

    In the parents of the secrets nodes are not deleted, else those could be made again while they are empty.
    """
    if path in _PARENTS_OF_SECRETS:
        return (_SUPER, _ANYONE_ADDS)
    return secure_embedded_acl(path) if path.startswith((*SENSITIVE_ROOTS, _ACLS)) else OPEN_ACL
