"""How far a leader's records are committed: the least end over the maximal ISR, and never while that is too small."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from ottla.broker.replicas.leader import Leader
from ottla.cluster.image import PartitionImage
from ottla.cluster.isr import IsrProposal

pytestmark = pytest.mark.spec("R2")

LAG_MS = 30_000


class Led:
    """A leader of partition epoch 7, and the end of its log."""

    def __init__(
        self,
        isr: tuple[int, ...] = (1, 2, 3),
        replicas: tuple[int, ...] = (1, 2, 3),
        end: int = 10,
        alive: Collection[int] = (1, 2, 3),
    ) -> None:
        self.leader = Leader(PartitionImage(1, 5, replicas, isr), 7, 0, 0.0)
        self.alive = alive
        self.end = end

    def fetched(self, replica: int, offset: int, now_ms: float = 0.0) -> None:
        self.leader.replicas.followers[replica].fetched(offset, 0, self.end, now_ms)

    def high_watermark(self, before: int, min_insync: int = 1, now_ms: float = 0.0, own_end: int | None = None) -> int:
        own = self.end if own_end is None else own_end
        return self.leader.high_watermark(before, own, self.end, min_insync, now_ms, LAG_MS, self.alive.__contains__)


def test_alone_it_is_its_own_end() -> None:
    alone = Led((1,), (1,))
    assert alone.leader.is_alone
    assert alone.high_watermark(0, own_end=7) == 7
    assert alone.high_watermark(0, 3, own_end=7) == 7, "the effective minimum is never more than there are replicas"
    assert alone.leader.has_enough(3)


def test_the_slowest_of_the_isr_counts() -> None:
    three = Led()
    assert three.high_watermark(4) == 4, "nobody else has fetched in this epoch"
    three.fetched(2, 9)
    assert three.high_watermark(4) == 4
    three.fetched(3, 6)
    assert three.high_watermark(4) == 6
    three.fetched(3, 10)
    assert three.high_watermark(4) == 9
    three.fetched(2, 10)
    assert three.high_watermark(4) == 10
    assert three.high_watermark(4, own_end=8) == 8, "its own records count as far as they are on the disk"


def test_it_never_moves_back() -> None:
    three = Led()
    three.fetched(2, 9)
    three.fetched(3, 9)
    assert three.high_watermark(8) == 9
    three.fetched(3, 5)
    assert three.high_watermark(9) == 9


def test_a_pending_shrink_still_counts_the_old_isr_and_a_pending_expansion_the_new_one() -> None:
    led = Led((1, 2))
    led.fetched(2, 5)
    assert led.high_watermark(0) == 5
    replicas = led.leader.replicas
    shrink = replicas.shrink(10, LAG_MS + 1, LAG_MS)
    assert shrink == IsrProposal(5, 7, (1,))
    assert led.high_watermark(0) == 5
    assert replicas.accepted(shrink, 5, 8, (1,))
    assert led.high_watermark(5, now_ms=LAG_MS + 1) == 10
    led.end = 20
    led.fetched(3, 10, LAG_MS + 2)
    expansion = replicas.expansion(3, 10, led.alive.__contains__)
    assert expansion == IsrProposal(5, 8, (1, 3))
    assert led.high_watermark(10, now_ms=9 * LAG_MS) == 10
    assert led.leader.isr == {1}


def test_who_is_about_to_join_counts_if_it_lives_and_is_caught_up() -> None:
    led = Led((1, 2))
    led.fetched(2, 10)
    led.end = 7
    led.fetched(3, 7)
    led.end = 10
    assert led.high_watermark(0, now_ms=LAG_MS) == 7
    assert led.high_watermark(0, now_ms=LAG_MS + 1) == 10, "it was caught up too long ago"
    led.alive = (1, 2)
    assert led.high_watermark(0) == 10, "it is dead"


def test_it_stands_still_while_the_isr_is_below_the_effective_minimum() -> None:
    led = Led((1, 2), (1, 2))
    led.fetched(2, 9)
    minimum = led.leader.effective_minimum
    assert (minimum(1), minimum(2), minimum(5)) == (1, 2, 2)
    assert led.high_watermark(3, 5) == 9
    shrink = led.leader.replicas.shrink(10, LAG_MS + 1, LAG_MS)
    assert shrink is not None
    assert led.leader.has_enough(2), "the committed ISR counts until the controller has agreed"
    assert led.leader.replicas.accepted(shrink, 5, 8, (1,))
    assert not led.leader.has_enough(2)
    assert led.high_watermark(3, 2, LAG_MS + 1) == 3
    assert led.high_watermark(3, 1, LAG_MS + 1) == 10


def test_the_same_leader_in_a_later_epoch_knows_what_its_followers_have() -> None:
    led = Led((1, 2), (1, 2, 3))
    led.fetched(2, 9)
    again = Leader(PartitionImage(1, 6, (1, 2), (1, 2)), 9, 10, 50.0, led.leader)
    assert again.replicas.followers[2].end_offset == 9
    assert list(again.replicas.followers) == [2], "a replica that was removed does not count any more"
    assert (again.replicas.partition_epoch, again.replicas.leader_epoch, again.start_offset) == (9, 6, 10)
