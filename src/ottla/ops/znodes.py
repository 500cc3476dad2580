"""Znodes read for people: one with its data, or a subtree."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

from ottla.inspection.texts import TextFormat, field_of
from ottla.zk.client import ZkClient
from ottla.zk.tree import NoAuthError, NoNodeError, Stat

#: Nodes whose children are asked for at a time.
CHILDREN_AT_ONCE: Final = 100

_UNKNOWN: Final = Stat(*[0] * len(Stat._fields))


@dataclass(frozen=True, slots=True)
class ZnodeView:
    """A node; `depth` counts from where the reading began."""

    path: str
    data: bytes | None
    stat: Stat
    depth: int = 0
    is_readable: bool = True
    """False if its ACL forbids to read it: data, Stat and children are not known."""

    @property
    def value(self) -> Any:
        """Object of JSON, as most of Kafka's nodes have, else the text, else None."""
        if self.data is None:
            return None
        try:
            return json.loads(self.data)
        except (ValueError, RecursionError):
            name, value = self._field()
            return value if name == "data" else None

    @property
    def text(self) -> str:
        """The data as text; 0x and hexadecimal where they are not text."""
        if self.data is None:
            return ""
        name, value = self._field()
        return f"0x{value}" if name == "data_hex" else str(value)

    def _field(self) -> tuple[str, Any]:
        return field_of("data", self.data, TextFormat.AUTO)

    def row(self) -> dict[str, Any]:
        """The node as a row: `data` as text (`data_hex` if it is not), times in ms, the owner of an ephemeral node."""
        if not self.is_readable:
            return {"path": self.path, "data": None, "is_readable": False}
        stat = self.stat
        name, value = self._field()
        return {
            "path": self.path,
            name: value,
            "version": stat.version,
            "created_ms": stat.ctime_ms,
            "changed_ms": stat.mtime_ms,
            "children": stat.children_count,
            "children_version": stat.cversion,
            "czxid": stat.czxid,
            "mzxid": stat.mzxid,
            "pzxid": stat.pzxid,
            "ephemeral_owner": hex(stat.ephemeral_owner) if stat.ephemeral_owner else None,
        }


async def read_znode(zk: ZkClient, path: str, depth: int = 0) -> ZnodeView:
    """The node at `path`. Raises NoNodeError, NoAuthError, ZkError."""
    data, stat = await zk.get(path)
    return ZnodeView(path, data, stat, depth)


async def _read_or_note(zk: ZkClient, path: str, depth: int) -> ZnodeView | None:
    """The node at `path`, None if it is gone; one that may not be read is there without its data."""
    try:
        return await read_znode(zk, path, depth)
    except NoNodeError:
        return None
    except NoAuthError:
        return ZnodeView(path, None, _UNKNOWN, depth, is_readable=False)


async def read_subtree(zk: ZkClient, path: str, most_depth: int | None = None) -> AsyncIterator[ZnodeView]:
    """Yield a node and those below it, parents first, children sorted; `most_depth` 1 has the children only.

    Nodes that go meanwhile are left out. Raises NoNodeError if there is none at `path`, ZkError.
    """
    root = await read_znode(zk, path)
    # Nodes to be yielded, the last one first.
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        if node.stat.children_count and node.is_readable and (most_depth is None or node.depth < most_depth):
            pending += reversed(await _children(zk, node))


async def _children(zk: ZkClient, node: ZnodeView) -> list[ZnodeView]:
    try:
        names = await zk.children(node.path)
    except NoNodeError:
        return []
    found: list[ZnodeView] = []
    for at in range(0, len(names), CHILDREN_AT_ONCE):
        paths = [f"{node.path.rstrip('/')}/{name}" for name in names[at : at + CHILDREN_AT_ONCE]]
        try:
            contents = await zk.get_many(paths)
        except NoAuthError:
            found += [each for path in paths if (each := await _read_or_note(zk, path, node.depth + 1)) is not None]
        else:
            nodes = zip(paths, contents, strict=True)
            found += [ZnodeView(path, *content, node.depth + 1) for path, content in nodes if content is not None]
        await asyncio.sleep(0)
    return found
