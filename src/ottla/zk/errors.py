"""What a tree or a ZooKeeper server refuses, with ZooKeeper's codes (`KeeperException.Code`). Pure."""

from __future__ import annotations

from typing import ClassVar

OK_CODE = 0
RUNTIME_INCONSISTENCY_CODE = -2
"""Of an operation that comes behind the one at which its transaction failed."""
MARSHALLING_ERROR_CODE = -5
"""Of a request whose bytes cannot be read."""
UNIMPLEMENTED_CODE = -6
AUTH_FAILED_CODE = -115


class ZkError(Exception):
    """An operation that the tree refuses. `path` is the node it failed at."""

    CODE: ClassVar[int] = -1

    def __init__(self, path: str, reason: str = "") -> None:
        super().__init__(f"{type(self).__name__} for {path}" + (f": {reason}" if reason else ""))
        self.path = path
        #: Which operation of its transaction failed.
        self.index = 0


class UnimplementedError(ZkError):
    """ZooKeeper has this, and ottla does not."""

    CODE = UNIMPLEMENTED_CODE


class BadArgumentsError(ZkError):
    """A path or data that no node can have."""

    CODE = -8


class NoNodeError(ZkError):
    """The node, or the parent of a node to be made, is not there."""

    CODE = -101


class NoAuthError(ZkError):
    """The node's access list does not let this client do that."""

    CODE = -102


class BadVersionError(ZkError):
    """The node has another version than the operation demands."""

    CODE = -103


class NoChildrenForEphemeralsError(ZkError):
    """An ephemeral node cannot have children."""

    CODE = -108


class NodeExistsError(ZkError):
    """The node to be made is there already."""

    CODE = -110


class NotEmptyError(ZkError):
    """A node with children cannot be deleted."""

    CODE = -111


class SessionExpiredError(ZkError):
    """The session has ended: its ephemeral nodes and its watches are gone."""

    CODE = -112


class InvalidAclError(ZkError):
    """An access list that is empty or names nobody who can be known."""

    CODE = -114


class NoWatcherError(ZkError):
    """The client has no such watch on the node."""

    CODE = -121


class SessionMovedError(ZkError):
    """The session goes on at another connection."""

    CODE = -118


def codes_of_failed(error: ZkError, count: int) -> list[int]:
    """What ZooKeeper tells of each of `count` operations when their transaction failed with this error."""
    after = count - error.index - 1
    return [OK_CODE] * error.index + [error.CODE] + [RUNTIME_INCONSISTENCY_CODE] * after
