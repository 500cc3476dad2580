"""The transaction log of an Apache ZooKeeper: every write in its order, with its time. Read from its file.

Format: `org.apache.zookeeper.server.persistence.FileTxnLog`; records are Jute (`zookeeper.jute`).
"""

from __future__ import annotations

import struct
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

MAGIC = b"ZKLG"
_FILE_HEADER = struct.Struct(">4siq")
_ENTRY_HEAD = struct.Struct(">qi")
#: Session, its own number of the request, zxid, time in ms, kind.
_TRANSACTION_HEAD = struct.Struct(">qiqqi")
_INT32 = struct.Struct(">i")


class Kind(IntEnum):
    """What a transaction is (`ZooDefs.OpCode`)."""

    CREATE_SESSION = -10
    CLOSE_SESSION = -11
    CREATE = 1
    DELETE = 2
    SET_DATA = 5
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    CREATE_CONTAINER = 19


class Written(NamedTuple):
    """One transaction. `operations` are its parts as text: `create PATH DATA`, `set PATH version N DATA`, …"""

    zxid: int
    at_ms: int
    session: int
    operations: tuple[str, ...]


class _Jute:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def int32(self) -> int:
        (value,) = _INT32.unpack_from(self._data, self._position)
        self._position += _INT32.size
        return int(value)

    def buffer(self) -> bytes:
        size = max(self.int32(), 0)
        self._position += size
        return self._data[self._position - size : self._position]

    def text(self) -> str:
        return self.buffer().decode(errors="backslashreplace")

    def boolean(self) -> bool:
        self._position += 1
        return self._data[self._position - 1] != 0


def transactions(folder: Path) -> list[Written]:
    """All in the logs of the data directory `folder` that are not mere failures, in their order."""
    found: list[Written] = []
    for path in sorted(folder.glob("version-2/log.*"), key=lambda path: int(path.suffix[1:], 16)):
        found += _of_file(path.read_bytes())
    return found


def _of_file(data: bytes) -> list[Written]:
    magic, _, _ = _FILE_HEADER.unpack_from(data)
    assert magic == MAGIC, magic
    found = []
    position = _FILE_HEADER.size
    while position + _ENTRY_HEAD.size <= len(data):
        _, size = _ENTRY_HEAD.unpack_from(data, position)
        position += _ENTRY_HEAD.size
        if size == 0:  # the file is made longer than it has to be
            break
        session, _, zxid, at_ms, kind = _TRANSACTION_HEAD.unpack_from(data, position)
        body = data[position + _TRANSACTION_HEAD.size : position + size]
        operations = _operations(kind, _Jute(body))
        if operations:
            found.append(Written(zxid, at_ms, session, tuple(operations)))
        position += size + 1
    return found


def _operations(kind: int, body: _Jute) -> list[str]:
    match kind:
        case Kind.MULTI:
            parts = [(body.int32(), body.buffer()) for _ in range(body.int32())]
            return [text for part, data in parts for text in _operations(part, _Jute(data))]
        case Kind.CREATE | Kind.CREATE2 | Kind.CREATE_CONTAINER:
            return [_create(body)]
        case Kind.DELETE:
            return [f"delete {body.text()}"]
        case Kind.SET_DATA:
            path, text = body.text(), body.text()
            return [f"set {path} version {body.int32()} {text}".rstrip()]
        case Kind.CHECK:
            return [f"check {body.text()} version {body.int32()}"]
        case Kind.CREATE_SESSION:
            return [f"session for {body.int32()} ms"]
        case Kind.CLOSE_SESSION:
            return ["end of session"]
        case _:
            return []


def _create(body: _Jute) -> str:
    path, text = body.text(), body.text()
    for _ in range(body.int32()):
        body.int32()
        body.buffer()
        body.buffer()
    return f"create {'ephemeral ' if body.boolean() else ''}{path} {text}".rstrip()
