"""Requests of ZooKeeper's protocol as bytes, made before a measurement begins, and the sessions they are sent in."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType

from frames import HOST

from ottla.zk.wire import EVENT_XID, Op

#: What a session is kept for without its client being heard of; no load pauses for so long.
SESSION_TIMEOUT_MS = 10_000
TIMEOUT_S = 60.0
SIZE_FIELD = 4

_SIZE = struct.Struct(">i")
_REPLY = struct.Struct(">iqi")
_CONNECT = struct.Struct(">iiqiqi16s?")
_MULTI_HEADER = struct.Struct(">i?i")
_OPEN_ACL = struct.pack(">iii5si6s", 1, 31, 5, b"world", 6, b"anyone")
_ANY_VERSION = struct.pack(">i", -1)
_NO_FLAGS = struct.pack(">i", 0)
#: Nothing looks at the numbers of requests but those who send them: all have the same.
_XID = 1

CONNECT_FRAME = _CONNECT.pack(_CONNECT.size - SIZE_FIELD, 0, 0, SESSION_TIMEOUT_MS, 0, 16, bytes(16), False)
#: Size, version, timeout, session, password and read-only.
CONNECT_ANSWER_BYTES = 4 + 4 + 4 + 8 + 4 + 16 + 1


class AnswerRefused(Exception):
    """A server answered with an error, or not at all."""


def _buffer(content: bytes) -> bytes:
    return _SIZE.pack(len(content)) + content


def _frame(op: int, body: bytes) -> bytes:
    return struct.pack(">iii", 8 + len(body), _XID, op) + body


def _create_body(path: str, data: bytes) -> bytes:
    return _buffer(path.encode()) + _buffer(data) + _OPEN_ACL + _NO_FLAGS


def _set_body(path: str, data: bytes) -> bytes:
    return _buffer(path.encode()) + _buffer(data) + _ANY_VERSION


def create(path: str, data: bytes = b"") -> bytes:
    """Make a node."""
    return _frame(Op.CREATE, _create_body(path, data))


def delete(path: str) -> bytes:
    """Delete a node."""
    return _frame(Op.DELETE, _buffer(path.encode()) + _ANY_VERSION)


def set_data(path: str, data: bytes) -> bytes:
    """Replace a node's data."""
    return _frame(Op.SET_DATA, _set_body(path, data))


def read(op: Op, path: str, watch: bool = False) -> bytes:
    """getData, exists or getChildren."""
    return _frame(op, _buffer(path.encode()) + bytes([watch]))


def multi_set(paths: Sequence[str], data: bytes) -> bytes:
    """One transaction that replaces the data of several nodes."""
    return _multi((Op.SET_DATA, _set_body(path, data)) for path in paths)


def multi_create(paths: Sequence[str], data: bytes) -> bytes:
    """One transaction that makes several nodes."""
    return _multi((Op.CREATE, _create_body(path, data)) for path in paths)


def _multi(operations: Iterable[tuple[int, bytes]]) -> bytes:
    parts = [_MULTI_HEADER.pack(op, False, -1) + body for op, body in operations]
    return _frame(Op.MULTI, b"".join(parts) + _MULTI_HEADER.pack(-1, True, -1))


PING = _frame(Op.PING, b"")
CLOSE = _frame(Op.CLOSE_SESSION, b"")
#: Size and header.
EMPTY_ANSWER_BYTES = SIZE_FIELD + _REPLY.size


def event_bytes(path: str) -> int:
    """How long the event is that tells of a node."""
    return EMPTY_ANSWER_BYTES + 4 + 4 + 4 + len(path.encode())


@dataclass(frozen=True)
class Burst:
    """Requests that are sent together, and how many bytes answer them."""

    data: bytes
    requests: int
    answer_bytes: int


class Session:
    """A session, blocking until `sock.setblocking(False)`."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection((HOST, port), timeout=TIMEOUT_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.sendall(CONNECT_FRAME)
        answer = self.take(CONNECT_ANSWER_BYTES)
        if not struct.unpack_from(">i", answer, 8)[0]:
            raise AnswerRefused("the server opened no session")

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drop()

    def take(self, size: int) -> bytes:
        """So many bytes of answers."""
        parts = bytearray()
        while len(parts) < size:
            part = self.sock.recv(size - len(parts))
            if not part:
                raise AnswerRefused("the server closed the connection")
            parts += part
        return bytes(parts)

    def burst(self, frames: Sequence[bytes]) -> Burst:
        """Send these requests once, make sure that none is refused, and see how long the answers are."""
        data = b"".join(frames)
        self.sock.sendall(data)
        answered = sum(self._answer() for _ in frames)
        return Burst(data, len(frames), answered)

    def _answer(self) -> int:
        size: int = _SIZE.unpack(self.take(SIZE_FIELD))[0]
        answer = self.take(size)
        xid, _, error = _REPLY.unpack_from(answer)
        if xid == EVENT_XID:
            raise AnswerRefused("an event where none was asked for")
        # Of a transaction that fails the header says nothing; its first result is an error then.
        if error or answer[_REPLY.size : _REPLY.size + 4] == b"\xff\xff\xff\xff":
            raise AnswerRefused(f"the server answered with error {error}")
        return SIZE_FIELD + size

    def drop(self) -> None:
        """Close the session and its connection, whatever is still unread."""
        try:
            self.sock.setblocking(True)
            self.sock.sendall(CLOSE)
            while self.sock.recv(65536):
                pass
        except OSError:
            pass
        self.sock.close()
