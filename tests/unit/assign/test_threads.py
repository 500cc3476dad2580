"""The assignors over threads, where the transcripts leave something open."""

from __future__ import annotations

import pytest

from ottla.assign.threads import (
    THREAD_ASSIGNORS,
    ConsumerThread,
    UnequalSubscriptionsError,
    ceil_over_threads,
    consumer_threads,
    range_over_threads,
    round_robin_over_threads,
)

pytestmark = pytest.mark.spec("A7")


def alone(count: int) -> dict[str, list[ConsumerThread]]:
    return {"t": [ConsumerThread(f"c{number}", 0) for number in range(count)]}


def shares(assigned: dict[ConsumerThread, dict[str, tuple[int, ...]]]) -> list[set[int]]:
    return [set(partitions.get("t", ())) for partitions in assigned.values()]


def test_ceil():
    assert shares(ceil_over_threads({"t": range(4)}, alone(3))) == [{0, 1}, {2, 3}, set()]
    assert shares(ceil_over_threads({"t": range(5)}, alone(4))) == [{0, 1}, {2, 3}, {4}, set()]
    assert shares(ceil_over_threads({"t": range(0)}, alone(2))) == [set(), set()]


def test_thread_10_comes_before_thread_2():
    threads = consumer_threads("c", {"t": 11})
    assert list(map(str, range_over_threads({"t": range(11)}, threads)))[:4] == ["c-0", "c-1", "c-10", "c-2"]


def test_partitions_need_not_begin_at_zero_nor_be_sorted():
    assert shares(range_over_threads({"t": [7, 3, 5]}, alone(2))) == [{3, 5}, {7}]


@pytest.mark.parametrize("name", THREAD_ASSIGNORS)
def test_nobody_and_nothing(name: str):
    assign = THREAD_ASSIGNORS[name]
    assert assign({}, {}) == {}
    assert assign({"t": range(3)}, {"t": []}) == {}
    assert shares(assign({}, alone(2))) == [set(), set()]


def test_unequal_subscriptions_name_who_is_missing():
    threads = {"t": alone(2)["t"], "u": alone(1)["t"]}
    with pytest.raises(UnequalSubscriptionsError, match=r"topic u is not taken by c1-0: subscribe alike, or use range"):
        round_robin_over_threads({"t": range(2), "u": range(2)}, threads)
