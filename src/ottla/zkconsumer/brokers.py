"""The cluster as ZooKeeper knows it: the live brokers, and a `Cluster` bootstrapped from them.

Source: Apache Kafka 0.8.2.2, `ZkUtils.getAllBrokersInCluster`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.client.errors import BrokerUnreachableError
from ottla.client.group_offsets import GroupOffsets
from ottla.peer.cluster import Cluster
from ottla.peer.settings import ConnectionSettings, format_servers
from ottla.zk.client import ZkClient
from ottla.zk.layout import BrokerIdZnode, ZnodeDataError
from ottla.zk.tree import NoNodeError
from ottla.zkconsumer.znodes import children_or_none

_log = logging.getLogger("ottla.zkconsumer")

Servers = list[tuple[str, int]]


async def read_brokers(zk: ZkClient) -> Servers:
    """Hosts and ports of the living brokers' first plaintext listeners. Raises `ZkError`s."""
    servers: Servers = []
    for name in await children_or_none(zk, BrokerIdZnode.ROOT):
        try:
            data, _ = await zk.get(f"{BrokerIdZnode.ROOT}/{name}")
            broker = BrokerIdZnode.decode(int(name), data)
        except NoNodeError:
            continue  # it was deleted in between
        except ValueError as error:
            problem = error if isinstance(error, ZnodeDataError) else f"{name} is not a broker's id"
            _log.warning("a broker in ZooKeeper is passed over: %s", problem)
            continue
        plain = [each for each in broker.endpoints if each.security_protocol == "PLAINTEXT"]
        if plain:
            servers.append((plain[0].host, plain[0].port))
        else:
            _log.warning("broker %s is passed over: it has no PLAINTEXT listener", name)
    return servers


class ZkBrokers:
    """The `Cluster` of the brokers in ZooKeeper, made when it is first needed."""

    def __init__(self, zk: ZkClient, group: str, settings: Callable[[str], ConnectionSettings]) -> None:
        self._zk = zk
        self._group = group
        self._settings = settings
        self._servers: Servers = []
        self._cluster: Cluster | None = None
        self._group_offsets: GroupOffsets | None = None

    async def cluster(self) -> Cluster:
        """The cluster. BrokerUnreachableError (retriable) where ZooKeeper knows no broker."""
        return self._cluster or await self.refresh()

    async def refresh(self) -> Cluster:
        """Look the brokers up again, and return the cluster."""
        servers = await read_brokers(self._zk)
        if not servers:
            raise BrokerUnreachableError(
                f"no broker is alive: {BrokerIdZnode.ROOT} in ZooKeeper has none that listens for PLAINTEXT; start one",
                retriable=True,
            )
        if self._cluster is None:
            self._cluster = Cluster(self._settings(format_servers(servers).replace(" ", "")))
        elif servers != self._servers:
            self._cluster.set_servers(servers)
        self._servers = servers
        return self._cluster

    async def group_offsets(self) -> GroupOffsets:
        """The offsets that the group's coordinator keeps."""
        if self._group_offsets is None:
            self._group_offsets = GroupOffsets(await self.cluster(), self._group)
        return self._group_offsets

    async def close(self) -> None:
        """Close all connections to brokers."""
        if self._cluster is not None:
            await self._cluster.close()
