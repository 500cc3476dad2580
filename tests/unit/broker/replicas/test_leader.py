"""How far a leader's records are committed: the least end over the maximal ISR, and never while that is too small."""

from __future__ import annotations

import pytest

from ottla.broker.replicas.leader import Leader

pytestmark = pytest.mark.spec("R2")


def leader(isr: tuple[int, ...] = (1, 2, 3), replicas: tuple[int, ...] = (1, 2, 3)) -> Leader:
    return Leader(1, 5, replicas, isr, 100)


def test_alone_it_is_its_own_end() -> None:
    alone = leader((1,), (1,))
    assert alone.is_alone
    assert alone.high_watermark(0, 7, 1) == 7
    assert alone.high_watermark(0, 7, 3) == 7, "the effective minimum is never more than there are replicas"
    assert alone.has_enough(3)


def test_the_slowest_of_the_isr_counts() -> None:
    three = leader()
    assert three.high_watermark(4, 10, 1) == 4, "nobody else has fetched in this epoch"
    three.fetched(2, 9)
    assert three.high_watermark(4, 10, 1) == 4
    three.fetched(3, 6)
    assert three.high_watermark(4, 10, 1) == 6
    three.fetched(3, 12)
    assert three.high_watermark(4, 10, 1) == 9
    three.fetched(2, 12)
    assert three.high_watermark(4, 10, 1) == 10, "its own end bounds it"


def test_it_never_moves_back() -> None:
    three = leader()
    three.fetched(2, 9)
    three.fetched(3, 9)
    assert three.high_watermark(8, 10, 1) == 9
    three.fetched(3, 5)
    assert three.high_watermark(9, 10, 1) == 9


def test_a_pending_shrink_still_counts_the_old_isr_and_a_pending_expansion_the_new_one() -> None:
    three = leader((1, 2), (1, 2, 3))
    three.fetched(2, 5)
    three.fetched(3, 4)
    assert three.high_watermark(0, 10, 1) == 5
    three.set_isr((1, 2), pending=(1,))
    assert three.high_watermark(0, 10, 1) == 5
    three.set_isr((1, 2), pending=(1, 2, 3))
    assert three.high_watermark(0, 10, 1) == 4
    three.set_isr((1,))
    assert three.high_watermark(0, 10, 1) == 10


def test_who_is_about_to_join_counts() -> None:
    two = leader((1, 2), (1, 2, 3))
    two.fetched(2, 9)
    two.fetched(3, 7)
    assert two.high_watermark(0, 10, 1) == 9
    assert two.high_watermark(0, 10, 1, joining=(3,)) == 7


def test_it_stands_still_while_the_isr_is_below_the_effective_minimum() -> None:
    two = leader((1, 2), (1, 2))
    two.fetched(2, 9)
    assert (two.effective_minimum(1), two.effective_minimum(2), two.effective_minimum(5)) == (1, 2, 2)
    assert two.high_watermark(3, 10, 5) == 9
    two.set_isr((1,))
    assert not two.has_enough(2)
    assert two.high_watermark(3, 10, 2) == 3
    assert two.high_watermark(3, 10, 1) == 10


def test_a_stranger_does_not_count() -> None:
    two = leader((1, 2), (1, 2))
    two.fetched(2, 9)
    two.fetched(7, 1)
    assert two.high_watermark(0, 10, 1) == 9
