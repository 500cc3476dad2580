"""Seeds in which replicas move between the log directories of their brokers, to and fro, beside the usual faults."""

from __future__ import annotations

import asyncio
import random
from typing import Final

from ottla.client import Admin
from ottla.client.admin.model import TopicPartitionReplica
from ottla.client.errors import ClientError
from support.simulated_cluster.seed_run import WHOLE_WITHIN_S, SeedOutcome, SeedRun, outcome_of

LOG_DIRS: Final = ("/data", "/more")
#: Seconds between two requests.
PAUSE_S: Final = (0.05, 3.0)
REQUEST_TIMEOUT_MS: Final = 5_000
#: Replicas that one request moves.
AT_ONCE: Final = (1, 1, 2, 6)


class LogDirSeedRun(SeedRun):
    """The run of a seed with moves. `asked` counts the requests, `refused` those that failed."""

    settings = {"log.dirs": ",".join(LOG_DIRS)}  # noqa: RUF012

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.requested = self.refused = 0

    @property
    def moved(self) -> int:
        """Moves that have ended, in the present lives of the brokers."""
        movers = [each.broker.partitions.mover for each in self.cluster.up() if each.broker is not None]
        return sum(mover.moved for mover in movers if mover is not None)

    async def course(self) -> None:
        """Faults as usual, and moves all the time."""
        cluster = self.cluster
        moving = cluster.loop.process("mover").start(self._move(random.Random(self._chance.getrandbits(32))))
        await super().course()
        moving.cancel()
        await asyncio.gather(moving, return_exceptions=True)
        cluster.story.tell("", f"no more moves: {self.requested} asked for, {self.refused} refused")
        if not await cluster.until_whole(WHOLE_WITHIN_S):
            return  # which is told at the end
        if not await cluster.until(lambda: not self._under_way(), WHOLE_WITHIN_S):
            self._wrong.append(f"moves do not end: {self._under_way()}")

    def _under_way(self) -> list[str]:
        return [
            f"{future.log.directory} of broker {each.id}"
            for each in self.cluster.up()
            if each.broker is not None
            for future in each.broker.logs.placement.futures.values()
        ]

    async def _move(self, chance: random.Random) -> None:
        cluster = self.cluster
        limits = dict.fromkeys(("request_timeout_ms", "default_api_timeout_ms"), REQUEST_TIMEOUT_MS)
        admin = Admin(**cluster.client_settings("mover") | limits)
        places = [*self.places, ("__consumer_offsets", 0)]
        while True:
            await asyncio.sleep(chance.uniform(*PAUSE_S))
            every = [TopicPartitionReplica(*place, broker) for place in places for broker in sorted(cluster.brokers)]
            wanted = {each: chance.choice(LOG_DIRS) for each in chance.sample(every, chance.choice(AT_ONCE))}
            cluster.story.tell("mover", f"moves {', '.join(f'{each} to {path}' for each, path in wanted.items())}")
            self.requested += 1
            try:
                await admin.alter_replica_log_dirs(wanted)
            except ClientError as error:
                self.refused += 1
                cluster.story.tell("mover", f"{error!r}")


def run_log_dir_seed(seed: int) -> SeedOutcome:
    """Play one seed with moves."""
    return outcome_of(LogDirSeedRun(seed))
