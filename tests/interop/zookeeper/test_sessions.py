"""Sessions over connections that are lost, servers that are killed, clients that are silent: ours beside Apache's."""

from __future__ import annotations

import queue
import struct
import threading

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.protocol.states import KazooState, WatchedEvent

from interop.zookeeper import raw
from interop.zookeeper.conftest import LONG_SESSION_S, PATIENCE_S, Connect, Server
from interop.zookeeper.raw import Event, RawClient
from support.apache import ApacheZooKeeper
from support.ottla_zookeeper import OttlaZooKeeper
from support.proxy import Proxy
from support.waiting import wait_until

pytestmark = [pytest.mark.spec("Z2"), pytest.mark.slow]

BOTH = pytest.mark.parametrize(
    "own_server", [OttlaZooKeeper, pytest.param(ApacheZooKeeper, marks=pytest.mark.needs_kafka)], indirect=True
)
UNKNOWN_OP = 77
UNIMPLEMENTED = -6
NO_WATCHER = -121
DELETED, DATA_CHANGED, CHILDREN_CHANGED, CREATED = 2, 3, 4, 1
CONNECTED = 3


def test_a_client_goes_on_at_another_address_of_its_list(server: Server, connect: Connect) -> None:
    with Proxy(server.port) as first, Proxy(server.port) as second:
        zk = connect(f"{first.bootstrap},{second.bootstrap}", randomize_hosts=False)
        other = connect(server.connect)
        states: queue.Queue[str] = queue.Queue()
        zk.add_listener(states.put)
        zk.create("/mine", ephemeral=True)
        session = zk.client_id
        first.refuse(3600)
        assert states.get(timeout=PATIENCE_S) == KazooState.SUSPENDED
        assert states.get(timeout=PATIENCE_S) == KazooState.CONNECTED
        assert zk.client_id == session
        assert other.exists("/mine").ephemeralOwner == session[0]
        zk.create("/later", ephemeral=True)
        assert sorted(other.get_children("/")) == ["later", "mine"]


def test_a_session_that_is_not_heard_of_expires(server: Server, connect: Connect) -> None:
    with Proxy(server.port) as proxy:
        zk = connect(proxy.bootstrap, timeout_s=1.0)
        other = connect(server.connect)
        events: queue.Queue[WatchedEvent] = queue.Queue()
        states: queue.Queue[str] = queue.Queue()
        zk.add_listener(states.put)
        zk.create("/gone", ephemeral=True)
        other.create("/kept")
        session = zk.client_id
        assert other.exists("/gone", watch=events.put)
        proxy.refuse(3600)
        assert events.get(timeout=PATIENCE_S).type == "DELETED"
        proxy.heal()
        assert [states.get(timeout=PATIENCE_S) for _ in range(3)] == ["SUSPENDED", "LOST", "CONNECTED"]
        assert zk.client_id != session
        assert other.get_children("/") == ["kept"]


def test_pings_keep_a_session(server: Server, connect: Connect) -> None:
    zk, other = connect(server.connect, timeout_s=1.0), connect(server.connect)

    def is_kept() -> bool:
        try:
            path = zk.create("/kept-", ephemeral=True, sequence=True)
            owner = zk.client_id
            # Nothing but pings passes for three timeouts.
            assert not threading.Event().wait(3.0)
            found = other.exists(path)
        except KazooException:
            return False
        return found is not None and (zk.client_id, found.ephemeralOwner) == (owner, owner[0])

    # A busy machine may hold a client up for longer than its session: not every time.
    wait_until(is_kept, "a session that pings keep")


@BOTH
def test_what_was_acknowledged_survives_kill_9(own_server: Server, connect: Connect) -> None:
    with Proxy(own_server.port) as proxy:
        zk = connect(proxy.bootstrap, timeout_s=LONG_SESSION_S)
        silent = RawClient(own_server.port, timeout_ms=1).connect()
        assert silent.ask(raw.CREATE, raw.create("/silent", flags=1)).error == 0
        zk.create("/alive", ephemeral=True)
        zk.create("/acl", b"x")
        owner = zk.client_id
        acknowledged: dict[str, int] = {}
        stop = threading.Event()

        def write() -> None:
            for number in range(100_000):
                try:
                    made = zk.create(f"/n-{number:06d}", b"%d" % number)
                except Exception:
                    return
                acknowledged[made] = number
                if stop.is_set():
                    return

        writer = threading.Thread(target=write)
        writer.start()
        wait_until(lambda: len(acknowledged) > 200, "two hundred nodes")
        own_server.server.kill9()
        stop.set()
        silent.close()
        # Apache's server may lose the first request of a client that comes while it starts, which then waits in vain.
        proxy.refuse(3600)
        own_server.start()
        proxy.heal()
        writer.join(PATIENCE_S)
        wait_until(lambda: zk.connected, "the client to come back")
        assert zk.client_id == owner, "its session survived"
        assert zk.exists("/alive").ephemeralOwner == owner[0]
        there = set(zk.get_children("/"))
        assert {path[1:] for path in acknowledged} <= there
        for path, number in list(acknowledged.items())[::20]:
            assert zk.get(path)[0] == b"%d" % number
        wait_until(
            lambda: not root_has(zk, own_server, "silent"), "the node of the client that did not come back to go"
        )


def root_has(zk: KazooClient, server: Server, name: str) -> bool:
    with RawClient(server.port) as client:
        answer = client.ask(raw.GET_CHILDREN, raw.watching("/"))
        assert isinstance(answer.result, list)
        return name in answer.result


def test_watches_are_armed_anew_with_what_was_missed(server: Server) -> None:
    root = f"/armed-{id(server)}"
    with RawClient(server.port, timeout_ms=8000) as other, RawClient(server.port, timeout_ms=8000) as client:
        for path in ("", "/changed", "/same", "/gone", "/parent", "/lone"):
            assert other.ask(raw.CREATE, raw.create(root + path)).error == 0
        for path in ("/changed", "/same", "/gone", "/born", "/unborn"):
            client.ask(raw.EXISTS, raw.watching(root + path, True))
        for path in ("/parent", "/lone"):
            client.ask(raw.GET_CHILDREN, raw.watching(root + path, True))
        seen = client.last_zxid
        client.close()
        other.ask(raw.SET_DATA, raw.set_data(root + "/changed", b"x"))
        other.ask(raw.DELETE, raw.versioned(root + "/gone"))
        other.ask(raw.CREATE, raw.create(root + "/born"))
        other.ask(raw.CREATE, raw.create(root + "/parent/child"))
        back = RawClient(server.port, 8000, client.session_id, client.password, seen)
        with back:
            assert back.session_id == client.session_id
            data = [root + path for path in ("/changed", "/same", "/gone")]
            exist = [root + path for path in ("/born", "/unborn")]
            children = [root + path for path in ("/parent", "/lone")]
            assert back.ask(raw.SET_WATCHES, raw.set_watches(seen, data, exist, children), xid=-8).error == 0
            assert back.events == [
                Event(DATA_CHANGED, CONNECTED, root + "/changed"),
                Event(DELETED, CONNECTED, root + "/gone"),
                Event(CREATED, CONNECTED, root + "/born"),
                Event(CHILDREN_CHANGED, CONNECTED, root + "/parent"),
            ]
            back.events.clear()
            other.ask(raw.SET_DATA, raw.set_data(root + "/changed", b"y"))
            other.ask(raw.SET_DATA, raw.set_data(root + "/same", b"y"))
            other.ask(raw.CREATE, raw.create(root + "/unborn"))
            other.ask(raw.CREATE, raw.create(root + "/lone/child"))
            back.ping()
            assert back.events == [
                Event(DATA_CHANGED, CONNECTED, root + "/same"),
                Event(CREATED, CONNECTED, root + "/unborn"),
                Event(CHILDREN_CHANGED, CONNECTED, root + "/lone"),
            ]


def test_a_session_is_taken_up_with_its_password_only(server: Server) -> None:
    with RawClient(server.port) as client:
        with RawClient(server.port, 6000, client.session_id, b"x" * 16) as thief:
            assert (thief.session_id, thief.timeout_ms) == (0, 0)
            with pytest.raises(ConnectionError):
                thief.read_frame()
        with RawClient(server.port, 6000, 0x1234, bytes(16)) as unknown:
            assert (unknown.session_id, unknown.timeout_ms) == (0, 0)
        with RawClient(server.port, 6000, client.session_id, client.password) as again:
            assert again.session_id == client.session_id
            with pytest.raises(ConnectionError):
                # Its former connection is closed, in Apache's server by the thief already.
                client.ping()


def test_a_client_that_has_seen_more_is_sent_away(server: Server) -> None:
    client = RawClient(server.port, last_zxid=2**40)
    with pytest.raises(ConnectionError):
        client.connect()
    client.close()


@pytest.mark.parametrize(("wanted", "agreed"), [(1, 1000), (1000, 1000), (3456, 3456), (10**9, 10_000)])
def test_timeouts_are_agreed_on(server: Server, wanted: int, agreed: int) -> None:
    with RawClient(server.port, timeout_ms=wanted) as client:
        assert client.timeout_ms == agreed


def test_clients_too_old_to_know_of_read_only_servers(server: Server) -> None:
    with RawClient(server.port, read_only=None) as client:
        assert client.ask(raw.EXISTS, raw.watching("/")).error == 0


def test_answers_come_in_the_order_of_requests(server: Server) -> None:
    root = f"/order-{id(server)}"
    with RawClient(server.port) as client:
        client.ask(raw.CREATE, raw.create(root))
        sent = []
        for number in range(300):
            sent.append(client.send(raw.CREATE, raw.create(f"{root}/{number}")))
            sent.append(client.send(raw.EXISTS, raw.watching(f"{root}/{number}")))
            sent.append(client.send(raw.SET_DATA, raw.set_data(root, b"%d" % number)))
            sent.append(client.send(raw.GET_DATA, raw.watching(root)))
        answers = [
            client.receive(op) for _ in range(300) for op in (raw.CREATE, raw.EXISTS, raw.SET_DATA, raw.GET_DATA)
        ]
        assert [answer.xid for answer in answers] == sent
        assert {answer.error for answer in answers} == {0}
        for number, answer in enumerate(answers[3::4]):
            assert isinstance(answer.result, tuple)
            assert answer.result[0] == b"%d" % number, "each reads what the request before it wrote"
        assert sorted(answer.zxid for answer in answers) == [answer.zxid for answer in answers]


def test_watches_are_looked_for_and_removed(server: Server) -> None:
    with RawClient(server.port) as client, RawClient(server.port) as other:
        root = f"/removed-{client.session_id}"
        client.ask(raw.CREATE, raw.create(root))
        for op in (raw.GET_DATA, raw.GET_CHILDREN):
            client.ask(op, raw.watching(root, True))
        other.ask(raw.GET_DATA, raw.watching(root, True))
        children, data, either = 1, 2, 3
        assert client.ask(raw.CHECK_WATCHES, raw.versioned(root, children)).error == 0
        assert client.ask(raw.REMOVE_WATCHES, raw.versioned(root, children)).error == 0
        assert client.ask(raw.CHECK_WATCHES, raw.versioned(root, children)).error == NO_WATCHER
        assert client.ask(raw.REMOVE_WATCHES, raw.versioned(root, children)).error == NO_WATCHER
        assert client.ask(raw.CHECK_WATCHES, raw.versioned(root, either)).error == 0
        assert client.ask(raw.REMOVE_WATCHES, raw.versioned(root, data)).error == 0
        assert client.ask(raw.REMOVE_WATCHES, raw.versioned(root, either)).error == NO_WATCHER
        other.ask(raw.SET_DATA, raw.set_data(root, b""))
        client.ping()
        assert client.events == []
        assert other.events == [Event(DATA_CHANGED, CONNECTED, root)]


def test_a_request_that_nobody_knows_is_refused(server: Server) -> None:
    with RawClient(server.port) as client:
        assert client.ask(UNKNOWN_OP).error == UNIMPLEMENTED
        with pytest.raises(ConnectionError):
            client.read_frame()


def test_a_frame_that_is_too_large_ends_the_connection(server: Server) -> None:
    with RawClient(server.port) as client:
        client.socket.sendall(struct.pack(">i", 0x100000 + 1))
        with pytest.raises(ConnectionError):
            client.read_frame()


def test_closing_a_session_ends_its_connection(server: Server) -> None:
    with RawClient(server.port) as client:
        assert client.ask(raw.CLOSE).error == 0
        with pytest.raises(ConnectionError):
            client.read_frame()
        with RawClient(server.port, 6000, client.session_id, client.password) as again:
            assert again.session_id == 0


def test_wrong_credentials_end_the_connection(server: Server) -> None:
    with RawClient(server.port) as client:
        assert client.ask(raw.AUTH, raw.auth("nobody", b"x"), xid=-4).error == -115
        with pytest.raises(ConnectionError):
            client.read_frame()
