"""Stages for scripts of controllers: Apache Kafka's broker, and ours in a simulation."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from pathlib import Path

from ottla.env.environment import Environment
from ottla.env.network import ServerNetwork, SystemServerNetwork
from ottla.zk.client import ZkClient
from ottla.zk.kazoo_client import connect_kazoo
from support.apache import ApacheKafka, ApacheZooKeeper, four_letter_word
from support.controller_play import CONTROLLER, Play, Played, Stage
from support.ports import LOOPBACK
from support.simulated_cluster.brokers import SimulatedBroker, SimulatedCluster

QUIET_S = 1.0
LOOK_S = 0.05
#: In virtual time: longer than any pause before something is tried again.
VIRTUAL_QUIET_S = 5.0
SESSION_TIMEOUT_MS = 9_000
HEAP = "256m"
#: A controller that gets no answer from a broker that is mute waits for it; records are not kept.
SETTINGS = {
    "auto.leader.rebalance.enable": "false",
    "controller.socket.timeout.ms": "600000",
    "replica.lag.time.max.ms": "3600000",
    "controlled.shutdown.enable": "false",
}
_ZXID = re.compile(rb"Zxid: (0x[0-9a-f]+)")


class ApacheStage:
    """A broker of Apache Kafka, and played ones in this process."""

    def __init__(self, zookeeper: ApacheZooKeeper, kafka: ApacheKafka, zk: ZkClient) -> None:
        self.environment = Environment()
        self.network: ServerNetwork = SystemServerNetwork()
        self.zk = zk
        self.controller = (LOOPBACK, kafka.port)
        self.host = LOOPBACK
        self._zookeeper = zookeeper

    async def quiet(self, heard: list[object]) -> None:
        """No transaction in ZooKeeper and no request for `QUIET_S`."""
        loop = asyncio.get_running_loop()
        seen, since = None, loop.time()
        while loop.time() - since < QUIET_S:
            word = await asyncio.to_thread(four_letter_word, self._zookeeper.port, b"srvr")
            found = _ZXID.search(word)
            now = (found[1] if found else b"", len(heard))
            if now != seen:
                seen, since = now, loop.time()
            await asyncio.sleep(LOOK_S)  # sleep: until it is quiet


def apache_plays(script: Iterable[str], zookeeper: ApacheZooKeeper, folder: Path, chroot: str) -> list[Played]:
    """What Apache Kafka does with the script, on the part of the tree below `chroot`."""
    kafka = ApacheKafka(
        folder, zookeeper=_Chroot(zookeeper, chroot), broker_id=CONTROLLER, heap=HEAP, overrides=SETTINGS
    )
    kafka.start()

    async def play() -> list[Played]:
        zk = await connect_kazoo(f"{zookeeper.connect}{chroot}", SESSION_TIMEOUT_MS, 30_000)
        try:
            return await _played(ApacheStage(zookeeper, kafka, zk), script)
        finally:
            await zk.close()

    try:
        return asyncio.run(play())
    finally:
        kafka.kill9()


class _Chroot:
    """A ZooKeeper below a path."""

    def __init__(self, zookeeper: ApacheZooKeeper, path: str) -> None:
        self.connect = f"{zookeeper.connect}{path}"


class SimulatedStage:
    """Our broker in virtual time."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        machine = cluster.brokers[CONTROLLER]
        self.host = "others"
        self.environment = cluster.environment(self.host)
        self.network: ServerNetwork = cluster.network.host(self.host)
        self.zk: ZkClient = cluster.zookeeper.connect()
        self.controller = (machine.host, 9092)

    async def quiet(self, heard: list[object]) -> None:
        """Time that costs nothing."""
        await asyncio.sleep(VIRTUAL_QUIET_S)


def ottla_plays(script: Iterable[str]) -> list[Played]:
    """What our broker does with the script."""
    cluster = SimulatedCluster(0, brokers=0, settings=SETTINGS)
    cluster.brokers[CONTROLLER] = SimulatedBroker(cluster, CONTROLLER)

    async def play(_: SimulatedCluster) -> list[Played]:
        await cluster.brokers[CONTROLLER].start()
        return await _played(SimulatedStage(cluster), script)

    result: list[Played] = cluster.run(play)
    assert not cluster.story.bugs, "\n".join(map(str, cluster.story.bugs))
    return result


async def _played(stage: Stage, script: Iterable[str]) -> list[Played]:
    player = Play(stage)
    try:
        return await player.play(script)
    finally:
        player.close()
