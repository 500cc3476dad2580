"""Logins, TLS and access lists between brokers and ZooKeeper: ours beside Apache's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ottla.client.admin import NewTopic, UserScramCredentialUpsertion
from ottla.client.sync import Admin
from ottla.security.jaas import Login
from ottla.zk.access import ZkAccess, access_of_file
from ottla.zk.client import ZkUnreachableError
from ottla.zk.kazoo_client import KazooZk, connect_kazoo
from support.apache import ApacheKafka, ApacheZooKeeper
from support.certificates import PASSWORD, issue, the_authority
from support.java import QUICK_START
from support.ottla_server import OttlaServer
from support.ottla_zookeeper import OttlaZooKeeper
from support.ports import LOOPBACK, free_port
from support.processes import ServerDied

pytestmark = [pytest.mark.slow, pytest.mark.needs_kafka, pytest.mark.spec("S1")]

MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule required"
CLIENT = f'{MODULE} username="kafka" password="kafka\'s";'
JAAS = f'Server {{ {MODULE} user_super="root" user_kafka="kafka\'s"; }};\nClient {{ {CLIENT} }};\n'
KAFKA = ZkAccess(Login("kafka", "kafka's"))
NETTY = "org.apache.zookeeper.ClientCnxnSocketNetty"


@dataclass(frozen=True)
class Secured:
    """An Apache ZooKeeper that takes logins and TLS, and the settings of its clients."""

    server: ApacheZooKeeper
    secure: str
    jaas: Path
    tls: dict[str, str]


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    jaas = folder / "jaas.conf"
    jaas.write_text(JAAS)
    trusted = folder / "authority.pem"
    trusted.write_text(the_authority().certificate_pem)
    for name in ("server", "client"):
        (folder / f"{name}.p12").write_bytes(issue(the_authority(), name).pkcs12())
    port = free_port()
    settings = {
        "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "secureClientPort": str(port),
        "secureClientPortAddress": LOOPBACK,
        "ssl.keyStore.location": str(folder / "server.p12"),
        "ssl.keyStore.password": PASSWORD,
        "ssl.trustStore.location": str(trusted),
    }
    options = (*QUICK_START, f"-Djava.security.auth.login.config={jaas}")
    server = ApacheZooKeeper(folder, overrides=settings, jvm_options=options)
    tls = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.clientCnxnSocket": NETTY,
        "zookeeper.ssl.keystore.location": str(folder / "client.p12"),
        "zookeeper.ssl.keystore.password": PASSWORD,
        "zookeeper.ssl.truststore.location": str(trusted),
    }
    try:
        yield Secured(server.start(), f"{LOOPBACK}:{port}", jaas, tls)
    finally:
        server.stop()


async def _acls(zk: KazooZk) -> dict[str, list[Any]]:
    """The access lists of all nodes."""
    found: dict[str, list[Any]] = {}
    waiting = ["/"]
    while waiting:
        path = waiting.pop()
        acls, _ = await zk._once(path, lambda path=path: zk._client.get_acls_async(zk._full(path)), lambda each: each)
        found[path] = sorted((each.perms, each.id.scheme, each.id.id) for each in acls)
        waiting += [f"{path.rstrip('/')}/{name}" for name in await zk.children(path)]
    return found


def acls_of(address: str, access: ZkAccess) -> dict[str, list[Any]]:
    """Those below a chroot, that of it included."""

    async def read() -> dict[str, list[Any]]:
        zk = await connect_kazoo(address, 10_000, 60_000, access=access)
        try:
            return await _acls(zk)
        finally:
            await zk.close()

    return asyncio.run(read())


def use(bootstrap: str) -> None:
    """Settings of each kind, a topic and a user."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic("orders", 1)])
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion("amy", "SCRAM-SHA-256", "secret", 4096)])


AUTHORIZER = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def test_access_lists_are_those_of_apache_kafka(zookeeper: Secured, tmp_path: Path) -> None:
    """`zookeeper.set.acl` after a login by SASL; both make their chroots."""
    secured = {"zookeeper.set.acl": "true", **AUTHORIZER}
    theirs = ApacheKafka(
        tmp_path / "theirs",
        zookeeper=zookeeper.server,
        overrides=secured | {"zookeeper.connect": f"{zookeeper.server.connect}/theirs"},
        jvm_options=(*QUICK_START, f"-Djava.security.auth.login.config={zookeeper.jaas}"),
    )
    ours = OttlaServer(
        tmp_path / "ours",
        overrides=secured | {"ottla.zookeeper.jaas.config": CLIENT},
        arguments=["--zookeeper", f"{zookeeper.server.connect}/ours", "--id", "1"],
    )
    found = []
    try:
        for broker, chroot in ((theirs, "theirs"), (ours, "ours")):
            broker.start()
            use(broker.bootstrap)
            found.append(acls_of(f"{zookeeper.server.connect}/{chroot}", KAFKA))
    finally:
        ours.stop()
        theirs.stop()
    of_apache, of_ottla = found
    assert of_apache["/config/users/amy"] == [(31, "sasl", "kafka")]
    assert of_apache["/"] == [(1, "world", "anyone"), (31, "sasl", "kafka")]
    assert of_ottla == of_apache


def test_a_broker_over_tls(zookeeper: Secured, tmp_path: Path) -> None:
    """With its certificate, by which it is known in the access lists."""
    broker = OttlaServer(
        tmp_path,
        overrides=zookeeper.tls | {"zookeeper.set.acl": "true"},
        arguments=["--zookeeper", f"{zookeeper.secure}/tls", "--id", "1"],
    )
    properties = tmp_path / "client.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in zookeeper.tls.items()))
    try:
        broker.start()
        use(broker.bootstrap)
        found = acls_of(f"{zookeeper.secure}/tls", access_of_file(str(properties)))
        assert found["/config/users/amy"] == [(31, "x509", "CN=client,O=ottla")]
    finally:
        broker.stop()


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        ({"ottla.zookeeper.jaas.config": CLIENT.replace("kafka's", "wrong")}, "refuses the login of user 'kafka'"),
        ({"zookeeper.set.acl": "true"}, "zookeeper.set.acl is true, but the login to ZooKeeper is missing"),
    ],
)
def test_starts_that_are_refused(zookeeper: Secured, tmp_path: Path, settings: dict[str, str], cause: str) -> None:
    broker = OttlaServer(tmp_path, overrides=settings, arguments=["--zookeeper", f"{zookeeper.server.connect}/none"])
    with pytest.raises(ServerDied):
        broker.start()
    assert cause in broker.server.stderr
    assert "Traceback" not in broker.server.stderr


@pytest.mark.parametrize(
    ("changes", "cause"),
    [({"zookeeper.ssl.truststore.location": ""}, "CERTIFICATE_VERIFY_FAILED"),
     ({"zookeeper.ssl.keystore.location": "", "zookeeper.ssl.keystore.password": ""},
      r"BAD_CERTIFICATE.*Check zookeeper\.ssl\.keystore")],
)  # fmt: skip
def test_handshakes_that_fail(zookeeper: Secured, tmp_path: Path, changes: dict[str, str], cause: str) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in (zookeeper.tls | changes).items()))
    with pytest.raises(ZkUnreachableError, match=cause):
        asyncio.run(connect_kazoo(zookeeper.secure, 10_000, 2_000, access=access_of_file(str(properties))))


def test_apache_kafka_over_our_zookeeper(tmp_path: Path) -> None:
    """With a login and TLS at once: each is an owner of what it makes."""
    jaas, trusted = tmp_path / "jaas.conf", tmp_path / "authority.pem"
    jaas.write_text(JAAS)
    trusted.write_text(the_authority().certificate_pem)
    for name in ("server", "client"):
        (tmp_path / f"{name}.p12").write_bytes(issue(the_authority(), name).pkcs12())
    port = free_port()
    config = tmp_path / "zoo.cfg"
    config.write_text(
        f"ottla.zookeeper.server.jaas.config={jaas}\nsecureClientPort={port}\nsecureClientPortAddress={LOOPBACK}\n"
        f"ssl.keyStore.location={tmp_path / 'server.p12'}\nssl.keyStore.password={PASSWORD}\n"
        f"ssl.trustStore.location={trusted}\n"
    )
    tls = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.clientCnxnSocket": NETTY,
        "zookeeper.ssl.keystore.location": str(tmp_path / "client.p12"),
        "zookeeper.ssl.keystore.password": PASSWORD,
        "zookeeper.ssl.truststore.location": str(trusted),
    }
    ours = OttlaZooKeeper(tmp_path, arguments=["--config", str(config)])
    broker = ApacheKafka(
        tmp_path / "kafka",
        zookeeper=ours,
        overrides=tls | {"zookeeper.set.acl": "true", "zookeeper.connect": f"{LOOPBACK}:{port}"},
        jvm_options=(*QUICK_START, f"-Djava.security.auth.login.config={jaas}"),
    )
    try:
        ours.start()
        broker.start()
        use(broker.bootstrap)
        found = acls_of(ours.connect, KAFKA)
        assert found["/config/users/amy"] == [(31, "sasl", "kafka"), (31, "x509", "CN=client,O=ottla")]
        assert found["/controller"][0] == (1, "world", "anyone")
    finally:
        broker.stop()
        ours.stop()
