"""Quotas in the znodes: the bytes that Apache Kafka wrote, and how brokers follow changes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from golden.zk.test_recorded_tree import NODES
from ottla.broker.control.announced_changes import READ_AT_ONCE
from ottla.broker.control.quota_store import QuotaStore
from ottla.broker.quotas.clients import ClientQuotas
from ottla.client.admin import DEFAULT_NAME, ClientQuotaEntity, ClientQuotaFilterComponent, UserScramCredentialUpsertion
from ottla.client.errors import BrokerError, PartlyFailedError
from ottla.client.sync import Admin
from ottla.cluster.quotas import QuotaEntity
from ottla.config.broker import parse_broker_config
from ottla.env.clock import VirtualClock
from ottla.records.record import Record, encode_batch
from ottla.security.jaas import Login
from ottla.testing import Broker, Cluster
from ottla.testing.disk_memory import MemoryDisk
from ottla.wire.messages.produce import ProduceResponse
from ottla.zk.access import ZkAccess
from ottla.zk.client import LocalClient
from ottla.zk.kazoo_client import connect_kazoo
from ottla.zk.layout import UserConfigZnode
from ottla.zk.store import TreeStore
from ottla.zk.tree import Create
from support.raw_client import PRODUCE_V, RawClient, produce_request
from support.waiting import wait_until

pytestmark = pytest.mark.spec("S4")

RATE = "producer_byte_rate"
#: The same as in `golden/zk/Changes.java`, by which Apache Kafka wrote the recorded znodes.
CHANGES = {
    ClientQuotaEntity("Åsa + Co"): {"consumer_byte_rate": 1024},
    ClientQuotaEntity(DEFAULT_NAME): {RATE: 2048},
    ClientQuotaEntity(client_id="c/1*~"): {"request_percentage": 50.5},
    ClientQuotaEntity(client_id=DEFAULT_NAME): {RATE: 1e9},
    ClientQuotaEntity("u", "c"): {"consumer_byte_rate": 3},
    ClientQuotaEntity("u", DEFAULT_NAME): {"consumer_byte_rate": 4},
    ClientQuotaEntity(DEFAULT_NAME, DEFAULT_NAME): {"consumer_byte_rate": 5},
    ClientQuotaEntity(ip="127.0.0.9"): {"connection_creation_rate": 10},
    ClientQuotaEntity(ip=DEFAULT_NAME): {"connection_creation_rate": 1000},
}


def test_the_znodes_are_those_of_apache_kafka() -> None:
    users = 'org.apache.zookeeper.server.auth.DigestLoginModule required user_super="s";'
    settings = {"ottla.zookeeper.port": "0", "ottla.zookeeper.server.jaas.config": users}
    with Broker(settings=settings) as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.alter_client_quotas(CHANGES)
        assert admin.describe_client_quotas() == CHANGES

        async def body() -> None:
            address = f"127.0.0.1:{broker.server.zookeeper_port}"
            zk = await connect_kazoo(address, 10_000, 60_000, access=ZkAccess(Login("super", "s")))
            for path, (text, _) in NODES.items():
                if path.startswith(("/config/users/", "/config/clients/", "/config/ips/")):
                    assert ((await zk.get(path))[0] or b"").decode() == (text or ""), path
            names = sorted(await zk.children("/config/changes"))
            announced = [(await zk.get(f"/config/changes/{name}"))[0] for name in names]
            assert announced[4:6] == [
                b'{"version":2,"entity_path":"users/u/clients/c"}',
                b'{"version":2,"entity_path":"users/u/clients/<default>"}',
            ]
            await zk.close()

        asyncio.run(body())


def test_quotas_stay_beside_credentials_and_are_checked() -> None:
    amy = ClientQuotaEntity("amy")
    with Broker() as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.alter_client_quotas({ClientQuotaEntity("amy", "c"): {RATE: 1}})
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion("amy", "SCRAM-SHA-256", "secret")])
        admin.alter_client_quotas({amy: {RATE: 5, "request_percentage": 1}})
        admin.alter_client_quotas({amy: {RATE: 6}}, validate_only=True)
        admin.alter_client_quotas({amy: {"request_percentage": None}})
        of_amy = [ClientQuotaFilterComponent("user", "amy")]
        assert admin.describe_client_quotas(of_amy, strict=True) == {amy: {RATE: 5}}
        assert list(admin.describe_user_scram_credentials()) == ["amy"]
        with pytest.raises(BrokerError, match="the quotas of user amy are not changed: Invalid configuration key x"):
            admin.alter_client_quotas({amy: {"x": 1}})
        with pytest.raises(BrokerError, match="at most 1000 settings in one request"):
            admin.alter_client_quotas({amy: {f"key{number}": 1 for number in range(1001)}})
        with pytest.raises(PartlyFailedError, match="must be a LONG value"):
            admin.alter_client_quotas({amy: {RATE: 7}, ClientQuotaEntity("bob"): {RATE: 0.5}})
        assert admin.describe_client_quotas(of_amy, strict=True) == {amy: {RATE: 7}}


def test_others_are_served_while_the_quotas_of_many_users_are_read() -> None:
    """Each user with credentials has a znode."""
    nodes = {f"/config/users/u{number}": b'{"version":1,"config":{}}' for number in range(3 * READ_AT_ONCE)}

    class Nodes:
        async def children(self, path: str) -> list[str]:
            return [each.removeprefix(f"{path}/") for each in nodes if each.startswith(f"{path}/")]

        async def get_many(self, paths: list[str]) -> list[object]:
            return [(nodes[each], SimpleNamespace(children_count=0)) for each in paths]

    async def body() -> None:
        store: Any = Nodes()
        reading = asyncio.ensure_future(QuotaStore(store, store).described())
        for _ in range(3):
            await asyncio.sleep(0)
            assert not reading.done()
        assert await reading == {}

    asyncio.run(body())


def test_a_user_with_another_node_than_those_of_clients_keeps_no_quota_from_being_read() -> None:
    store = TreeStore.open(MemoryDisk(), "/t", VirtualClock(1))
    own = UserConfigZnode.path("u")
    nodes = {"/config": b"", UserConfigZnode.ROOT: b"", own: UserConfigZnode.encode({RATE: "5"}), f"{own}/other": b""}
    store.execute([Create(path, data) for path, data in nodes.items()], 1)
    quotas = ClientQuotas(parse_broker_config({}), lambda: 0.0, lambda: None)
    found = asyncio.run(QuotaStore(LocalClient(store), quotas).described())
    assert found == {QuotaEntity(user="u"): {RATE: 5.0}}


def test_all_brokers_follow() -> None:
    records = encode_batch([Record(0, 0, None, bytes(1000))])
    with Cluster(2, {"t": 2}) as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        (topic,) = admin.describe_topics(["t"]).values()
        leaders = {each.leader: each.partition for each in topic.partitions}
        assert len(leaders) == 2

        def throttled(port: int, partition: int) -> bool:
            with RawClient(port) as client:
                answer = client.ask(produce_request("t", partition, records), ProduceResponse, PRODUCE_V)
            return answer.throttle_time_ms > 0

        for value in (10, None):
            admin.alter_client_quotas({ClientQuotaEntity(DEFAULT_NAME): {RATE: value}})
            for node in admin.describe_cluster().nodes:
                wait_until(
                    lambda at=node, is_set=value is not None: throttled(at.port, leaders[at.node_id]) == is_set,
                    "it knows",
                )
