"""Scenes about who leads: elections, in-sync replicas, restarts, the fences of controllers."""

from __future__ import annotations

from ottla.client import NewTopic
from sim.cluster.scene import SESSION_S, SMALL_FETCHES, Scene
from support.simulated_cluster.machine_disk import MachineDisk
from support.simulated_cluster.seed_run import TOPIC


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
    """A leader is paused until another leads; when it continues, it proposes to take the others out of the ISR."""

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
    """A controller is paused with an election begun; another is elected and changes the ISR; then the first continues.

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


class ReturnsSlowly(Scene):
    """A broker returns, and catches up slowly; meanwhile both others die."""

    brokers = 4
    starting = (4, 1, 2, 3)
    settings = SMALL_FETCHES

    async def script(self) -> None:
        self.kill(3)
        await self.until(lambda: self.state.isr == (1, 2), "broker 3 has left the ISR")
        await self.acknowledged(150)
        self.slow(3, 300.0, 600.0)
        self.start(3)
        await self.until(lambda: self.follows(3, 1), "broker 3 follows broker 1")
        await self.wait(2.0)
        self.kill(1, 2)
        await self.wait(SESSION_S + 2.0, SESSION_S + 4.0)
        self.swift()
        self.start(1, 2)


class UnheardShrink(Scene):
    """A leader proposes to remove a replica that lags, and the controller does not hear of it; then the leader dies."""

    brokers = 4
    starting = (4, 1, 2, 3)

    async def script(self) -> None:
        self.cut(1, (4,), back=False)
        self.cut(3, (1, 2))
        await self.until(lambda: self.proposed(1) == {1, 2}, "broker 1 proposes an ISR without broker 3")
        await self.wait(2.0, 4.0)
        self.kill(1, 2)
        await self.wait(SESSION_S + 2.0, SESSION_S + 4.0)
        self.heal()
        self.start(1, 2)


class WrongDisk(Scene):
    """The only replica in sync starts with an empty disk, and some time later with its own."""

    brokers = 4
    starting = (4, 1, 2, 3)

    async def script(self) -> None:
        await self.acknowledged(50)
        self.kill(2, 3)
        await self.until(lambda: self.state.isr == (1,), "broker 1 is alone")
        self.kill(1)
        broker = self.broker(1)
        own = broker.disk
        broker.disk = MachineDisk(broker.clock.now_ms)
        self.start(1)
        await self.until(lambda: broker.is_up, "broker 1 is up")
        await self.wait(1.0, 3.0)
        self.start(2, 3)
        await self.wait(2.0, 4.0)
        self.kill(1)
        broker.disk = own
        await self.wait(0.0, 3.0)
        self.start(1)


class PreferredIsOutOfSync(Scene):
    """The preferred replica has left the ISR, and an operator asks for it as leader."""

    brokers = 4
    starting = (4, 2, 1, 3)
    topic = NewTopic(TOPIC, replica_assignments={0: (2, 1, 3)})

    async def script(self) -> None:
        self.cut(2, (1, 3))
        self.kill(2)
        await self.until(lambda: self.leads(1), "broker 1 leads")
        self.start(2)
        await self.until(lambda: self.broker(2).is_up, "broker 2 is back")
        await self.acknowledged(50)
        self.ask_for_preferred_leader(4)
        await self.wait(1.0, 3.0)


class StopsBesideOutOfSync(Scene):
    """The leader stops in order; the replica after it has left the ISR."""

    brokers = 4
    starting = (4, 1, 2, 3)

    async def script(self) -> None:
        self.cut(2, (1, 3))
        await self.until(lambda: self.state.isr == (1, 3), "broker 2 leaves the ISR")
        await self.acknowledged(50)
        self.faults.operator.held_down.add(1)
        await self.broker(1).stop()
        await self.wait(0.5, 3.0)
        self.heal()
        self.start(1)


class ProposedBeforeItsRestart(Scene):
    """A leader proposes to add a replica to the ISR; before the controller hears of it, that one loses records."""

    brokers = 4
    starting = (4, 1, 2, 3)

    async def script(self) -> None:
        self.cut(3, (1, 2))
        await self.until(lambda: self.state.isr == (1, 2), "broker 3 leaves the ISR")
        await self.acknowledged(200)
        self.cut(1, (4,), back=False)
        self.heal(3)
        await self.until(lambda: self.proposed(1) == {1, 2, 3}, "broker 1 proposes broker 3")
        self.lose_power(3)
        self.cut(3, (1, 2))
        self.start(3)
        await self.until(lambda: self.broker(3).is_up and self.broker(3).starts == 2, "broker 3 is back")
        self.heal(4)
        await self.wait(0.5, 1.5)
        self.kill(1, 2)
        await self.wait(SESSION_S + 2.0, SESSION_S + 4.0)
        self.heal()
        self.start(1, 2)
