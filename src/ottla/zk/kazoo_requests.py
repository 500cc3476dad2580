"""Requests through kazoo besides its own calls, and the meaning of its answers: errors, results, Stats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias

from kazoo import exceptions as kazoo_errors
from kazoo.client import TransactionRequest
from kazoo.protocol.serialization import Create as KazooCreate
from kazoo.protocol.serialization import GetData, MultiHeader, read_buffer, stat_struct
from kazoo.protocol.serialization import SetData as KazooSet
from kazoo.security import ACL, OPEN_ACL_UNSAFE, Id

from ottla.zk.acl import OPEN_ACL, AclList
from ottla.zk.client import ConnectionLossError
from ottla.zk.errors import UnimplementedError
from ottla.zk.tree import (
    BadArgumentsError,
    BadVersionError,
    Check,
    Create,
    Delete,
    InvalidAclError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Result,
    SessionExpiredError,
    SessionMovedError,
    Set,
    Stat,
    ZkError,
)
from ottla.zk.wire import Op

PathChange: TypeAlias = Callable[[str], str]
"""Adds the chroot to a path, or takes it away."""

_ERRORS: dict[type[Exception], type[ZkError]] = {
    kazoo_errors.AuthFailedError: SessionExpiredError,  # a refused login ends the session
    kazoo_errors.BadArgumentsError: BadArgumentsError,
    kazoo_errors.BadVersionError: BadVersionError,
    kazoo_errors.ConnectionClosedError: ConnectionLossError,
    kazoo_errors.ConnectionLoss: ConnectionLossError,
    kazoo_errors.NoAuthError: NoAuthError,
    kazoo_errors.NoChildrenForEphemeralsError: NoChildrenForEphemeralsError,
    kazoo_errors.NoNodeError: NoNodeError,
    kazoo_errors.NodeExistsError: NodeExistsError,
    kazoo_errors.NotEmptyError: NotEmptyError,
    kazoo_errors.OperationTimeoutError: ConnectionLossError,
    kazoo_errors.InvalidACLError: InvalidAclError,
    kazoo_errors.SessionExpiredError: SessionExpiredError,
    kazoo_errors.SessionMovedError: SessionMovedError,
    kazoo_errors.UnimplementedError: UnimplementedError,
}
#: kazoo's results for the operations of a failed transaction that did not fail themselves.
_INNOCENT = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)


def translated(error: Exception, path: str) -> ZkError:
    """The corresponding error of the embedded tree."""
    known = _ERRORS.get(type(error))
    if known is not None:
        return known(path, str(error))
    return ZkError(path, f"{type(error).__name__} {error}".strip())


def stat_of(stat: Any) -> Stat:
    """A Stat as kazoo gives it."""
    return Stat(
        stat.czxid, stat.mzxid, stat.ctime, stat.mtime, stat.version, stat.cversion, stat.aversion,
        stat.ephemeralOwner, stat.dataLength, stat.numChildren, stat.pzxid,
    )  # fmt: skip


def kazoo_acl(acl: AclList) -> list[Any]:
    """An ACL as kazoo takes it."""
    return OPEN_ACL_UNSAFE if acl is OPEN_ACL else [ACL(perms, Id(scheme, who)) for perms, scheme, who in acl]


# Transactions


def transaction(client: Any, operations: Sequence[Operation], full: PathChange) -> Any:
    """The operations as one transaction of kazoo."""
    made: Any = TransactionRequest(client)
    for operation in operations:
        path = full(operation.path)
        if isinstance(operation, Create):
            # kazoo's own methods do not accept null data, which many of Kafka's nodes have.
            flags = operation.ephemeral | operation.sequential << 1
            made.operations.append(KazooCreate(path, operation.data, kazoo_acl(operation.acl), flags))
        elif isinstance(operation, Set):
            made.operations.append(KazooSet(path, operation.data, operation.version))
        elif isinstance(operation, Delete):
            made.delete(path, operation.version)
        else:
            made.check(path, operation.version)
    return made


def results_of(operations: Sequence[Operation], answers: Sequence[Any], bare: PathChange) -> list[Result]:
    """The results of a transaction; raises the error of the operation that failed."""
    results: list[Result] = []
    for index, (operation, answer) in enumerate(zip(operations, answers, strict=True)):
        if isinstance(answer, Exception):
            if not isinstance(answer, _INNOCENT):
                error = translated(answer, operation.path)
                error.index = index
                raise error
        elif isinstance(operation, Create):
            results.append(bare(answer))
        elif isinstance(operation, Set):
            results.append(stat_of(answer))
        else:
            assert isinstance(operation, Delete | Check)
            results.append(None)
    return results


# Reads of many nodes in one request


class MultiRead:
    """A request through kazoo that reads data and Stats of these nodes, without watches.

    ZooKeeper calls it multiRead, and has it since 3.6. The result has for each path what was read, or kazoo's
    exception.
    """

    type: ClassVar[int] = Op.MULTI_READ

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    def serialize(self) -> bytes:
        """The body of the request."""
        header = MultiHeader(GetData.type, False, -1).serialize()
        reads = [header + GetData(path, None).serialize() for path in self._paths]
        return b"".join([*reads, MultiHeader(-1, True, -1).serialize()])

    @classmethod
    def deserialize(cls, content: bytes, offset: int) -> list[tuple[bytes | None, Stat] | Exception]:
        """The result, from the body of the response at `offset`."""
        found: list[tuple[bytes | None, Stat] | Exception] = []
        while True:
            header, offset = MultiHeader.deserialize(content, offset)
            if header.done:
                return found
            if header.type == GetData.type:
                data, offset = read_buffer(content, offset)
                found.append((data, Stat(*stat_struct.unpack_from(content, offset))))
                offset += stat_struct.size
            else:
                # An error's code, which the header has, too.
                found.append(kazoo_errors.EXCEPTIONS[header.err]())
                offset += 4
