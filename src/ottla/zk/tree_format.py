"""File formats of a tree: its log and its snapshot. Pure.

Both consist of records `length (u32) | crc32c (u32) | payload`, the payload JSON in UTF-8; node data is text in which
each byte is one character (latin-1), so that any data survives and JSON in it stays readable.

    log       [zxid, time_ms, [[kind, path, data, version, owner, acl], ...], 2]
              kind and version as in `tree.ZnodeChange`; owner and acl are left out at the end if the node has no owner
              and everybody has all permissions; the end of a session (close) deletes its ephemeral nodes, too, which
              are not listed
    snapshot  [3, last_zxid, number of nodes], then records [nodes, sessions], and each node
              [path, data, czxid, mzxid, pzxid, ctime_ms, mtime_ms, version, created, aversion, owner, acl],
              each session [id, password, timeout_ms]

Older trees have records without the 2, and snapshots that are one record: [2, last_zxid, nodes, sessions], and before
those [1, last_zxid, nodes] without owners and ACLs; the counts of created children in the oldest are counts of created
and deleted ones, from which sequential numbers continued then, too.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from json.encoder import encode_basestring as _quoted
from typing import Any, NamedTuple

from ottla.records.crc import crc32c
from ottla.zk.acl import OPEN_ACL, Acl, AclList
from ottla.zk.sessions import FIRST_DURABLE_SESSION
from ottla.zk.tree import SessionRecord, Tree, ZkError, Znode, ZnodeChange

LOG_NAME = "ottla-tree.log"
SNAPSHOT_NAME = "ottla-tree.snapshot"
FORMAT = 2
"""Format of the log's records."""
SNAPSHOT_FORMAT = 3
OLD_FORMATS = (1, 2)
"""Formats of snapshots that are one record, which is too small for a tree of some gigabytes."""
CHUNK_BYTES = 256 * 1024
"""Approximate data size of the nodes in one record of a snapshot."""
NODE_OVERHEAD_BYTES = 100
SESSIONS_PER_RECORD = 10_000

HOLE = bytes(512)
"""A sector that was never written. No record holds this many zeros: JSON has none, and a header is short."""

_HEAD = struct.Struct(">II")


class TreeDamaged(Exception):
    """A file of the tree cannot be read; the message says which, why, and what to do."""


def transaction_record(zxid: int, time_ms: int, changes: Iterable[ZnodeChange]) -> bytes:
    """A record of the log. It is formatted by hand: as JSON it would take five times as long."""
    texts = []
    for kind, path, data, version, owner, acl in changes:
        content = "null" if data is None else _quoted(data.decode("latin-1"))
        rest = f",{_json(_owner_and_acl(owner, acl))[1:-1]}" if owner or acl is not OPEN_ACL else ""
        texts.append(f'["{kind}",{_quoted(path)},{content},{version}{rest}]')
    return _record(f"[{zxid},{time_ms},[{','.join(texts)}],{FORMAT}]")


class Captured(NamedTuple):
    """A copy of the part of a tree that outlasts this process; it is never changed, so a thread may write it."""

    zxid: int
    nodes: list[tuple[Any, ...]]
    sessions: list[list[Any]]


def snapshot_records(found: Captured) -> bytes:
    """The whole snapshot. Built in chunks, so that the thread releases the interpreter in between."""
    parts = [_record(_json([SNAPSHOT_FORMAT, found.zxid, len(found.nodes)]))]
    chunk: list[list[Any]] = []
    size = 0
    for path, data, *rest in found.nodes:
        chunk.append(_node_fields(path, data, rest))
        size += NODE_OVERHEAD_BYTES + len(path) + len(data or b"")
        if size > CHUNK_BYTES:
            parts.append(_record(_json([chunk, []])))
            chunk, size = [], 0
    parts.append(_record(_json([chunk, []])))
    starts = range(0, len(found.sessions), SESSIONS_PER_RECORD)
    parts.extend(_record(_json([[], found.sessions[start : start + SESSIONS_PER_RECORD]])) for start in starts)
    parts.append(_record(_json([[], []])))  # without this end record a snapshot is incomplete
    return b"".join(parts)


def logged(changes: Sequence[ZnodeChange]) -> list[ZnodeChange]:
    """The changes to replay after a restart, without those implied by the end of a session."""
    ended = changes[-1].owner if changes and changes[-1].kind == "close" else 0
    return [
        change
        for change in changes
        if outlasts(change.owner) and not (ended and change.kind == "delete" and change.owner == ended)
    ]


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _record(text: str) -> bytes:
    payload = text.encode()
    return _HEAD.pack(len(payload), crc32c(payload)) + payload


def session_fields(number: int, session: SessionRecord) -> list[Any]:
    """A session in a snapshot."""
    return [number, _text(session.password), session.timeout_ms]


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("latin-1")


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("latin-1")


def outlasts(owner: int) -> bool:
    """Whether nodes of that session (0: persistent) still exist when this process has ended."""
    return owner == 0 or owner >= FIRST_DURABLE_SESSION


def _node_fields(path: str, data: bytes | None, rest: Sequence[Any]) -> list[Any]:
    *numbers, owner, acl = rest
    return [path, _text(data), *numbers, *_owner_and_acl(owner, acl)]


def _owner_and_acl(owner: int, acl: AclList) -> list[Any]:
    """Owner and ACL for the end of a record; defaults are left out."""
    if acl is not OPEN_ACL:
        return [owner, acl]
    return [owner] if owner else []


def _acl(entries: Sequence[Sequence[Any]]) -> AclList:
    acl = tuple(Acl(*entry) for entry in entries)
    return OPEN_ACL if acl == OPEN_ACL else acl


def _next_record(content: bytes, position: int) -> tuple[Any, int] | None:
    """The record at `position` and where the next one starts; None if it is incomplete."""
    if position + _HEAD.size > len(content):
        return None
    length, crc = _HEAD.unpack_from(content, position)
    start = position + _HEAD.size
    # The checksum of nothing is 0: zeros, as a power failure leaves them at a file's end, are not a record.
    if length == 0 or start + length > len(content):
        return None
    payload = content[start : start + length]
    if crc32c(payload) != crc:
        return None
    return json.loads(payload), start + length


def load_snapshot(tree: Tree, content: bytes, path: str) -> None:
    """Load a snapshot into an empty tree. Raises `TreeDamaged`."""
    head, *records = _records_of_snapshot(content) or [[None]]
    if head[0] in OLD_FORMATS and not records:
        records = [[head[2], head[3] if len(head) > 3 else []]]
    elif isinstance(head[0], int) and head[0] > SNAPSHOT_FORMAT:
        raise _newer(path, head[0], SNAPSHOT_FORMAT)
    elif head[0] != SNAPSHOT_FORMAT or records[-1:] != [[[], []]] or sum(len(nodes) for nodes, _ in records) != head[2]:
        raise TreeDamaged(
            f"{path} is damaged or of another format. Restore the files ottla-tree.* from a copy, or move all of them "
            "away: topics are then adopted again from their partition directories, but their settings are lost."
        )
    tree.last_zxid = head[1]
    for nodes, sessions in records:
        for fields in nodes:
            _load_node(tree, *fields)
        for session_id, password, timeout_ms in sessions:
            tree.sessions[session_id] = SessionRecord(_bytes(password) or b"", timeout_ms)
    for node_path in tree.nodes:
        if node_path != "/":
            parent, _, name = node_path.rpartition("/")
            tree.nodes[parent or "/"].add_child(name)


def _newer(path: str, found: int, known: int) -> TreeDamaged:
    return TreeDamaged(
        f"{path}: format {found} is of a newer release, and this one knows {known}; start the release that wrote it, "
        "or a later one, or restore the files ottla-tree.* from a copy of before it"
    )


def _records_of_snapshot(content: bytes) -> list[Any]:
    """Its records; none if one of them is incomplete."""
    records: list[Any] = []
    position = 0
    while position < len(content):
        found = _next_record(content, position)
        if found is None:
            return []
        records.append(found[0])
        position = found[1]
    return records


def _load_node(
    tree: Tree,
    path: str,
    data: str | None,
    czxid: int,
    mzxid: int,
    pzxid: int,
    ctime_ms: int,
    mtime_ms: int,
    version: int,
    created: int,
    aversion: int,
    owner: int = 0,
    acl: Sequence[Sequence[Any]] | None = None,
) -> None:
    node = tree.nodes.get(path)
    if node is None:
        node = tree.nodes[path] = Znode(None, czxid, ctime_ms, owner)
        if owner:
            tree.own(path, node)
    node.data = _bytes(data)
    node.mzxid, node.pzxid, node.mtime_ms = mzxid, pzxid, mtime_ms
    node.version, node.created, node.aversion = version, created, aversion
    if acl is not None:
        node.acl = _acl(acl)


def _change(
    kind: str, path: str, data: str | None, version: int, owner: int = 0, acl: Sequence[Sequence[Any]] | None = None
) -> ZnodeChange:
    return ZnodeChange(kind, path, _bytes(data), version, owner, OPEN_ACL if acl is None else _acl(acl))


class ReplayedLog(NamedTuple):
    """How far the log could be read: its first `good` bytes; `behind` is the position of complete records behind
    unreadable bytes, None if there are none.
    """

    good: int
    behind: int | None


def replay_log(tree: Tree, content: bytes, path: str) -> ReplayedLog:
    """Apply the log's records that the snapshot does not include, up to the first incomplete one."""
    position = 0
    while (found := _next_record(content, position)) is not None:
        (zxid, time_ms, changes, *rest), position_after = found
        if rest and rest[0] > FORMAT:
            raise _newer(path, rest[0], FORMAT)
        if zxid > tree.last_zxid:
            try:
                tree.replay(zxid, time_ms, [_change(*change) for change in changes])
            except ZkError as error:
                raise TreeDamaged(
                    f"{path} does not fit its snapshot at byte {position} ({error}). Restore the files ottla-tree.* "
                    "from a copy, all of one time, or move all of them away: topics are then adopted again from "
                    "their partition directories, but their settings are lost."
                ) from error
        position = position_after
    return ReplayedLog(position, _next_whole_record(content, position + 1))


def _next_whole_record(content: bytes, start: int) -> int | None:
    """The position of the first complete record from `start` on, None if there is none."""
    payload = content.find(b"[", start + _HEAD.size)
    while payload >= 0:
        if _next_record(content, payload - _HEAD.size) is not None:
            return payload - _HEAD.size
        payload = content.find(b"[", payload + 1)
    return None
