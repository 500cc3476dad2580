from __future__ import annotations

from ottla.zk.registered_watches import RegisteredWatches
from ottla.zk.tree import EventType, Stat, WatchEvent


def stat(mzxid: int = 1, pzxid: int = 1) -> Stat:
    return Stat(1, mzxid, 0, 0, 0, 0, 0, 0, 0, 0, pzxid)


def ignored(_: WatchEvent) -> None:
    pass


def test_a_watch_is_used_up() -> None:
    watches = RegisteredWatches()
    first, second = [], []
    watches.watch_data("/a", first.append, stat())
    watches.watch_data("/a", second.append, stat())
    watches.watch_children("/a", first.append, stat())
    changed = WatchEvent(EventType.DATA_CHANGED, "/a")
    assert watches.fire(changed) == [first.append, second.append]
    assert watches.fire(changed) == []
    assert watches.fire(WatchEvent(EventType.CHILDREN_CHANGED, "/a")) == [first.append]


def test_a_deletion_reports_each_watcher_once() -> None:
    watches = RegisteredWatches()
    watches.watch_data("/a", ignored, stat())
    watches.watch_children("/a", ignored, stat())
    assert watches.fire(WatchEvent(EventType.DELETED, "/a")) == [ignored]
    assert (watches.data_paths, watches.children_paths) == ([], [])


def test_what_was_missed_of_data() -> None:
    watches = RegisteredWatches()
    watches.watch_data("/there", ignored, stat(mzxid=5))
    watches.watch_data("/absent", ignored, None)
    assert watches.data_paths == ["/there", "/absent"]
    assert watches.missed_of_data("/there", stat(mzxid=5)) is None
    assert watches.missed_of_data("/there", stat(mzxid=6)) == (EventType.DATA_CHANGED, "/there")
    assert watches.missed_of_data("/there", None) == (EventType.DELETED, "/there")
    assert watches.missed_of_data("/absent", None) is None
    assert watches.missed_of_data("/absent", stat()) == (EventType.CREATED, "/absent")
    assert watches.missed_of_data("/never watched", stat()) is None


def test_what_was_missed_of_children() -> None:
    watches = RegisteredWatches()
    watches.watch_children("/a", ignored, stat(pzxid=5))
    assert watches.missed_of_children("/a", stat(pzxid=5)) is None
    assert watches.missed_of_children("/a", stat(pzxid=6)) == (EventType.CHILDREN_CHANGED, "/a")
    assert watches.missed_of_children("/a", None) == (EventType.DELETED, "/a")
    watches.clear()
    assert watches.missed_of_children("/a", None) is None
