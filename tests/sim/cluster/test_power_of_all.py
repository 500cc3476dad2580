"""All machines of a cluster lose their power at once: what is acknowledged when it is on the disk is kept."""

from __future__ import annotations

import pytest

from support.simulated_cluster.seed_run import WHOLE_WITHIN_S, SeedRun, story_of

pytestmark = [pytest.mark.slow, pytest.mark.spec("R1", "R5")]

SEEDS = 4
TIMES = 3


class PowerCut(SeedRun):
    """The power of all machines fails again and again, while producers are at work."""

    settings = {"ottla.log.flush.on.ack": "true"}  # noqa: RUF012

    async def course(self) -> None:
        """Cut the power, and wait for the cluster to recover."""
        for _ in range(TIMES):
            await self._until_acknowledged(self.load.acknowledged + self._chance.randint(30, 120))
            self.cluster.story.tell("", "all machines lose their power")
            for broker in self.cluster.brokers.values():
                broker.lose_power(self._chance.randrange)
            if not await self.cluster.until_whole(WHOLE_WITHIN_S):
                self._wrong.append(f"the cluster does not recover: {self.cluster.out_of_sync()}")
                return

    async def _until_acknowledged(self, records: int) -> None:
        await self.cluster.until(lambda: self.load.acknowledged > records, WHOLE_WITHIN_S)


class NotForced(PowerCut):
    """The same without flushing before the acknowledgement."""

    settings = {}  # noqa: RUF012


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_acknowledged_on_the_disk_survives(seed: int) -> None:
    outcome = PowerCut(seed).run()
    assert not outcome.wrong, story_of(outcome)
    assert outcome.acknowledged > 100 * TIMES // 2


def test_what_is_in_the_page_cache_does_not_but_replicas_come_together() -> None:
    """As docs/cluster.md says; and so the test above shows something."""
    wrong = [NotForced(seed).run().wrong for seed in (0, 1)]
    assert all("an offset had two values" in each for each in wrong)
    assert not any("replicas differ" in each or "recover" in each for each in wrong), wrong
