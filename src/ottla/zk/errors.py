"""Errors of the znode tree or of a ZooKeeper server, with ZooKeeper's codes (`KeeperException.Code`). Pure."""

from __future__ import annotations

from typing import ClassVar

OK_CODE = 0
RUNTIME_INCONSISTENCY_CODE = -2
"""For operations after the one that failed in a transaction."""
MARSHALLING_ERROR_CODE = -5
"""For a request that cannot be parsed."""
UNIMPLEMENTED_CODE = -6
AUTH_FAILED_CODE = -115


class ZkError(Exception):
    """An operation refused by the tree. `path` is the node at which it failed."""

    CODE: ClassVar[int] = -1

    def __init__(self, path: str, reason: str = "") -> None:
        super().__init__(f"{type(self).__name__} for {path}" + (f": {reason}" if reason else ""))
        self.path = path
        #: Index of the failed operation in its transaction.
        self.index = 0


class UnimplementedError(ZkError):
    """A feature of ZooKeeper that ottla does not have."""

    CODE = UNIMPLEMENTED_CODE


class BadArgumentsError(ZkError):
    """An invalid path or invalid data."""

    CODE = -8


class NoNodeError(ZkError):
    """The node, or the parent of a node to create, does not exist."""

    CODE = -101


class NoAuthError(ZkError):
    """The node's ACL does not permit the operation to this client."""

    CODE = -102


class BadVersionError(ZkError):
    """The node's version is not the one that the operation requires."""

    CODE = -103


class NoChildrenForEphemeralsError(ZkError):
    """An ephemeral node cannot have children."""

    CODE = -108


class NodeExistsError(ZkError):
    """The node to create exists already."""

    CODE = -110


class NotEmptyError(ZkError):
    """A node with children cannot be deleted."""

    CODE = -111


class SessionExpiredError(ZkError):
    """The session has ended: its ephemeral nodes and its watches are gone."""

    CODE = -112


class InvalidAclError(ZkError):
    """The ACL is empty or has an invalid identity."""

    CODE = -114


class NoWatcherError(ZkError):
    """The client has no such watch on the node."""

    CODE = -121


class SessionMovedError(ZkError):
    """The session has moved to another connection."""

    CODE = -118


def codes_of_failed(error: ZkError, count: int) -> list[int]:
    """ZooKeeper's code for each of `count` operations of a transaction that failed with this error."""
    after = count - error.index - 1
    return [OK_CODE] * error.index + [error.CODE] + [RUNTIME_INCONSISTENCY_CODE] * after
