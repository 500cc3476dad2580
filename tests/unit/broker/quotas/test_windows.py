"""Rates over samples and buckets of tokens, by hand-made clocks."""

from __future__ import annotations

import pytest

from ottla.broker.quotas.windows import LONGEST_MS, SampledRate, TokenBucket

pytestmark = pytest.mark.spec("S4")


def test_what_is_above_the_limit_waits_as_kafka_has_it() -> None:
    """The elapsed time counts as ten whole samples at least: 11 samples of 1 s, of which the last is not over."""
    rate = SampledRate(11, 1000)
    rate.record(10_000, 0)
    assert rate.throttle_ms(1000, 0) == 0
    rate.record(5_000, 0)
    assert rate.throttle_ms(1000, 0) == 5_000
    assert rate.throttle_ms(1000, 500) == 4_500
    rate.record(-5_000, 500)
    assert rate.throttle_ms(1000, 500) == 0


def test_samples_are_forgotten_after_the_window() -> None:
    rate = SampledRate(11, 1000)
    rate.record(20_000, 0)
    assert rate.throttle_ms(1000, 10_999) > 0
    assert rate.throttle_ms(1000, 11_000) == 0


def test_a_client_that_obeys_gets_its_limit() -> None:
    rate, now_ms, sent = SampledRate(11, 1000), 0.0, 0
    while now_ms < 600_000:
        rate.record(7_000, now_ms)
        sent += 7_000
        now_ms += 1 + rate.throttle_ms(10_000, now_ms)
    assert sent / 600 == pytest.approx(10_000, rel=0.05)


def test_a_client_is_ahead_of_its_limit_by_ten_samples_at_most_and_by_one_before_each_burst() -> None:
    """The samples but one of a window come at once, and next to nothing until the next window."""
    rate, now_ms, sent = SampledRate(11, 1000), 0.0, 0
    ahead: list[list[int]] = [[] for _ in range(50)]
    while now_ms < 600_000:
        ahead[int(now_ms / 12_000)].append(sent - round(now_ms * 10))
        rate.record(7_000, now_ms)
        sent += 7_000
        now_ms += 1 + rate.throttle_ms(10_000, now_ms)
    assert max(map(max, ahead)) == pytest.approx(100_000, abs=7_000)
    assert all(-1_000 <= min(window) <= 10_000 for window in ahead)


def test_a_limit_of_nothing_and_one_that_is_far_exceeded() -> None:
    rate = SampledRate(11, 1000)
    rate.record(1e12, 0)
    assert rate.throttle_ms(0, 0) == 11_000
    assert rate.throttle_ms(1, 0) == LONGEST_MS


@pytest.mark.parametrize("limit", [float("nan"), float("inf"), 1e308, 5e-324, 0.0, -1.0, float("-inf")])
def test_any_double_may_be_a_limit(limit: float) -> None:
    """Apache Kafka takes them all; what is not a number limits nothing."""
    is_limit = limit < 1
    rate, bucket = SampledRate(11, 1000), TokenBucket(11)
    rate.record(5, 0)
    assert (rate.throttle_ms(limit, 0) > 0) == is_limit
    bucket.take(5, limit, 0)
    assert (bucket.throttle_ms(limit, 0) > 0) == is_limit
    assert bucket.throttle_ms(limit, 10) <= LONGEST_MS
    assert bucket.tokens(1, 100_000) <= 11, "a limit that is set later holds"


def test_tokens_come_back_up_to_the_burst() -> None:
    bucket = TokenBucket(11)
    assert bucket.tokens(2, 0) == 22
    bucket.take(30, 2, 0)
    assert bucket.throttle_ms(2, 0) == 4_000
    assert bucket.throttle_ms(2, 4_000) == 0
    assert bucket.tokens(2, 1_000_000) == 22
