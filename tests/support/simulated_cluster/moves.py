"""Seeds in which partitions move between four brokers: begun, replaced and cancelled at random, beside other faults.

Most requests are AlterPartitionReassignments, which may reach a broker that is the controller no more; some are written
into the older znode. The partition of the groups' offsets moves, too, and its coordinator with it.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

from ottla.client import Admin
from ottla.client.errors import ClientError
from ottla.client.model import TopicPartition
from ottla.zk.layout import ReassignPartitionsZnode
from ottla.zk.tree import NodeExistsError
from support.simulated_cluster.seed_run import WHOLE_WITHIN_S, SeedOutcome, SeedRun, outcome_of

OFFSETS: Final = TopicPartition("__consumer_offsets", 0)
#: Seconds between two requests.
PAUSE_S: Final = (0.2, 6.0)
REQUEST_TIMEOUT_MS: Final = 5_000
#: So long the cluster is whole before a replica loses what it has.
SETTLED_S: Final = 1.0
#: How many replicas a partition gets.
FACTORS: Final = (3, 3, 3, 2)
#: The share of requests that cancel, of the others that are written into the znode, of those that are followed soon by
#: another request, so that it finds a move under way, and of those after which the controller dies.
CANCELLED: Final = 0.3
IN_ZNODE: Final = 0.15
FOLLOWED: Final = 0.6
DEATHS: Final = 0.1
SOON_S: Final = (0.0, 0.15)


class MovingSeedRun(SeedRun):
    """The run of a seed with moves. `asked` counts its requests by kind, `refused` what controllers refused."""

    brokers = 4
    #: Leaders go back to preferred replicas by themselves, too; and replicas that are added catch up in many steps.
    settings = {"leader.imbalance.check.interval.seconds": "10", "replica.fetch.max.bytes": "1000"}  # noqa: RUF012

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.requested = {"move": 0, "cancel": 0, "znode": 0}
        self.refused = 0
        self._is_held = False
        self._is_asking = False
        self._deaths: set[asyncio.Task[None]] = set()

    async def course(self) -> None:
        """Faults as usual, and moves all the time."""
        cluster = self.cluster
        moving = cluster.loop.process("mover").start(self._move(random.Random(self._chance.getrandbits(32))))
        await super().course()
        moving.cancel()
        await asyncio.gather(moving, *self._deaths, return_exceptions=True)
        cluster.story.tell("", f"no more moves: {self.requested}, {self.refused} refused")

    async def _is_whole_again(self) -> bool:
        """Before and after a fault that takes what a replica has: nothing moves meanwhile."""
        self._is_held = not self._is_held
        if self._is_held:
            await self.cluster.until(lambda: not self._is_asking and not self._deaths, WHOLE_WITHIN_S)
            # Brokers that have just registered again, after an outage of ZooKeeper, are about to leave their ISRs.
            if not await super()._is_whole_again():
                return False
            await asyncio.sleep(SETTLED_S)
        return await super()._is_whole_again()

    async def _move(self, chance: random.Random) -> None:
        cluster = self.cluster
        limits = dict.fromkeys(("request_timeout_ms", "default_api_timeout_ms"), REQUEST_TIMEOUT_MS)
        admin = Admin(**cluster.client_settings("mover") | limits)
        while True:
            await asyncio.sleep(chance.uniform(*(SOON_S if chance.random() < FOLLOWED else PAUSE_S)))
            if self._is_held:
                continue
            self._is_asking = True
            try:
                await self._ask(admin, chance)
                if chance.random() < DEATHS and not self._deaths:
                    death = cluster.loop.create_task(self._kill_controller(chance.uniform(*SOON_S)))
                    self._deaths.add(death)
                    death.add_done_callback(self._deaths.discard)
            except ClientError as error:
                self.refused += 1
                cluster.story.tell("mover", f"{error!r}")
            finally:
                self._is_asking = False

    async def _kill_controller(self, after_s: float) -> None:
        """Kill the controller while it moves partitions."""
        await asyncio.sleep(after_s)
        await self.faults.play("kill of the controller")

    async def _ask(self, admin: Admin, chance: random.Random) -> None:
        """Ask for one move, or several, or cancel what moves."""
        tell = self.cluster.story.tell
        if chance.random() < CANCELLED:
            moves = await admin.list_partition_reassignments()
            if moves:
                cancelled = [each for each in moves if chance.random() < 0.7] or list(moves)[:1]
                tell("mover", f"cancels {', '.join(map(str, cancelled))}")
                self.requested["cancel"] += 1
                await admin.alter_partition_reassignments(dict.fromkeys(cancelled))
                return
        partitions = [*(TopicPartition(*place) for place in self.places), OFFSETS]
        chosen = chance.sample(partitions, chance.choice((1, 1, 2, len(partitions))))
        wanted = {each: chance.sample(sorted(self.cluster.brokers), chance.choice(FACTORS)) for each in chosen}
        told = ", ".join(f"{partition} to {replicas}" for partition, replicas in wanted.items())
        if chance.random() < IN_ZNODE:
            tell("mover", f"writes {told} into the znode")
            await self._write({(each.topic, each.partition): replicas for each, replicas in wanted.items()})
            return
        tell("mover", f"moves {told}")
        self.requested["move"] += 1
        await admin.alter_partition_reassignments(dict(wanted))

    async def _write(self, wanted: dict[tuple[str, int], list[int]]) -> None:
        zk = self.cluster.zookeeper.connect()
        try:
            await zk.create(ReassignPartitionsZnode.PATH, ReassignPartitionsZnode.encode(wanted))
            self.requested["znode"] += 1
        except NodeExistsError:
            self.cluster.story.tell("mover", "finds a request in the znode")
        finally:
            zk.die()


def run_moving_seed(seed: int) -> SeedOutcome:
    """Play one seed with moves."""
    return outcome_of(MovingSeedRun(seed))
