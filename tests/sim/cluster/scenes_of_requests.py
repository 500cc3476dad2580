"""Scenes about requests of controllers that come late: of a dead controller, or for a broker before its restart."""

from __future__ import annotations

from ottla.client import NewTopic
from sim.cluster.scene import SESSION_S, Scene
from support.simulated_cluster.seed_run import TOPIC

#: Between a controller and a broker, each way, milliseconds.
LATE_MS = 300.0
#: So late that the controller has sent a request again, and another leader was elected.
VERY_LATE_MS = 18_000.0


class LateDeletion(Scene):
    """A topic is deleted and created again; then a dead controller's requests to delete it arrive."""

    brokers = 4
    starting = (4, 1, 2, 3)

    async def prepare(self) -> None:
        await super().prepare()
        brokers = [broker for number in (1, 2, 3) if (broker := self.broker(number).broker) is not None]
        await self.until(lambda: all(TOPIC in broker.image.topics for broker in brokers), "brokers know the topic")
        self.slow(4, LATE_MS, LATE_MS)
        asking = self.delete_topic()
        await self.until(lambda: not any(TOPIC in broker.image.topics for broker in brokers), "brokers forget it")
        asking.kill()
        # Their answers are under way, and then the requests to delete the replicas.
        await self.wait(LATE_MS * 1.2 / 1000, LATE_MS * 1.8 / 1000)
        self.cut(4, (1, 2, 3), back=False)
        self.kill(4)
        self.swift()
        nodes = self.cluster.zookeeper.tree.nodes
        await self.until(lambda: f"/brokers/topics/{TOPIC}" not in nodes, "the next controller has deleted it")
        await super().prepare()

    async def script(self) -> None:
        await self.acknowledged(10)
        self.heal()
        await self.wait(1.0, 2.0)
        self.start(4)


class LateRole(Scene):
    """A request to follow another broker, which was sent again on a new connection, arrives after a later election."""

    brokers = 4
    starting = (4, 2, 1, 3)
    topic = NewTopic(TOPIC, replica_assignments={0: (2, 1, 3)})

    async def script(self) -> None:
        self.kill(2)
        await self.until(lambda: self.leads(1), "broker 1 leads")
        self.start(2)
        await self.until_whole()
        self.slow(4, VERY_LATE_MS, VERY_LATE_MS)
        sent_s = self.cluster.loop.time()
        self.ask_for_preferred_leader(4)
        await self.until(lambda: self.state.leader == 2, "broker 2 is elected")
        await self.wait(0.05)
        self.swift()
        await self.until(lambda: self.leads(2) and self.follows(1, 2), "the requests are sent again")
        self.kill(2)
        await self.until(lambda: self.leads(1), "broker 1 leads again")
        self.start(2)
        await self.wait(sent_s + VERY_LATE_MS / 1000 - self.cluster.loop.time())
        await self.wait(1.0, 3.0)


class ElectedBeforeItsRestart(Scene):
    """A broker is elected, and restarts without some of its records before it hears of that."""

    brokers = 4
    starting = (4, 3, 1, 2)
    topic = NewTopic(TOPIC, replica_assignments={0: (3, 1, 2)})

    async def script(self) -> None:
        self.kill(3)
        await self.until(lambda: self.leads(1), "broker 1 leads")
        self.start(3)
        await self.until_whole()
        await self.acknowledged(200)
        self.cut(4, (3,))
        self.ask_for_preferred_leader(4)
        await self.until(lambda: self.state.leader == 3, "broker 3 is elected")
        self.lose_power(3)
        self.heal()
        self.start(3)
        await self.wait(SESSION_S / 2)
        # It registers again when its former session has ended; the controller does not see that.
        self.cut_zookeeper(4)
        await self.until(lambda: self.broker(3).is_up, "broker 3 is back")
        await self.wait(1.0, 2.0)
        await self.reach_zookeeper(4)
        await self.wait(0.0, SESSION_S)
