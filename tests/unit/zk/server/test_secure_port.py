"""The server's port for TLS, and its settings by the names of zoo.cfg."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from ottla.cli.zookeeper import ZooKeeperOptions, _configured
from ottla.env.clock import SystemClock
from ottla.env.randomness import Randomness
from ottla.testing import Broker
from ottla.testing.disk_memory import MemoryDisk
from ottla.testing.errors import TestBrokerError
from ottla.zk.access import AccessError, access_of_file
from ottla.zk.client import ZkUnreachableError
from ottla.zk.kazoo_client import KazooZk, connect_kazoo
from ottla.zk.server.server import ZooKeeperServer
from ottla.zk.server.zoo_cfg import ZooConfigError, zoo_config
from ottla.zk.store import TreeStore
from ottla.zk.tree import NoAuthError
from support.certificates import PASSWORD, authority, issue, the_authority

pytestmark = [pytest.mark.spec("S1"), pytest.mark.spec("Z2")]

LARGE = bytes(900_000)


def served(folder: Path) -> dict[str, str]:
    """Settings of the server."""
    issue(the_authority(), "server").key_settings(folder / "server.pem")
    the_authority().trust_settings(folder / "authority.pem")
    return {
        "secureClientPort": "0",
        "secureClientPortAddress": "127.0.0.1",
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": str(folder / "server.pem"),
        "ssl.trustStore.location": str(folder / "authority.pem"),
    }


def client(folder: Path, common_name: str | None, **changes: str) -> str:
    """A properties file of a client with such a certificate."""
    settings = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": str(folder / "authority.pem"),
    }
    if common_name is not None:
        store = folder / f"{common_name}.p12"
        store.write_bytes(issue(the_authority(), common_name).pkcs12())
        settings |= {"zookeeper.ssl.keystore.location": str(store), "zookeeper.ssl.keystore.password": PASSWORD}
    settings |= {name.replace("_", "."): value for name, value in changes.items()}
    file = folder / f"{common_name}.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(file)


@asynccontextmanager
async def running(texts: dict[str, str]) -> AsyncIterator[int]:
    clock = SystemClock()
    store = TreeStore.open(MemoryDisk(), "/t", clock)
    server = ZooKeeperServer(store, clock, Randomness(1), port=0, secure=zoo_config(texts).secure)
    await server.start()
    try:
        assert server.secure_port
        yield server.secure_port
    finally:
        await server.stop()


async def session(port: int, file: str, within_ms: int = 60_000) -> KazooZk:
    return await connect_kazoo(f"localhost:{port}", 10_000, within_ms, access=access_of_file(file))


def test_a_certificate_is_who_a_client_is(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(served(tmp_path)) as port:
            ann = await session(port, client(tmp_path, "ann", zookeeper_set_acl="true"))
            eve = await session(port, client(tmp_path, "eve"))
            for name in ("/config/users/amy", "/open"):
                await ann.create(name, b"secret", make_parents=True)
            assert (await eve.get("/open"))[0] == b"secret"
            with pytest.raises(NoAuthError):
                await eve.get("/config/users/amy")
            with pytest.raises(NoAuthError):
                await eve.set("/open", b"")
            # More than a record of TLS, and several answers in one.
            await ann.create("/large", LARGE)
            several = await asyncio.gather(
                *(eve.get("/large") for _ in range(3)), *(eve.get("/open") for _ in range(9))
            )
            assert [len(data or b"") for data, _ in several] == [len(LARGE)] * 3 + [6] * 9
            await ann.close()
            await eve.close()

    asyncio.run(body())


def test_clients_that_are_not_let_in(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(served(tmp_path)) as port:
            for file in (client(tmp_path, None), client(tmp_path, "off", zookeeper_ssl_client_enable="false")):
                with pytest.raises(ZkUnreachableError):
                    await session(port, file, 1_000)
            authority("another").trust_settings(tmp_path / "authority.pem")
            with pytest.raises(ZkUnreachableError, match=r"CERTIFICATE_VERIFY_FAILED.*Check zookeeper\.ssl"):
                await session(port, client(tmp_path, "ann"), 5_000)
        async with running(served(tmp_path) | {"ssl.clientAuth": "none"}) as port:
            zk = await session(port, client(tmp_path, None))
            assert "zookeeper" not in await zk.children("/")
            await zk.close()

    asyncio.run(body())


def test_a_brokers_own_znodes_are_served_with_the_tls_of_a_listener(tmp_path: Path) -> None:
    keys = issue(the_authority(), "localhost").key_settings(tmp_path / "broker.pem")
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "ottla.zookeeper.port": "0",
        "ottla.zookeeper.tls.listener": "SSL",
        "ssl.client.auth": "required",
    }
    settings |= keys | the_authority().trust_settings(tmp_path / "authority.pem")
    with Broker(settings=settings) as broker:
        port = broker.server.zookeeper_port
        assert port

        async def body() -> None:
            with pytest.raises(ZkUnreachableError):
                await session(port, client(tmp_path, None), 1_000)
            ann = await session(port, client(tmp_path, "ann"))
            assert "ids" in await ann.children("/brokers")
            with pytest.raises(NoAuthError):
                await ann.children("/config/users")
            await ann.close()

        asyncio.run(body())
        with socket.create_connection(("127.0.0.1", port)) as plain:
            plain.sendall(b"ruok")
            received = b""
            with suppress(ConnectionResetError):
                received = plain.recv(100)
            assert b"imok" not in received
    with pytest.raises(TestBrokerError, match=r"zookeeper\.tls\.listener=SASL names no listener with TLS; .*: SSL"):
        Broker(settings=settings | {"ottla.zookeeper.tls.listener": "SASL"}).start()


@pytest.mark.parametrize(
    ("more", "port", "expected"),
    [("", 2181, None), ("clientPort=2281\n", 2181, 2281), ("", 2381, 2381), ("clientPort=2281\n", 2381, 2381)],
)
def test_a_port_without_tls_is_one_that_is_wanted(tmp_path: Path, more: str, port: int, expected: int | None) -> None:
    """As in ZooKeeper, a file with `secureClientPort` alone has no other."""
    file = tmp_path / "zoo.cfg"
    file.write_text("".join(f"{name}={value}\n" for name, value in served(tmp_path).items()) + more)
    options, settings, users, secure = _configured(ZooKeeperOptions(port=port, config=str(file)))
    assert (options.port, users) == (expected, {})
    if expected is None:

        async def body() -> None:
            clock = SystemClock()
            store = TreeStore.open(MemoryDisk(), "/t", clock)
            server = ZooKeeperServer(store, clock, Randomness(1), port=None, settings=settings, secure=secure)
            await server.start()
            assert server.secure_port
            zk = await session(server.secure_port, client(tmp_path, "ann"))
            await zk.close()
            await server.stop()

        asyncio.run(body())


@pytest.mark.parametrize(
    ("texts", "cause"),
    [
        ({"clientPort": "x"}, "clientPort=x is not a number from 0 to 65535"),
        ({"secureClientPort": "1"}, "set ssl.keyStore.location"),
        ({"ssl.clientAuth": "may", "secureClientPort": "1"}, "ssl.clientAuth=may is not known"),
        ({"server.1": "zk1:2888:3888"}, "server.1 cannot be honoured here"),
        ({"sessionRequireClientSASLAuth": "true"}, "cannot be honoured here"),
        ({"ottla.zookeeper.server.jaas.config": "x;"}, "ottla.zookeeper.server.jaas.config cannot be read"),
    ],
)
def test_settings_that_cannot_be_honoured(texts: dict[str, str], cause: str) -> None:
    with pytest.raises(ZooConfigError) as refused:
        zoo_config(texts)
    assert cause in str(refused.value)


def test_passwords_of_users_are_not_shown() -> None:
    module = "org.apache.zookeeper.server.auth.DigestLoginModule required"
    found = zoo_config({"ottla.zookeeper.server.jaas.config": f'{module} user_super="hush";'})
    assert (found.users, "hush" in repr(found)) == ({"super": "hush"}, False)


def test_settings_without_security() -> None:
    found = zoo_config({"clientPort": "2181", "dataDir": "/d", "autopurge.purgeInterval": "1", "ssl.crl": "false"})
    assert (found.port, found.data, found.secure, found.ignored) == (2181, "/d", None, ["autopurge.purgeInterval"])


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        ("zookeeper.set.acl=true", "the login to ZooKeeper is missing"),
        ("zookeeper.set.acl=maybe", "zookeeper.set.acl"),
        ("zookeeper.ssl.client.enable=true\nzookeeper.ssl.keystore.location=/none", "zookeeper.ssl.keystore.location"),
        (
            "zookeeper.ssl.client.enable=true\nzookeeper.clientCnxnSocket=a.Nio",
            "zookeeper.clientCnxnSocket=a.Nio has no",
        ),
        (
            "zookeeper.ssl.client.enable=true\nzookeeper.ssl.truststore.location=/etc/ssl.d/kafka.ssl.pem",
            "zookeeper.ssl.truststore.location=/etc/ssl.d/kafka.ssl.pem cannot be read",
        ),
        ("ottla.zookeeper.jaas.config=x y;", "ottla.zookeeper.jaas.config cannot be read"),
    ],
)
def test_access_that_cannot_be_used(tmp_path: Path, lines: str, cause: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(lines)
    with pytest.raises(AccessError) as refused:
        access_of_file(str(file))
    assert cause in str(refused.value)
