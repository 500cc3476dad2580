"""Consumers that read in their racks while brokers die, are cut off and lose their disks: never back, never too far."""

from __future__ import annotations

import pytest

from ottla.broker.replicas.partition import Partition
from ottla.config.refusals import RACK_AWARE
from support.cluster_history import BrokenPromise, Read
from support.simulated_cluster.seed_run import SeedOutcome, SeedRun, outcome_of, story_of

pytestmark = [pytest.mark.slow, pytest.mark.spec("R2")]

SETTINGS = {"replica.selector.class": RACK_AWARE, "replica.fetch.wait.max.ms": "500"}
SEEDS = 6
#: Of a long run.
ALL_SEEDS = 150


class RackReadRun(SeedRun):
    """A seed with a reader in the rack of each broker; it counts what was read from followers."""

    in_racks = True
    members = 0
    settings = SETTINGS
    followed_bytes = 0

    async def _end(self) -> None:
        await super()._end()
        for each in self.cluster.up():
            assert each.broker is not None
            self.followed_bytes += each.broker.rack_reads.bytes_read


def play(seed: int) -> tuple[SeedOutcome, int]:
    run = RackReadRun(seed)
    return outcome_of(run), run.followed_bytes


@pytest.mark.parametrize("seed", range(SEEDS))
def test_readers_in_racks_see_what_is_committed_and_in_order(seed: int) -> None:
    outcome, followed_bytes = play(seed)
    assert not outcome.wrong, story_of(outcome)
    assert followed_bytes > 0, "nobody read from a follower"
    assert len({each.consumer for each in outcome.events if isinstance(each, Read)}) == 4


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_hundred_and_fifty_seeds() -> None:
    wrong = {seed: outcome.wrong for seed in range(SEEDS, ALL_SEEDS) if (outcome := play(seed)[0]).wrong}
    assert not wrong


def test_a_follower_that_shows_what_is_not_committed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    visible_end = Partition.visible_end

    def too_far(self: Partition, isolation_level: int) -> int:
        return self.log.log_end_offset if self.leader is None else visible_end(self, isolation_level)

    monkeypatch.setattr(Partition, "visible_end", too_far)
    found = "\n".join(play(seed)[0].wrong for seed in range(SEEDS))
    assert BrokenPromise.LOST_READ in found or BrokenPromise.TWO_VALUES in found, found
