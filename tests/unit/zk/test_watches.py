from __future__ import annotations

import random

from ottla.zk.acl import OPEN_ACL, Acl
from ottla.zk.watches import (
    EventType,
    GuardedEvent,
    LocalWatch,
    RemoteWatcher,
    WatchEvent,
    WatchTable,
    event_of,
)


class Noted(RemoteWatcher):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[WatchEvent, int]] = []

    def notice(self, event: WatchEvent, zxid: int) -> None:
        self.told.append((event, zxid))


def test_clients_elsewhere_are_notified_at_once_and_those_here_soon() -> None:
    table, remote, soon, here = WatchTable(), Noted(), [], []
    table.watch_data("/a", remote)
    table.watch_data("/a", LocalWatch(1, here.append))
    event = WatchEvent(EventType.DATA_CHANGED, "/a")
    table.notify([event], 7, lambda *call: soon.append(call))
    assert remote.told == [(event, 7)]
    assert here == []
    ((watcher, what),) = soon
    watcher(what)
    assert here == [event]
    table.notify([event], 8, lambda *call: soon.append(call))
    assert (len(soon), len(remote.told)) == (1, 1)


def test_watches_are_looked_for_and_removed() -> None:
    table = WatchTable()
    for watcher in ("a", "b"):
        table.watch_data("/x", watcher)
        table.watch_children("/x", watcher)
    assert table.has("/x", "a") == (True, True)
    assert table.has("/y", "a") == table.has("/x", "c") == (False, False)
    assert table.remove("/x", "a", on_data=True, on_children=False)
    assert not table.remove("/x", "a", on_data=True, on_children=False)
    assert not table.remove("/y", "a", on_data=True, on_children=True)
    assert table.has("/x", "a") == (False, True)
    assert table.count == 3
    assert table.remove("/x", "a", on_data=True, on_children=True)
    assert table.watchers() == {"b": ["/x"]}
    table.drop("b")
    assert (table.count, table.watchers(), table._data, table._children) == (0, {}, {}, {})


def test_an_event_of_a_guarded_node_knows_who_may_read_it() -> None:
    acl = (Acl(1, "ip", "127.0.0.1"),)
    guarded = event_of(EventType.CREATED, "/a", acl)
    assert isinstance(guarded, GuardedEvent)
    assert guarded.acl == acl
    assert guarded == WatchEvent(EventType.CREATED, "/a")
    assert type(event_of(EventType.CREATED, "/a", OPEN_ACL)) is WatchEvent


def test_both_ways_of_looking_at_the_table_agree() -> None:
    dice, table = random.Random(3), WatchTable()
    paths, watchers = [f"/{number}" for number in range(6)], list("abcd")
    for _ in range(3000):
        path, watcher = dice.choice(paths), dice.choice(watchers)
        match dice.randrange(6):
            case 0 | 1:
                table.watch_data(path, watcher)
            case 2:
                table.watch_children(path, watcher)
            case 3:
                table.fire([WatchEvent(dice.choice(list(EventType)), path)])
            case 4:
                table.remove(path, watcher, on_data=dice.random() < 0.5, on_children=dice.random() < 0.5)
            case _:
                if dice.random() < 0.2:
                    table.drop(watcher)
        found = {
            name: sorted({path for both in (table._data, table._children) for path in both if name in both[path]})
            for name in watchers
        }
        assert {name: sorted(those) for name, those in table.watchers().items()} == {
            name: those for name, those in found.items() if those
        }
        assert table.count == sum(map(len, [*table._data.values(), *table._children.values()]))
