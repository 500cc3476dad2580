"""The watches of a session over the wire, with the node's state when they were set. Pure.

The server forgets the watches of a lost connection. After a reconnect in the same session each node is read again with
a new watch, and changes in between are delivered then. ZooKeeper's own client does the same by having the server
compare (`SetWatches`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ottla.zk.tree import EventType, Stat, WatchEvent

Watcher: TypeAlias = Callable[[WatchEvent], None]


class _Watch:
    """The watchers of one node, and the zxid of its last change when it was last read; None: no node."""

    __slots__ = ("seen_zxid", "watchers")

    def __init__(self) -> None:
        self.seen_zxid: int | None = None
        self.watchers: dict[Watcher, None] = {}


class RegisteredWatches:
    """One-shot watches: on data and existence (`get`, `exists`), and on children."""

    def __init__(self) -> None:
        self._data: dict[str, _Watch] = {}
        self._children: dict[str, _Watch] = {}

    @property
    def data_paths(self) -> list[str]:
        """The nodes whose data is watched."""
        return list(self._data)

    @property
    def children_paths(self) -> list[str]:
        """The nodes whose children are watched."""
        return list(self._children)

    def watch_data(self, path: str, watcher: Watcher, stat: Stat | None) -> None:
        """Register a watch with the node's Stat at that time (None: it did not exist)."""
        watch = self._data.setdefault(path, _Watch())
        watch.seen_zxid = None if stat is None else stat.mzxid
        watch.watchers[watcher] = None

    def watch_children(self, path: str, watcher: Watcher, stat: Stat) -> None:
        """Register a watch on the children of a node, with its Stat at that time."""
        watch = self._children.setdefault(path, _Watch())
        watch.seen_zxid = stat.pzxid
        watch.watchers[watcher] = None

    def fire(self, event: WatchEvent) -> list[Watcher]:
        """The watchers to call; their watches are removed."""
        fired: dict[Watcher, None] = {}
        tables = {EventType.CHILDREN_CHANGED: (self._children,), EventType.DELETED: (self._data, self._children)}.get(
            event.type, (self._data,)
        )
        for table in tables:
            watch = table.pop(event.path, None)
            if watch is not None:
                fired.update(watch.watchers)
        return list(fired)

    def missed_of_data(self, path: str, stat: Stat | None) -> WatchEvent | None:
        """The event that a watched node has missed, given its present Stat."""
        watch = self._data.get(path)
        if watch is None:
            return None
        if stat is None:
            return None if watch.seen_zxid is None else WatchEvent(EventType.DELETED, path)
        if watch.seen_zxid is None:
            return WatchEvent(EventType.CREATED, path)
        return WatchEvent(EventType.DATA_CHANGED, path) if stat.mzxid > watch.seen_zxid else None

    def missed_of_children(self, path: str, stat: Stat | None) -> WatchEvent | None:
        """The event that a watch on children has missed, given the node's present Stat."""
        watch = self._children.get(path)
        if watch is None:
            return None
        if stat is None:
            return WatchEvent(EventType.DELETED, path)
        assert watch.seen_zxid is not None
        return WatchEvent(EventType.CHILDREN_CHANGED, path) if stat.pzxid > watch.seen_zxid else None

    def clear(self) -> None:
        """Remove all watches: the session is over."""
        self._data.clear()
        self._children.clear()
