"""A client of ZooKeeper's protocol that sends what it is told to, byte for byte, and decodes what comes back.

Written apart from `ottla.zk.wire`, so that a misunderstanding is not made twice.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple

from support.ports import LOOPBACK

CREATE, DELETE, EXISTS, GET_DATA, SET_DATA, GET_ACL, SET_ACL, GET_CHILDREN, SYNC = 1, 2, 3, 4, 5, 6, 7, 8, 9
PING, GET_CHILDREN2, CHECK, MULTI, CREATE2 = 11, 12, 13, 14, 15
CHECK_WATCHES, REMOVE_WATCHES, MULTI_READ = 17, 18, 22
AUTH, SET_WATCHES, SET_WATCHES2, CLOSE = 100, 101, 105, -11
GET_EPHEMERALS, GET_ALL_CHILDREN_NUMBER, WHO_AM_I = 103, 104, 107
PING_XID, EVENT_XID = -2, -1
TIMEOUT_S = 60.0

Acl = tuple[int, str, str]
OPEN: tuple[Acl, ...] = ((31, "world", "anyone"),)


def string(text: str | None) -> bytes:
    return buffer(None if text is None else text.encode())


def buffer(content: bytes | None) -> bytes:
    return struct.pack(">i", -1) if content is None else struct.pack(">i", len(content)) + content


def strings(texts: Sequence[str]) -> bytes:
    return struct.pack(">i", len(texts)) + b"".join(map(string, texts))


def acls(entries: Sequence[Acl]) -> bytes:
    packed = [struct.pack(">i", perms) + string(scheme) + string(who) for perms, scheme, who in entries]
    return struct.pack(">i", len(packed)) + b"".join(packed)


def create(path: str, data: bytes | None = b"", flags: int = 0, acl: Sequence[Acl] = OPEN) -> bytes:
    return string(path) + buffer(data) + acls(acl) + struct.pack(">i", flags)


def versioned(path: str, version: int = -1) -> bytes:
    return string(path) + struct.pack(">i", version)


def set_data(path: str, data: bytes | None, version: int = -1) -> bytes:
    return string(path) + buffer(data) + struct.pack(">i", version)


def set_acl(path: str, acl: Sequence[Acl], version: int = -1) -> bytes:
    return string(path) + acls(acl) + struct.pack(">i", version)


def watching(path: str, watch: bool = False) -> bytes:
    return string(path) + bytes([watch])


def multi(operations: Sequence[tuple[int, bytes]]) -> bytes:
    parts = [struct.pack(">i?i", op, False, -1) + body for op, body in operations]
    return b"".join(parts) + struct.pack(">i?i", -1, True, -1)


def set_watches(zxid: int, data: Sequence[str], exist: Sequence[str], children: Sequence[str]) -> bytes:
    return struct.pack(">q", zxid) + strings(data) + strings(exist) + strings(children)


def auth(scheme: str, who: bytes) -> bytes:
    return struct.pack(">i", 0) + string(scheme) + buffer(who)


class Stat(NamedTuple):
    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    children: int
    pzxid: int


class Event(NamedTuple):
    type: int
    state: int
    path: str


class Answer(NamedTuple):
    """`result` is what the answer's bytes mean, by the type of the request; None for an error."""

    xid: int
    zxid: int
    error: int
    result: object


@dataclass
class _Reading:
    data: bytes
    at: int = 0

    def take(self, layout: str) -> tuple[int, ...]:
        values = struct.unpack_from(">" + layout, self.data, self.at)
        self.at += struct.calcsize(">" + layout)
        return values

    def int(self) -> int:
        return self.take("i")[0]

    def buffer(self) -> bytes | None:
        length = self.take("i")[0]
        if length < 0:
            return None
        self.at += length
        return self.data[self.at - length : self.at]

    def text(self) -> str:
        return (self.buffer() or b"").decode()

    def stat(self) -> Stat:
        return Stat(*self.take("qqqqiiiqiiq"))

    def children(self) -> list[str]:
        return sorted(self.text() for _ in range(self.take("i")[0]))

    def acl(self) -> list[Acl]:
        return sorted((self.take("i")[0], self.text(), self.text()) for _ in range(self.take("i")[0]))

    def event(self) -> Event:
        kind, state = self.take("ii")
        return Event(kind, state, self.text())

    def multi(self) -> list[tuple[object, ...]]:
        results: list[tuple[object, ...]] = []
        while True:
            op, done, error = self.take("i?i")
            if done:
                results.append((op, error))
                return results
            results.append((op, error, self.body(op)))

    def body(self, op: int) -> object:
        if op == -1:
            return self.take("i")[0]
        if op in (EXISTS, SET_DATA, SET_ACL):
            return self.stat()
        if op == GET_DATA:
            return self.buffer(), self.stat()
        if op == CREATE2:
            return self.text(), self.stat()
        if op in (CREATE, SYNC):
            return self.text()
        if op == GET_CHILDREN:
            return self.children()
        if op == GET_CHILDREN2:
            return self.children(), self.stat()
        if op == GET_ACL:
            return self.acl(), self.stat()
        if op in (MULTI, MULTI_READ):
            return self.multi()
        if op == GET_EPHEMERALS:
            return self.children()
        if op == GET_ALL_CHILDREN_NUMBER:
            return self.int()
        if op == WHO_AM_I:
            return sorted((self.text(), self.text()) for _ in range(self.take("i")[0]))
        return None


@dataclass
class RawClient:
    """One connection. `events` fills up as answers are read."""

    port: int
    timeout_ms: int = 6000
    session_id: int = 0
    password: bytes = bytes(16)
    last_zxid: int = 0
    read_only: bool | None = False
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.socket = socket.create_connection((LOOPBACK, self.port), TIMEOUT_S)
        self._xid = 0
        #: Requests sent, and answers received.
        self.sent = self.answered = 0
        self._buffered = b""

    def connect(self) -> RawClient:
        """Open the session, or take one up."""
        request = struct.pack(">iqiq", 0, self.last_zxid, self.timeout_ms, self.session_id) + buffer(self.password)
        if self.read_only is not None:
            request += bytes([self.read_only])
        self.send_frame(request)
        reading = _Reading(self.read_frame())
        _, self.timeout_ms, self.session_id = reading.take("iiq")
        self.password = reading.buffer() or b""
        assert len(reading.data) - reading.at == (self.read_only is not None)
        return self

    def send_frame(self, frame: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def read_frame(self) -> bytes:
        """One frame; ConnectionError at the end of the connection."""
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def _read(self, size: int) -> bytes:
        while len(self._buffered) < size:
            more = self.socket.recv(65536)
            if not more:
                raise ConnectionError("the server closed the connection")
            self._buffered += more
        taken, self._buffered = self._buffered[:size], self._buffered[size:]
        return taken

    def send(self, op: int, body: bytes = b"", xid: int | None = None) -> int:
        """Send a request, and its xid."""
        if xid is None:
            self._xid += 1
            xid = self._xid
        self.send_frame(struct.pack(">ii", xid, op) + body)
        self.sent += 1
        return xid

    def receive(self, op: int) -> Answer:
        """The next answer; events that come before it are kept."""
        while True:
            reading = _Reading(self.read_frame())
            xid, zxid, error = reading.take("iqi")
            if xid == EVENT_XID:
                self.events.append(reading.event())
                continue
            result = reading.body(op) if error == 0 else None
            self.answered += 1
            assert reading.at == len(reading.data), f"{len(reading.data) - reading.at} bytes are left over"
            return Answer(xid, zxid, error, result)

    def ask(self, op: int, body: bytes = b"", xid: int | None = None) -> Answer:
        """Send a request and read its answer."""
        sent = self.send(op, body, xid)
        answer = self.receive(op)
        assert answer.xid == sent
        if answer.zxid > 0:
            self.last_zxid = answer.zxid
        return answer

    def next_event(self) -> Event:
        """The next event while no answer is due; waits for it."""
        if not self.events:
            reading = _Reading(self.read_frame())
            xid, _, _ = reading.take("iqi")
            assert xid == EVENT_XID, f"an answer ({xid}) in place of an event"
            self.events.append(reading.event())
        return self.events.pop(0)

    def ping(self) -> Answer:
        """What came before its answer has been received."""
        return self.ask(PING, xid=PING_XID)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> RawClient:
        try:
            return self.connect()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
