"""Scenes about moves of partitions to other replicas, and controllers that die over them."""

from __future__ import annotations

import asyncio

from ottla.zk.layout import TopicZnode
from sim.cluster.scene import PLACE, SESSION_S, MissedScene, Scene

#: Shorter than any write to ZooKeeper, seconds.
BETWEEN_WRITES_S = 0.000_5


class MoverDies(Scene):
    """A controller without a replica dies when it has written a move whose target is in sync, and before its outcome.

    Nothing else happens to the partition, at which the move would end: all replicas are in sync and stay so.
    """

    brokers = 4
    starting = (4, 1, 2, 3)

    async def script(self) -> None:
        await self.until(lambda: self.controller_id == 4, "broker 4 is the controller")
        await self.acknowledged(20)
        target = self._chance.choice(((1, 2), (2, 1), (2, 3), (3, 1)))
        controller = self.broker(4)
        assert controller.process is not None
        assert controller.broker is not None
        self.tell(f"broker 4 is asked to move the partition to {target}")
        controller.process.start(controller.broker.control.admin.reassign({PLACE: target}))
        end_s = self.cluster.loop.time() + SESSION_S
        while not self._removes:
            if self.cluster.loop.time() >= end_s:
                raise MissedScene("the move is not written")
            await asyncio.sleep(BETWEEN_WRITES_S)  # sleep: virtual time
        self.kill(4)
        if len(self.state.isr) < 3:
            raise MissedScene("the outcome of the move is written, too")
        await self.until(lambda: self.controller_id in (1, 2, 3), "another controller is elected")
        await self.wait(0.0, 3.0)
        self.start(4)

    @property
    def _removes(self) -> bool:
        topic, index = PLACE
        data = self.cluster.zookeeper.tree.nodes[TopicZnode.path(topic)].data
        return index in TopicZnode.decode(topic, data).removing
