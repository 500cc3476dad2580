"""A copy of the znode tree as it is at one moment, made in slices between which the tree changes. Pure.

A node is copied before its first change since that moment, so the copy is of one state however long it takes.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ottla.zk.tree_format import Captured, outlasts, session_fields

if TYPE_CHECKING:
    from ottla.zk.tree import Tree, Znode

#: Nodes that are copied in one slice, a third of a microsecond each.
NODES_PER_SLICE: Final = 5_000
#: A copy of this many nodes costs the garbage collector tens of milliseconds in one go.
LARGE_TREE_NODES: Final = 50_000


class TreeCapture:
    """One copy. While it is made `tree.capture` is this: the tree calls `copy_node` before it changes a node."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._zxid = tree.last_zxid
        #: The nodes that are not copied yet; a plain copy of all references takes a few milliseconds.
        self._left = dict(tree.nodes)
        self._paths = iter(tuple(self._left))
        self._nodes: list[tuple[Any, ...]] = []
        self._sessions = [session_fields(number, session) for number, session in tree.sessions.items()]
        tree.capture = self

    def copy_node(self, path: str, node: Znode) -> None:
        """Copy a node that is about to change, unless that was done, or it is newer than the moment of the copy."""
        if self._left.pop(path, None) is not None and outlasts(node.ephemeral_owner):
            self._nodes.append(_fields(path, node))

    def copy_slice(self, pass_over: Callable[[], None] = lambda: None) -> bool:
        """Copy some nodes; whether all are copied now. `pass_over` keeps a large copy out of the next collections."""
        left = self._left
        with _collector_off():
            self._nodes.extend(
                _fields(path, node)
                for path in islice(self._paths, NODES_PER_SLICE)
                if (node := left.pop(path, None)) is not None and outlasts(node.ephemeral_owner)
            )
            if len(self._nodes) >= LARGE_TREE_NODES:
                pass_over()
        return not left

    def end(self) -> Captured:
        """End the copy, finished or not, and return it."""
        self._tree.capture = None
        return Captured(self._zxid, self._nodes, self._sessions)


def captured(tree: Tree) -> Captured:
    """Copy the tree in one go."""
    capture = TreeCapture(tree)
    with _collector_off():
        while not capture.copy_slice():
            pass
    return capture.end()


@contextmanager
def _collector_off() -> Iterator[None]:
    """Do without the garbage collector: it would traverse all nodes again and again, and make it ten times slower."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _fields(path: str, node: Znode) -> tuple[Any, ...]:
    return (
        path, node.data, node.czxid, node.mzxid, node.pzxid, node.ctime_ms, node.mtime_ms, node.version,
        node.created, node.aversion, node.ephemeral_owner, node.acl,
    )  # fmt: skip
