"""ZooKeeper's wire protocol: encoding and decoding its Jute records. Pure.

A frame is a size (i32) and as many bytes. The first one of a connection is a `ConnectRequest`; each later request has a
header `xid (i32) | type (i32)`, each response `xid (i32) | zxid (i64) | err (i32)`. Numbers are big-endian, a string or
buffer is its length (i32, -1 for null) and its bytes, a vector its length and its elements.

Decoders take the received bytes and the range of one frame in them, and raise `JuteError` if a record is incomplete
within it; they never allocate memory by a length field.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple, TypeVar

from ottla.zk.acl import OPEN_ACL, Acl, AclList
from ottla.zk.errors import BadArgumentsError, UnimplementedError, ZkError
from ottla.zk.tree import Check, Create, Delete, Operation, Result, ServerOperation, Set, SetAcl, Stat, Znode
from ottla.zk.watches import EventType, WatchEvent, new_tuple

T = TypeVar("T")

JUTE_MAX_BUFFER = 0xFFFFF
"""The largest frame in bytes, ZooKeeper's default of `jute.maxbuffer`."""


class Op(IntEnum):
    """The types of requests, and of results within a multi."""

    ERROR = -1
    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    RECONFIG = 16
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    DELETE_CONTAINER = 20
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SASL = 102
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107
    CLOSE_SESSION = -11


EVENT_XID = -1
CONNECTED_STATE = 3
NO_ZXID = -1

EVENT_TYPES = {EventType.CREATED: 1, EventType.DELETED: 2, EventType.DATA_CHANGED: 3, EventType.CHILDREN_CHANGED: 4}

_INT = struct.Struct(">i")
_read_int = _INT.unpack_from
_TWO_INTS = struct.Struct(">ii")
_LONG = struct.Struct(">q")
_STAT = struct.Struct(">qqqqiiiqiiq")
#: The same with a cversion truncated to 32 bits.
_STAT_OF_NODE = struct.Struct(">qqqqiIiqiiq")
_REPLY = struct.Struct(">iiqi")
_REPLY_WITH_LENGTH = struct.Struct(">iiqii")
_EVENT = struct.Struct(">iiqiiii")
_CONNECT = struct.Struct(">iqiqi")
_CONNECTED = struct.Struct(">iiiqi16s")
_MULTI_HEADER = struct.Struct(">i?i")
_STAT_IN_MULTI = struct.Struct(">i?iqqqqiiiqiiq")

_REPLY_SIZE = 16
_OPEN_ACL_BYTES = struct.pack(">iii5si6s", 1, 31, 5, b"world", 6, b"anyone")
#: By the flags of a create: ephemeral, sequential.
_CREATE_MODES = {0: (False, False), 1: (True, False), 2: (False, True), 3: (True, True)}
#: Containers, and nodes with a TTL.
_UNIMPLEMENTED_MODES = (4, 5, 6)


class JuteError(Exception):
    """Bytes that are not a valid record of ZooKeeper's protocol."""


class ConnectRequest(NamedTuple):
    """The first frame of a client. `read_only` is None if the client is too old to send it."""

    protocol_version: int
    last_zxid_seen: int
    timeout_ms: int
    session_id: int
    password: bytes
    read_only: bool | None


class AuthPacket(NamedTuple):
    """The credentials that the client sends."""

    scheme: str
    auth: bytes


class WatchesToSet(NamedTuple):
    """The watches of a reconnecting client, and the last zxid that it has seen."""

    relative_zxid: int
    data: list[str]
    exist: list[str]
    children: list[str]
    persistent: list[str]


# Reading


class Reader:
    """Reads one record after the other in `data[position:end]`."""

    __slots__ = ("data", "end", "position")

    def __init__(self, data: bytes, position: int, end: int) -> None:
        self.data = data
        self.position = position
        self.end = end

    def _take(self, size: int) -> int:
        start = self.position
        if start + size > self.end:
            raise self._too_short(size)
        self.position = start + size
        return start

    def _too_short(self, size: int) -> JuteError:
        return JuteError(f"{size} bytes are wanted where {self.end - self.position} are left")

    def read_int(self) -> int:
        """An i32."""
        value: int = _INT.unpack_from(self.data, self._take(4))[0]
        return value

    def read_long(self) -> int:
        """An i64."""
        value: int = _LONG.unpack_from(self.data, self._take(8))[0]
        return value

    def read_bool(self) -> bool:
        """One byte."""
        return self.data[self._take(1)] != 0

    def read_buffer(self) -> bytes | None:
        """A buffer; None for null."""
        start = self.position + 4
        if start > self.end:
            raise self._too_short(4)
        length: int = _INT.unpack_from(self.data, start - 4)[0]
        stop = start + length
        if length < 0:
            if length != -1:
                raise JuteError(f"{length} is not a length")
            self.position = start
            return None
        if stop > self.end:
            raise self._too_short(4 + length)
        self.position = stop
        return self.data[start:stop]

    def read_string(self) -> str:
        """A string."""
        content = self.read_buffer()
        if content is None:
            raise JuteError("a string is missing")
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise JuteError(f"a string is not UTF-8 ({error})") from error

    def read_multi_header(self) -> tuple[int, bool, int]:
        """The type of an operation of a multi, whether it is the end of it, and an unused error."""
        start = self.position
        stop = self.position = start + _MULTI_HEADER.size
        if stop > self.end:
            self.position = start
            raise self._too_short(_MULTI_HEADER.size)
        header: tuple[int, bool, int] = _MULTI_HEADER.unpack_from(self.data, start)
        return header

    def read_vector(self, element: Callable[[], T]) -> list[T]:
        """Elements, each of which takes at least one byte."""
        count = self.read_int()
        if count == -1:
            return []
        if count < 0 or count > self.end - self.position:
            raise JuteError(f"{count} elements are announced where {self.end - self.position} bytes are left")
        return [element() for _ in range(count)]

    def read_acl(self) -> AclList:
        """An access list."""
        after = self.position + len(_OPEN_ACL_BYTES)
        if after <= self.end and self.data[self.position : after] == _OPEN_ACL_BYTES:
            self.position = after
            return OPEN_ACL
        return tuple(self.read_vector(self._acl_entry))

    def _acl_entry(self) -> Acl:
        perms, scheme = self.read_int(), self.read_string()
        start = self.position
        if self.read_buffer() is None:  # kazoo's empty id
            return Acl(perms, scheme, "")
        self.position = start
        return Acl(perms, scheme, self.read_string())


def request_header(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Xid and type of a request."""
    if end - position < 8:
        raise JuteError("a request without a header")
    xid, op = _TWO_INTS.unpack_from(data, position)
    return xid, op


def connect_request(data: bytes, position: int, end: int) -> ConnectRequest:
    """The first frame."""
    if end - position < _CONNECT.size:
        raise JuteError("a ConnectRequest is longer")
    version, zxid, timeout_ms, session_id, _ = _CONNECT.unpack_from(data, position)
    reader = Reader(data, position + _CONNECT.size - 4, end)
    password = reader.read_buffer() or b""
    read_only = reader.read_bool() if reader.position < end else None
    return ConnectRequest(version, zxid, timeout_ms, session_id, password, read_only)


def path_and_watch(data: bytes, position: int, end: int) -> tuple[str, bool]:
    """The request of exists, getData and getChildren."""
    path, position = _path(data, position, end)
    if position >= end:
        raise JuteError("the flag of the watch is missing")
    return path, data[position] != 0


def path_only(data: bytes, position: int, end: int) -> str:
    """The request of getACL and sync."""
    return _path(data, position, end)[0]


def _path(data: bytes, position: int, end: int) -> tuple[str, int]:
    start = position + 4
    if start > end:
        raise JuteError("a path is missing")
    stop = start + _INT.unpack_from(data, position)[0]
    if stop < start or stop > end:
        raise JuteError("a path is not whole")
    try:
        return data[start:stop].decode(), stop
    except UnicodeDecodeError as error:
        raise JuteError(f"a path is not UTF-8 ({error})") from error


def _create(reader: Reader) -> Create:
    path, data, acl, flags = reader.read_string(), reader.read_buffer(), reader.read_acl(), reader.read_int()
    modes = _CREATE_MODES.get(flags)
    if modes is None:
        if flags in _UNIMPLEMENTED_MODES:
            raise UnimplementedError(path, "containers and nodes with a time to live are not served")
        raise BadArgumentsError(path, f"{flags} is not a way to create a node")
    return Create(path, data, *modes, acl)


def _set(reader: Reader) -> Set:
    """Decode setData, the most frequent change: all fields at once, if they are complete and in place."""
    content = reader.data
    start = reader.position + 4
    try:
        stop = start + _read_int(content, start - 4)[0]
        begin = stop + 4
        after = begin + _read_int(content, stop)[0]
        version: int = _read_int(content, after)[0]
        if start <= stop and begin <= after and after + 4 <= reader.end:
            path = content[start:stop].decode()
            reader.position = after + 4
            return new_tuple(Set, (path, content[begin:after], version))
    except (struct.error, UnicodeDecodeError):
        pass
    # Field by field, for a precise error; or for null data.
    return Set(reader.read_string(), reader.read_buffer(), reader.read_int())


def _delete(reader: Reader) -> Delete:
    return Delete(reader.read_string(), reader.read_int())


def _check(reader: Reader) -> Check:
    return Check(reader.read_string(), reader.read_int())


def _set_acl(reader: Reader) -> SetAcl:
    return SetAcl(reader.read_string(), reader.read_acl(), reader.read_int())


_WITHIN_MULTI: dict[int, Callable[[Reader], Operation]] = {
    Op.CREATE: _create,
    Op.CREATE2: _create,
    Op.DELETE: _delete,
    Op.SET_DATA: _set,
    Op.CHECK: _check,
}
_ALONE: dict[int, Callable[[Reader], ServerOperation]] = {**_WITHIN_MULTI, Op.SET_ACL: _set_acl}


def operation(op: int, data: bytes, position: int, end: int) -> ServerOperation:
    """The operation of a request that changes the tree. Raises `ZkError` for an invalid one."""
    return _ALONE[op](Reader(data, position, end))


def multi(data: bytes, position: int, end: int) -> tuple[list[int], list[Operation]]:
    """The types and operations of a multi."""
    reader = Reader(data, position, end)
    ops: list[int] = []
    operations: list[Operation] = []
    while True:
        op, is_end, _ = reader.read_multi_header()
        if is_end:
            return ops, operations
        decode = _WITHIN_MULTI.get(op)
        if decode is None:
            raise JuteError(f"{op} is not an operation of a multi")
        try:
            operations.append(decode(reader))
        except ZkError as error:
            raise JuteError(str(error)) from error
        ops.append(op)


def multi_read(data: bytes, position: int, end: int) -> list[tuple[int, str]]:
    """The types and paths of a multi read: getData and getChildren. As in ZooKeeper, they set no watches."""
    reader = Reader(data, position, end)
    reads: list[tuple[int, str]] = []
    while True:
        op, is_end, _ = reader.read_multi_header()
        if is_end:
            return reads
        if op not in (Op.GET_DATA, Op.GET_CHILDREN):
            raise JuteError(f"{op} is not an operation of a multiRead")
        reads.append((op, reader.read_string()))
        reader.read_bool()


def path_and_number(data: bytes, position: int, end: int) -> tuple[str, int]:
    """The request of checkWatches and removeWatches."""
    reader = Reader(data, position, end)
    return reader.read_string(), reader.read_int()


def auth_packet(data: bytes, position: int, end: int) -> AuthPacket:
    """The request with a client's credentials."""
    reader = Reader(data, position, end)
    reader.read_int()
    return AuthPacket(reader.read_string(), reader.read_buffer() or b"")


def sasl_token(data: bytes, position: int, end: int) -> bytes:
    """The request with a token of SASL."""
    return Reader(data, position, end).read_buffer() or b""


def watches_to_set(data: bytes, position: int, end: int, *, with_persistent: bool) -> WatchesToSet:
    """The request of setWatches (and, with persistent ones, setWatches2)."""
    reader = Reader(data, position, end)
    zxid = reader.read_long()
    data_paths, exist, children = (reader.read_vector(reader.read_string) for _ in range(3))
    persistent = (
        [*reader.read_vector(reader.read_string), *reader.read_vector(reader.read_string)] if with_persistent else []
    )
    return WatchesToSet(zxid, data_paths, exist, children, persistent)


# Writing


def connect_response(timeout_ms: int, session_id: int, password: bytes, read_only: bool | None) -> bytes:
    """The first response; a timeout of 0 says that the session has ended. `read_only` as in the request."""
    size = _CONNECTED.size - 4 + (read_only is not None)
    head = _CONNECTED.pack(size, 0, timeout_ms, session_id, len(password), password)
    return head if read_only is None else head + b"\0"


def reply(xid: int, zxid: int, error: int = 0, body: bytes = b"") -> bytes:
    """A response with its size in front."""
    return _REPLY.pack(_REPLY_SIZE + len(body), xid, zxid, error) + body


def data_reply(xid: int, zxid: int, node: Znode) -> bytes:
    """The response to getData."""
    data = node.data
    if data is None:
        return _REPLY_WITH_LENGTH.pack(_REPLY_SIZE + 4 + _STAT.size, xid, zxid, 0, -1) + node_stat(node)
    length = len(data)
    size = _REPLY_SIZE + 4 + length + _STAT.size
    return _REPLY_WITH_LENGTH.pack(size, xid, zxid, 0, length) + data + node_stat(node)


def data_body(node: Znode) -> bytes:
    """A node's data and Stat, as in the response to a multi read."""
    return buffer_body(node.data) + node_stat(node)


def buffer_body(content: bytes | None) -> bytes:
    """Bytes with their length."""
    return _INT.pack(-1) if content is None else _INT.pack(len(content)) + content


def int_body(number: int) -> bytes:
    """An i32."""
    return _INT.pack(number)


def identities_body(known: Sequence[tuple[str, str]]) -> bytes:
    """Schemes and users."""
    return _INT.pack(len(known)) + b"".join([string_body(scheme) + string_body(user) for scheme, user in known])


def node_stat(node: Znode) -> bytes:
    """A node's Stat."""
    count = len(node.children)
    return _STAT_OF_NODE.pack(
        node.czxid, node.mzxid, node.ctime_ms, node.mtime_ms, node.version, 2 * node.created - count & 0xFFFFFFFF,
        node.aversion, node.ephemeral_owner, len(node.data or b""), count, node.pzxid,
    )  # fmt: skip


def stat_body(stat: Stat) -> bytes:
    """An already computed Stat."""
    return _STAT.pack(*stat)


def string_body(text: str) -> bytes:
    """A string."""
    content = text.encode()
    return _INT.pack(len(content)) + content


def strings_body(texts: Iterable[str]) -> bytes:
    """A vector of strings."""
    contents = [text.encode() for text in texts]
    parts = [_INT.pack(len(contents))]
    for content in contents:
        parts += (_INT.pack(len(content)), content)
    return b"".join(parts)


def acl_body(acl: AclList) -> bytes:
    """An access list."""
    parts = [_INT.pack(len(acl))]
    for perms, scheme, who in acl:
        parts += (_INT.pack(perms), string_body(scheme), string_body(who))
    return b"".join(parts)


def result_body(op: int, done: ServerOperation, result: Result, zxid: int, now_ms: int, session_id: int) -> bytes:
    """The body of the response to a change: the path created, the Stat, or nothing."""
    if isinstance(result, Stat):
        return _STAT.pack(*result)
    if isinstance(result, str):
        body = string_body(result)
        if op == Op.CREATE2 and isinstance(done, Create):
            owner = session_id if done.ephemeral else 0
            body += _STAT.pack(zxid, zxid, now_ms, now_ms, 0, 0, 0, owner, len(done.data or b""), 0, zxid)
        return body
    return b""


def multi_body(
    ops: Sequence[int],
    operations: Sequence[Operation],
    results: Sequence[Result],
    zxid: int,
    now_ms: int,
    session_id: int,
) -> bytes:
    """The results of a multi: type and body of each."""
    parts: list[bytes] = []
    for op, done, result in zip(ops, operations, results, strict=True):
        if type(result) is Stat:
            parts.append(_STAT_IN_MULTI.pack(op, False, 0, *result))
        else:
            parts += (_MULTI_HEADER.pack(op, False, 0), result_body(op, done, result, zxid, now_ms, session_id))
    parts.append(_MULTI_HEADER.pack(-1, True, -1))
    return b"".join(parts)


def multi_read_body(results: Sequence[tuple[int, int, bytes]]) -> bytes:
    """The results of a multi read: type, error and body of each."""
    parts: list[bytes] = []
    for op, error, body in results:
        parts += (_MULTI_HEADER.pack(op, False, error), body)
    parts.append(_MULTI_HEADER.pack(-1, True, -1))
    return b"".join(parts)


def failed_multi_body(codes: Sequence[int]) -> bytes:
    """The error codes of the operations of a failed multi."""
    return multi_read_body([(Op.ERROR, code, _INT.pack(code)) for code in codes])


def event(happened: WatchEvent) -> bytes:
    """A watch event."""
    path = happened.path.encode()
    return (
        _EVENT.pack(
            _EVENT.size - 4 + len(path), EVENT_XID, NO_ZXID, 0, EVENT_TYPES[happened.type], CONNECTED_STATE, len(path)
        )
        + path
    )
