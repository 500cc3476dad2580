"""Scenes about who leads: elections, in-sync replicas, restarts, the fences of controllers."""

from __future__ import annotations

from ottla.client import NewTopic
from ottla.sim.cluster.seed_run import TOPIC
from sim.cluster.scene import SESSION_S, Scene


class OutOfSyncAlone(Scene):
    """A replica has left the ISR; then both others die, and it alone is alive."""

    starting = (1, 2, 3)

    async def script(self) -> None:
        self.cut(3, (1, 2))
        await self.until(lambda: self.state.isr == (1, 2), "broker 3 leaves the ISR")
        await self.acknowledged(10)
        self.kill(1, 2)
        await self.wait(SESSION_S)
        self.heal()
        await self.wait(4.0, 8.0)
        self.start(1, 2)


class LeaderLosesPower(Scene):
    """The leader's machine loses its power, and comes back when the session of the leader has ended."""

    async def script(self) -> None:
        await self.acknowledged(200)
        self.lose_power(1)
        await self.wait(SESSION_S + 1.0, SESSION_S + 2.0)
        self.start(1)


class LeaderIsSoonBack(Scene):
    """The leader's machine loses its power, and comes back before its session has ended."""

    async def script(self) -> None:
        await self.acknowledged(200)
        self.lose_power(1)
        await self.wait(0.1, 2.0)
        self.start(1)


class BackBeforeTheElection(Scene):
    """The controller dies; before the next one is elected the leader loses its power, and is back."""

    async def script(self) -> None:
        await self.acknowledged(200)
        self.kill(3)
        self.lose_power(1)
        await self.wait(0.1, 2.0)
        self.start(1)
        await self.until(lambda: self.controller_id in (1, 2), "another controller is elected")
        await self.wait(0.0, 3.0)
        self.start(3)


class DeposedLeaderProposes(Scene):
    """A leader is paused until another leads; when it goes on, it proposes to take the others out of the ISR."""

    brokers = 4
    starting = (4, 2, 3, 1)
    topic = NewTopic(TOPIC, replica_assignments={0: (2, 1, 3)})

    async def script(self) -> None:
        self.kill(2)
        await self.until(lambda: self.leads(1) and self.state.isr == (1, 3), "broker 1 leads")
        self.start(2)
        await self.until_whole()
        self.pause(1)
        await self.until(lambda: self.leads(2) and self.leader_and_isr == (2, {2, 3}), "broker 2 leads")
        await self.acknowledged(10)
        self.cut(1, (2, 3))
        self.cut(4, (1,), back=False)
        self.resume(1)
        await self.wait(1.0, 2.0)
        self.kill(2)
        await self.wait(SESSION_S + 2.0, SESSION_S + 4.0)
        self.heal()
        await self.wait(1.0, 3.0)
        self.start(2)


class DeposedControllerWrites(Scene):
    """A controller is paused with an election begun; another is elected and changes the ISR; then the first goes on.

    What it then wrote would be read by the controller after the next election.
    """

    brokers = 4
    starting = (4, 1, 2, 3)

    async def script(self) -> None:
        self.kill(1)
        await self.until(lambda: self.leads(2) and self.state.isr == (2, 3), "broker 2 leads")
        self.start(1)
        await self.until_whole()
        # Broker 4 believes broker 1 to be in sync, and is about to elect it.
        self.kill(1)
        await self.wait(3.0, 4.0)
        self.pause(4)
        self.ask_for_preferred_leader(4)
        self.delete_controller()
        await self.until(lambda: self.leader_and_isr == (2, {2, 3}), "the next controller notices the death")
        self.cut(1, (2, 3))
        self.start(1)
        await self.until(lambda: self.broker(1).is_up, "broker 1 is back")
        await self.acknowledged(10)
        self.resume(4)
        await self.acknowledged(10)
        self.delete_controller()
        await self.wait(0.5, 1.0)
        self.kill(2)
        await self.wait(SESSION_S + 2.0, SESSION_S + 4.0)
        self.heal()
        await self.wait(1.0, 3.0)
        self.start(2)
