"""One-shot watches: the watchers of each node. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from enum import Enum
from typing import NamedTuple

from ottla.zk.acl import OPEN_ACL, AclList

#: What the constructor of a NamedTuple calls, without its Python overhead: for tuples created on every request.
new_tuple = tuple.__new__


class EventType(Enum):
    """Type of a watch event, in ZooKeeper's words."""

    CREATED = "NodeCreated"
    DELETED = "NodeDeleted"
    DATA_CHANGED = "NodeDataChanged"
    CHILDREN_CHANGED = "NodeChildrenChanged"


class WatchEvent(NamedTuple):
    """A change of the node `path`."""

    type: EventType
    path: str


class GuardedEvent(WatchEvent):
    """An event of a node with a restricted ACL: a client that may not read it gets none; its watch is removed."""

    acl: AclList


def event_of(what: EventType, path: str, acl: AclList) -> WatchEvent:
    """The event for a node with this ACL."""
    if acl is OPEN_ACL:
        return new_tuple(WatchEvent, (what, path))
    event = GuardedEvent(what, path)
    event.acl = acl
    return event


class RemoteWatcher:
    """A client in another process, which may be notified of a change once that is durable."""

    __slots__ = ()

    def notice(self, event: WatchEvent, zxid: int) -> None:
        """Notify the client of a change made by the transaction `zxid`."""
        raise NotImplementedError


class LocalWatch(NamedTuple):
    """A watch of this process."""

    session_id: int
    watcher: Callable[[WatchEvent], object]


class WatchTable:
    """The watchers of each node. A watcher is any hashable object of the caller."""

    __slots__ = ("_children", "_data", "_paths")

    def __init__(self) -> None:
        self._data: dict[str, dict[Hashable, None]] = {}
        self._children: dict[str, dict[Hashable, None]] = {}
        #: Index by watcher: the number of its watches for each path.
        self._paths: dict[Hashable, dict[str, int]] = {}

    def watch_data(self, path: str, watcher: Hashable) -> None:
        """Notify `watcher` when the node is created, changed or deleted."""
        self._watch(self._data, path, watcher)

    def watch_children(self, path: str, watcher: Hashable) -> None:
        """Notify `watcher` when a child is created or deleted, or the node is deleted."""
        self._watch(self._children, path, watcher)

    def _watch(self, table: dict[str, dict[Hashable, None]], path: str, watcher: Hashable) -> None:
        watchers = table.setdefault(path, {})
        if watcher not in watchers:
            watchers[watcher] = None
            paths = self._paths.setdefault(watcher, {})
            paths[path] = paths.get(path, 0) + 1

    def fire(self, events: Iterable[WatchEvent]) -> list[tuple[Hashable, WatchEvent]]:
        """The watchers to notify, with their events; their watches are removed. A deletion notifies each one once."""
        notifications: list[tuple[Hashable, WatchEvent]] = []
        for event in events:
            if event.type is EventType.CHILDREN_CHANGED:
                watchers = self._take(self._children, event.path)
            else:
                watchers = self._take(self._data, event.path)
                if event.type is EventType.DELETED:
                    watchers = {**watchers, **self._take(self._children, event.path)}
            notifications.extend([(watcher, event) for watcher in watchers])
        return notifications

    def _take(self, table: dict[str, dict[Hashable, None]], path: str) -> dict[Hashable, None]:
        watchers = table.pop(path, None)
        if watchers is None:
            return {}
        for watcher in watchers:
            self._forget_one(path, watcher)
        return watchers

    def notify(
        self, events: Iterable[WatchEvent], zxid: int, call_soon: Callable[[Callable[..., object], WatchEvent], object]
    ) -> None:
        """Notify all watchers: clients in other processes at once, those in this one through `call_soon`."""
        if not self._paths:
            return
        for watcher, event in self.fire(events):
            if isinstance(watcher, RemoteWatcher):
                watcher.notice(event, zxid)
            else:
                assert isinstance(watcher, LocalWatch)
                call_soon(watcher.watcher, event)

    def has(self, path: str, watcher: Hashable) -> tuple[bool, bool]:
        """Whether a watcher watches the node's data, and its children."""
        return watcher in self._data.get(path, ()), watcher in self._children.get(path, ())

    def remove(self, path: str, watcher: Hashable, *, on_data: bool, on_children: bool) -> bool:
        """Remove watches of a watcher on a node; returns whether there were any."""
        wanted = [table for table, is_meant in ((self._data, on_data), (self._children, on_children)) if is_meant]
        found = [table for table in wanted if watcher in table.get(path, ())]
        for table in found:
            del table[path][watcher]
            if not table[path]:
                del table[path]
            self._forget_one(path, watcher)
        return bool(found)

    def _forget_one(self, path: str, watcher: Hashable) -> None:
        paths = self._paths[watcher]
        if paths[path] > 1:
            paths[path] -= 1
            return
        del paths[path]
        if not paths:
            del self._paths[watcher]

    def drop_if(self, gone: Callable[[Hashable], bool]) -> None:
        """Remove all watches of the watchers that are gone."""
        for watcher in [watcher for watcher in self._paths if gone(watcher)]:
            self.drop(watcher)

    def drop(self, watcher: Hashable) -> None:
        """Remove all watches of a watcher."""
        for path in self._paths.pop(watcher, ()):
            for table in (self._data, self._children):
                watchers = table.get(path)
                if watchers is not None and watcher in watchers:
                    del watchers[watcher]
                    if not watchers:
                        del table[path]

    # For reports

    @property
    def count(self) -> int:
        """Number of watches."""
        return sum(sum(paths.values()) for paths in self._paths.values())

    def watchers(self) -> dict[Hashable, list[str]]:
        """The paths that each watcher watches."""
        return {watcher: list(paths) for watcher, paths in self._paths.items()}
