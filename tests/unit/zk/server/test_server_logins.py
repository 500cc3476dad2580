"""Logins to the ZooKeeper server, and what a broker's own tree keeps from those without one, with kazoo."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, NoAuthError, NodeExistsError, NotEmptyError
from kazoo.protocol.connection import ConnectionDropped
from kazoo.security import ACL, Id, make_acl

from ottla.client.admin import UserScramCredentialUpsertion
from ottla.client.errors import InvalidConfigError
from ottla.client.sync import Admin
from ottla.env.clock import VirtualClock
from ottla.security.digest_md5 import DigestMd5Client
from ottla.security.jaas import Login
from ottla.security.scram import SaslError
from ottla.testing import Broker
from ottla.testing.disk_memory import MemoryDisk
from ottla.testing.errors import TestBrokerError
from ottla.zk.access import ZkAccess
from ottla.zk.acl import EVERYTHING, OPEN_ACL, Acl, digest_identity
from ottla.zk.client import LocalClient, SessionEvent, ZkUnreachableError
from ottla.zk.kazoo_client import KazooZk, connect_kazoo
from ottla.zk.kazoo_requests import translated
from ottla.zk.layout.access import SENSITIVE_ROOTS, embedded_acl, secure_embedded_acl
from ottla.zk.store import TreeStore
from ottla.zk.tree import Create, SessionExpiredError
from ottla.zk.tree import NoAuthError as OurNoAuthError
from ottla.zkconsumer.connector import connect
from ottla.zkconsumer.highlevel_config import parse_highlevel_config
from support.command_line import ottla

pytestmark = [pytest.mark.spec("S1"), pytest.mark.spec("Z2")]

PATIENCE_S = 60.0
MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule required"
USERS = f'{MODULE} user_super="root\'s" user_ann="of ann";'
SUPER, ANN = Login("super", "root's"), Login("ann", "of ann")
AMY = "/config/users/amy"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    settings = {
        "ottla.zookeeper.port": "0",
        "ottla.zookeeper.server.jaas.config": USERS,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with Broker(settings=settings) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.alter_user_scram_credentials([UserScramCredentialUpsertion("amy", "SCRAM-SHA-256", "secret", 4096)])
        assert broker.server.zookeeper_port is not None
        yield broker.server.zookeeper_port


@pytest.fixture
def stranger(port: int) -> Iterator[KazooClient]:
    client = KazooClient(hosts=f"127.0.0.1:{port}", timeout=PATIENCE_S)
    client.start(PATIENCE_S)
    yield client
    client.stop()
    client.close()


def test_secrets_are_kept_from_those_without_a_login(stranger: KazooClient) -> None:
    for path in (AMY, *SENSITIVE_ROOTS):
        for call in (stranger.get, stranger.get_children, stranger.exists, stranger.get_acls, stranger.delete):
            with pytest.raises(NoAuthError):
                call(path)
        for acl in (None, [make_acl("world", "anyone", all=True)]):
            with pytest.raises(NoAuthError):
                stranger.create(f"{path}/more", b"{}", acl=acl)
        with pytest.raises(NoAuthError):
            stranger.set(path, b"{}")
        with pytest.raises(NoAuthError):
            stranger.set_acls(path, [make_acl("world", "anyone", all=True)])
    for path in ("/kafka-acl", "/kafka-acl/Topic"):
        with pytest.raises(NoAuthError):
            stranger.create(f"{path}/more")
        with pytest.raises((NoAuthError, NotEmptyError)):
            stranger.delete(path)
    with pytest.raises(NoAuthError):
        stranger.set("/config", b"")
    with pytest.raises(NodeExistsError):  # what older tools want to hear
        stranger.create("/config/topics")
    transaction = stranger.transaction()
    transaction.check(AMY, 0)
    transaction.set_data("/controller_epoch", b"9")
    assert all(isinstance(each, Exception) for each in transaction.commit())


def test_the_rest_is_as_open_as_before(stranger: KazooClient) -> None:
    assert sorted(stranger.get_children("/config")) == ["brokers", "changes", "clients", "ips", "topics", "users"]
    assert "Topic" in stranger.get_children("/kafka-acl")
    assert stranger.get("/controller_epoch")[0] == b"1"
    stranger.create("/consumers/g/offsets/t/0", b"1", makepath=True)
    stranger.create("/config/topics/other", b'{"version":1,"config":{}}')
    assert stranger.get_acls("/brokers/topics")[0] == [make_acl("world", "anyone", all=True)]


def test_a_digest_is_no_super_user_but_guards_its_own_nodes(stranger: KazooClient, port: int) -> None:
    stranger.add_auth("digest", "super:root's")
    with pytest.raises(NoAuthError):
        stranger.get(AMY)
    mine = stranger.create("/mine", b"x", acl=[ACL(31, Id("auth", ""))])
    other = KazooClient(hosts=f"127.0.0.1:{port}", timeout=PATIENCE_S)
    other.start(PATIENCE_S)
    with pytest.raises(NoAuthError):
        other.get(mine)
    other.add_auth("digest", "super:root's")
    assert other.get(mine)[0] == b"x"
    other.stop()
    other.close()


def test_logins_by_sasl(port: int, caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        address = f"127.0.0.1:{port}"
        root = await connect_kazoo(address, 10_000, 60_000, access=ZkAccess(SUPER))
        ann = await connect_kazoo(f"{address}/of-ann", 10_000, 60_000, access=ZkAccess(ANN))
        data, _ = await root.get(AMY)
        assert data is not None
        assert b"SCRAM-SHA-256" in data
        root._client._connection._socket.shutdown(socket.SHUT_RDWR)
        assert (await root.get(AMY))[0] == data, "the next connection logs in, too"
        assert await ann.exists("/") is not None
        await ann.close()
        ann = await connect_kazoo(address, 10_000, 60_000, access=ZkAccess(ANN))
        for path in SENSITIVE_ROOTS:
            assert await root.children(path) is not None
            with pytest.raises(OurNoAuthError):
                await ann.children(path)
        for login in (Login("ann", "wrong"), Login("eve", "of ann")):
            with pytest.raises(ZkUnreachableError, match=f"refuses the login of user '{login.user}'"):
                await connect_kazoo(address, 10_000, 60_000, access=ZkAccess(login))
            assert f"is cut off: its login as user '{login.user}' is refused" in caplog.text
        await ann.close()
        await root.close()

    asyncio.run(body())


def test_a_connection_lost_in_the_first_login_is_made_again(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = [ConnectionDropped("socket connection broken")]
    step = DigestMd5Client.step

    def once_lost(self: DigestMd5Client, token: bytes) -> bytes | None:
        if lost:
            raise lost.pop()
        return step(self, token)

    monkeypatch.setattr(DigestMd5Client, "step", once_lost)

    async def body() -> None:
        root = await connect_kazoo(f"127.0.0.1:{port}", 10_000, 60_000, access=ZkAccess(SUPER))
        assert await root.exists(AMY) is not None
        await root.close()

    asyncio.run(body())
    assert not lost


def test_a_refused_login_is_known_before_the_loop_sees_the_connection(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kazoo's thread may be faster than a busy loop: it has the connection, the refusal and the loss at once."""
    monkeypatch.setattr(KazooZk, "_connected", lambda *_: None)

    async def body() -> None:
        with pytest.raises(ZkUnreachableError, match=r"refuses the login of user 'ann' \(check the user"):
            await connect_kazoo(f"127.0.0.1:{port}", 10_000, 60_000, access=ZkAccess(Login("ann", "wrong")))

    asyncio.run(body())


def test_a_login_that_is_refused_later_ends_the_session_and_is_tried_again(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals: list[SaslError] = []
    step = DigestMd5Client.step

    def refused_once(self: DigestMd5Client, token: bytes) -> bytes | None:
        if refusals:
            raise refusals.pop()
        return step(self, token)

    monkeypatch.setattr(DigestMd5Client, "step", refused_once)

    async def body() -> None:
        root = await connect_kazoo(f"127.0.0.1:{port}", 10_000, 60_000, access=ZkAccess(SUPER))
        events: asyncio.Queue[SessionEvent] = asyncio.Queue()
        root.on_session(events.put_nowait)
        refusals.append(SaslError("no"))
        root._client._connection._socket.shutdown(socket.SHUT_RDWR)
        async with asyncio.timeout(PATIENCE_S):
            for wanted in (SessionEvent.EXPIRED, SessionEvent.CONNECTED):
                while await events.get() is not wanted:
                    pass
        assert await root.exists(AMY) is not None
        await root.close()

    asyncio.run(body())
    assert isinstance(translated(AuthFailedError(), "/"), SessionExpiredError), "of calls that waited for the login"


def test_commands_log_in_by_a_file(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"127.0.0.1:{port}"
    refused = ottla("zookeeper", "get", AMY, "-z", address)
    assert refused.exit_code == 2
    assert "name a file with the login by --zookeeper-config" in refused.output
    file = tmp_path / "client.properties"
    file.write_text(f'ottla.zookeeper.jaas.config={MODULE} username="super" password="root\'s";\n')
    shown = ottla("zookeeper", "get", AMY, "-z", address, "--zookeeper-config", str(file))
    assert (shown.exit_code, "SCRAM-SHA-256" in shown.output) == (0, True)
    monkeypatch.setenv("OTTLA_ZOOKEEPER_CONFIG", str(file))
    assert "amy" in ottla("user", "list", "-z", address).output
    file.write_text(f'ottla.zookeeper.jaas.config={MODULE} username="super" password="wrong";\n')
    wrong = ottla("user", "list", "-z", address)
    assert (wrong.exit_code, "refuses the login of user 'super'" in wrong.output) == (2, True)
    missing = ottla("user", "list", "-z", address, "--zookeeper-config", str(tmp_path / "none"))
    assert (missing.exit_code, "cannot be read" in missing.output) == (2, True)


def test_a_high_level_consumer_logs_in_by_a_file(port: int, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    settings = {
        "group.id": "g",
        "zookeeper.connect": f"127.0.0.1:{port}",
        "zookeeper.session.timeout.ms": "60000",
        "ottla.zookeeper.config": str(file),
    }

    async def body() -> None:
        zk = await connect(parse_highlevel_config(settings))
        assert await zk.exists(AMY) is not None
        await zk.close()

    with pytest.raises(InvalidConfigError, match=r"ottla\.zookeeper\.config: .* cannot be read"):
        asyncio.run(body())
    file.write_text(f'ottla.zookeeper.jaas.config={MODULE} username="super" password="root\'s";\n')
    asyncio.run(body())


def test_access_lists_of_all_nodes_of_a_broker() -> None:
    with Broker(settings={"ottla.zookeeper.port": "0", "zookeeper.set.acl": "true"}) as broker:
        client = KazooClient(hosts=f"127.0.0.1:{broker.server.zookeeper_port}", timeout=PATIENCE_S)
        client.start(PATIENCE_S)
        assert sorted(client.get_acls("/brokers/topics")[0]) == sorted(
            [make_acl("sasl", "super", all=True), make_acl("world", "anyone", read=True)]
        )
        with pytest.raises(NoAuthError):
            client.set("/controller", b"")
        client.create("/consumers/g/ids", makepath=True)
        client.stop()
        client.close()


def test_a_broker_that_may_not_read_the_secrets_says_what_helps(port: int) -> None:
    with pytest.raises(TestBrokerError, match=r"NoAuthError for /config/.*ottla\.zookeeper\.jaas\.config"):
        Broker(settings={"zookeeper.connect": f"127.0.0.1:{port}", "broker.id": "7"}).start()


def test_users_that_cannot_be_read_refuse_the_start() -> None:
    settings = {"ottla.zookeeper.port": "0", "ottla.zookeeper.server.jaas.config": f"{MODULE};"}
    with pytest.raises(TestBrokerError, match=r"ottla\.zookeeper\.server\.jaas\.config cannot be read"):
        Broker(settings=settings).start()


def test_the_nodes_of_a_former_release_get_access_lists_once() -> None:
    store = TreeStore.open(MemoryDisk(), "/t", VirtualClock(1))
    paths = ("/config", "/config/users", AMY, "/config/topics", "/consumers", "/consumers/g")
    store.execute([Create(path, b"x") for path in paths], 1)
    for _ in range(2):
        LocalClient(store).protect(embedded_acl)
        last = store.tree.last_zxid
    found = {path: len(store.tree.get(path).acl) for path in paths if store.tree.get(path).acl is not OPEN_ACL}
    assert found == {"/config": 2, "/config/users": 1, AMY: 1}
    assert (store.tree.get(AMY).data, store.tree.get(AMY).aversion, last) == (b"x", 1, 2)


def test_access_lists_that_an_administrator_has_set_stay() -> None:
    store = TreeStore.open(MemoryDisk(), "/t", VirtualClock(1))
    strict = secure_embedded_acl("/config")
    stranger = (Acl(EVERYTHING, *digest_identity(b"eve:secret")),)
    store.execute([Create("/config", b"", acl=strict), Create("/config/users", b"", acl=stranger)], 1)
    LocalClient(store).protect(embedded_acl)
    assert store.tree.get("/config").acl == strict
    assert store.tree.get("/config/users").acl == embedded_acl("/config/users"), "one of a former release does not"
