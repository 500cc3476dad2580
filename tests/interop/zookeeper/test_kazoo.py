"""kazoo's client over the same test bodies against our server and Apache ZooKeeper."""

from __future__ import annotations

import queue
from collections.abc import Callable

import pytest
from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.protocol.states import WatchedEvent
from kazoo.security import make_digest_acl

from interop.zookeeper.conftest import PATIENCE_S, Connect, Server
from support.waiting import wait_until

pytestmark = [pytest.mark.spec("Z2"), pytest.mark.slow]


def told(events: queue.Queue[WatchedEvent]) -> tuple[str, str]:
    event = events.get(timeout=PATIENCE_S)
    return event.type, event.path


def test_nodes_and_their_stats(server: Server, connect: Connect) -> None:
    zk = connect(server.connect)
    assert zk.create("/a", b"one") == "/a"
    assert zk.create("/a/b") == "/a/b"
    stat = zk.set("/a", b"two!")
    data, read = zk.get("/a")
    assert data == b"two!"
    assert read == stat
    assert (stat.version, stat.cversion, stat.aversion, stat.numChildren, stat.dataLength) == (1, 1, 0, 1, 4)
    assert stat.ephemeralOwner == 0
    assert stat.czxid < stat.pzxid < stat.mzxid
    assert zk.get_children("/a", include_data=True)[0] == ["b"]
    made, made_stat = zk.create("/a/c", b"xyz", include_data=True)
    assert made == "/a/c"
    assert zk.exists("/a/c") == made_stat
    zk.delete("/a/b", version=0)
    after = zk.exists("/a")
    assert after.cversion == 3
    assert zk.exists("/none") is None
    assert zk.sync("/a") == "/a"


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (lambda zk: zk.create("/a"), exceptions.NodeExistsError),
        (lambda zk: zk.create("/x/y"), exceptions.NoNodeError),
        (lambda zk: zk.create("/e/y"), exceptions.NoChildrenForEphemeralsError),
        (lambda zk: zk.set("/x", b""), exceptions.NoNodeError),
        (lambda zk: zk.set("/a", b"", version=5), exceptions.BadVersionError),
        (lambda zk: zk.delete("/x"), exceptions.NoNodeError),
        (lambda zk: zk.delete("/a"), exceptions.NotEmptyError),
        (lambda zk: zk.delete("/a/b", version=3), exceptions.BadVersionError),
        (lambda zk: zk.get("/x"), exceptions.NoNodeError),
        (lambda zk: zk.get_children("/x"), exceptions.NoNodeError),
        (lambda zk: zk.get_acls("/x"), exceptions.NoNodeError),
        (lambda zk: zk.set_acls("/a", []), exceptions.InvalidACLError),
    ],
)
def test_refusals(
    server: Server, connect: Connect, ask: Callable[[KazooClient], object], error: type[Exception]
) -> None:
    zk = connect(server.connect)
    zk.create("/a")
    zk.create("/a/b")
    zk.create("/e", ephemeral=True)
    with pytest.raises(error):
        ask(zk)


def test_sequential_names_count_what_was_made(server: Server, connect: Connect) -> None:
    zk = connect(server.connect)
    zk.create("/s")
    made = [zk.create("/s/n-", sequence=True) for _ in range(2)]
    zk.delete(made[1])
    zk.create("/s/other")
    made.append(zk.create("/s/n-", sequence=True, ephemeral=True))
    made.append(zk.create("/s/", sequence=True))
    assert made == ["/s/n-0000000000", "/s/n-0000000001", "/s/n-0000000003", "/s/0000000004"]


def test_a_transaction_is_done_whole_or_not_at_all(server: Server, connect: Connect) -> None:
    zk = connect(server.connect)
    zk.create("/t", b"0")
    failing = zk.transaction()
    failing.create("/t/a")
    failing.set_data("/t", b"1")
    failing.check("/t", version=9)
    failing.delete("/t/a")
    results = failing.commit()
    assert [type(result) for result in results] == [
        exceptions.RolledBackError,
        exceptions.RolledBackError,
        exceptions.BadVersionError,
        exceptions.RuntimeInconsistency,
    ]
    data, stat = zk.get("/t")
    assert (data, stat.version, stat.cversion, stat.numChildren) == (b"0", 0, 0, 0)
    good = zk.transaction()
    good.check("/t", version=0)
    good.create("/t/a", b"x")
    good.create("/t/s-", sequence=True)
    good.set_data("/t/a", b"y")
    good.delete("/t/a", version=1)
    checked, made, sequential, changed, deleted = good.commit()
    assert (checked, made, sequential, deleted) == (True, "/t/a", "/t/s-0000000001", True)
    assert changed.version == 1
    assert zk.get_children("/t") == ["s-0000000001"]


def test_watches_fire_once_for_what_they_watch(server: Server, connect: Connect) -> None:
    watcher, changer = connect(server.connect), connect(server.connect)
    events: queue.Queue[WatchedEvent] = queue.Queue()
    changer.create("/w")
    watcher.exists("/w/later", watch=events.put)
    watcher.get("/w", watch=events.put)
    changer.create("/w/later")
    assert told(events) == ("CREATED", "/w/later")
    watcher.get_children("/w", watch=events.put)
    changer.set("/w", b"1")
    changer.set("/w", b"2")
    assert told(events) == ("CHANGED", "/w")
    changer.delete("/w/later")
    assert told(events) == ("CHILD", "/w")
    watcher.get("/w", watch=events.put)
    changer.delete("/w")
    assert told(events) == ("DELETED", "/w")
    assert events.empty()


def test_an_event_comes_before_what_shows_the_change(server: Server, connect: Connect) -> None:
    watcher, changer = connect(server.connect), connect(server.connect)
    order: list[object] = []
    changer.create("/o", b"old")
    watcher.get("/o", watch=lambda event: order.append(event.type))
    asked = changer.set_async("/o", b"new")
    while True:
        data, _ = watcher.get("/o")
        if data == b"new":
            order.append("read")
            break
    asked.get(timeout=PATIENCE_S)
    # kazoo hands events to a thread of their own: which of the two lines came first there is no telling.
    wait_until(lambda: len(order) == 2, "the event")
    assert set(order) == {"CHANGED", "read"}


def test_ephemeral_nodes_go_with_their_session(server: Server, connect: Connect) -> None:
    owner, other = connect(server.connect), connect(server.connect)
    events: queue.Queue[WatchedEvent] = queue.Queue()
    owner.create("/e", ephemeral=True)
    owner.create("/kept")
    names = [owner.create("/kept/e-", sequence=True, ephemeral=True) for _ in range(3)]
    assert other.exists("/e", watch=events.put).ephemeralOwner == owner.client_id[0]
    assert len(other.get_children("/kept", watch=events.put)) == len(names)
    owner.stop()
    assert {told(events), told(events)} == {("DELETED", "/e"), ("CHILD", "/kept")}
    assert other.get_children("/kept") == []


def test_ten_thousand_nodes(server: Server, connect: Connect) -> None:
    zk = connect(server.connect)
    zk.create("/many")
    made = [zk.create_async(f"/many/node-{number:05d}", b"%d" % number) for number in range(10_000)]
    for result in made:
        result.get(timeout=PATIENCE_S)
    names = zk.get_children("/many")
    assert sorted(names) == [f"node-{number:05d}" for number in range(10_000)]
    stat = zk.exists("/many")
    assert (stat.numChildren, stat.cversion) == (10_000, 10_000)
    assert zk.get("/many/node-04711")[0] == b"4711"


def test_access_lists(server: Server, connect: Connect) -> None:
    owner, stranger = connect(server.connect), connect(server.connect)
    owner.add_auth("digest", "me:secret")
    mine = make_digest_acl("me", "secret", all=True)
    owner.create("/mine", b"private", acl=[mine])
    assert owner.get("/mine")[0] == b"private"
    for ask in (
        lambda: stranger.get("/mine"),
        lambda: stranger.set("/mine", b""),
        lambda: stranger.create("/mine/child"),
        lambda: stranger.set_acls("/mine", [mine]),
        lambda: stranger.get_children("/mine"),
        lambda: stranger.exists("/mine"),
    ):
        with pytest.raises(exceptions.NoAuthError):
            ask()
    stranger.add_auth("digest", "me:secret")
    assert stranger.get("/mine")[0] == b"private"
    acls, stat = owner.get_acls("/mine")
    assert acls == [mine]
    assert stat.aversion == 0


@pytest.mark.parametrize("word", [b"ruok", b"srvr", b"stat", b"mntr", b"isro", b"conf", b"cons", b"dump", b"wchs"])
def test_four_letter_words(server: Server, connect: Connect, word: bytes) -> None:
    zk = connect(server.connect)
    zk.create("/e", ephemeral=True)
    answer = zk.command(word)
    expected = {
        b"ruok": ["imok"],
        b"isro": ["rw"],
        b"srvr": ["Zookeeper version: 3.8.4", "Mode: standalone", "Node count: ", "Zxid: 0x", "Connections: "],
        b"stat": ["Clients:\n /127.0.0.1:", "Mode: standalone"],
        b"mntr": ["zk_znode_count\t", "zk_ephemerals_count\t", "zk_watch_count\t", "zk_num_alive_connections\t"],
        b"conf": ["tickTime=500", f"clientPort={server.port}", "minSessionTimeout=1000", "maxSessionTimeout=10000"],
        b"cons": [" /127.0.0.1:", f"sid=0x{zk.client_id[0]:x}"],
        b"dump": [f"0x{zk.client_id[0]:x}", "\t/interop/"],
        b"wchs": ["connections watching", "Total watches:"],
    }
    for part in expected[word]:
        assert part in answer
