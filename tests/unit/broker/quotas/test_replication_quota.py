"""A quota on replication: its rate over samples, and how exactly a limit holds."""

from __future__ import annotations

import pytest

from ottla.broker.quotas.replication import UNLIMITED, ReplicationQuota, ReplicationQuotas, is_throttled
from ottla.config.broker import BrokerConfig
from ottla.config.topic import LogConfig

pytestmark = pytest.mark.spec("R2")

MB = 1_000_000


class Time:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.ms = 0.0

    def __call__(self) -> float:
        return self.ms


def limited(limit: int, count: int = 11, size_s: int = 1) -> tuple[ReplicationQuota, Time]:
    time = Time()
    quota = ReplicationQuota(time, count, size_s)
    quota.set_limit(limit)
    return quota, time


def copied(quota: ReplicationQuota, time: Time, batch: int, seconds: float, pause_ms: float = 1.0) -> int:
    """What comes through in this time, in batches of this size, with a pause after each attempt."""
    until_ms = time.ms + seconds * 1000
    before = quota.copied
    while time.ms < until_ms:
        if not quota.is_exceeded:
            quota.record(batch)
        time.ms += pause_ms
    return quota.copied - before


def test_without_a_limit_nothing_is_held_and_the_rate_is_known() -> None:
    time = Time()
    quota = ReplicationQuota(time)
    assert (quota.limit, quota.is_limited, quota.wait_ms, quota.rate) == (UNLIMITED, False, 0.0, 0.0)
    quota.record(3 * MB)
    assert not quota.is_exceeded
    # The first sample counts as a whole one.
    time.ms = 500
    assert quota.rate == 3 * MB
    time.ms = 3000
    quota.record(3 * MB)
    assert quota.rate == 2 * MB
    time.ms = 11_000
    assert quota.rate == 3 * MB * 1000 / 8000
    time.ms = 30_000
    assert quota.rate == 0


@pytest.mark.parametrize("batch", [50_000, 100_000, 999_999, 8 * MB, 40 * MB])
@pytest.mark.parametrize("limit", [MB, 50 * MB])
def test_a_limit_holds_however_large_the_batches_are(limit: int, batch: int) -> None:
    quota, time = limited(limit)
    seconds = max(60.0, 10 * batch / limit)
    passed = copied(quota, time, batch, seconds, pause_ms=min(5.0, batch / limit * 500))
    assert passed == pytest.approx(limit * seconds, rel=0.1), passed / seconds


def test_time_in_which_nobody_asked_is_made_up_for_within_the_window() -> None:
    quota, time = limited(MB)
    copied(quota, time, 100_000, 5)
    time.ms += 2_000
    passed = copied(quota, time, 100_000, 3)
    assert passed == pytest.approx(5 * MB, rel=0.1)
    time.ms += 60_000
    assert copied(quota, time, 100_000, 1) == pytest.approx(MB, rel=0.2), "older time is not"


def test_the_wait_ends_when_something_may_be_copied() -> None:
    quota, time = limited(MB)
    assert quota.most_at_once == MB
    quota.record(4 * MB)
    assert quota.is_exceeded
    assert quota.wait_ms == pytest.approx(4_000)
    time.ms += quota.wait_ms
    assert not quota.is_exceeded
    assert quota.wait_ms == 0


def test_another_limit_begins_anew() -> None:
    quota, time = limited(UNLIMITED)
    quota.record(1000 * MB)
    quota.set_limit(MB)
    assert not quota.is_exceeded
    assert copied(quota, time, 100_000, 10) == pytest.approx(10 * MB, rel=0.1)
    quota.set_limit(0)
    assert quota.is_exceeded
    assert quota.wait_ms > 0


def test_what_followers_in_sync_get_counts_but_is_not_made_up_for() -> None:
    quota, time = limited(MB)
    for _ in range(100):
        quota.record(MB, is_free=True)
        time.ms += 100
    assert quota.is_exceeded
    time.ms += 11_100
    assert not quota.is_exceeded, "Kafka's window is over"


def test_the_settings_of_a_broker() -> None:
    config = BrokerConfig({}, {}, {})
    quotas = ReplicationQuotas(config, Time())
    assert not quotas.leader.is_limited
    config.set_dynamic(
        {"leader.replication.throttled.rate": "5", "follower.replication.throttled.rate": "6"},
        {"leader.replication.throttled.rate": "7", "replica.alter.log.dirs.io.max.bytes.per.second": "8"},
    )
    quotas.apply_settings(config)
    assert (quotas.leader.limit, quotas.follower.limit, quotas.alter_log_dirs.limit) == (7, 6, 8)
    config.set_dynamic({}, {})
    quotas.apply_settings(config)
    assert not quotas.leader.is_limited


@pytest.mark.parametrize(
    ("text", "named"),
    [("", []), ("*", [(0, 1), (1, 1), (1, 2)]), ("0:1,1:2", [(0, 1), (1, 2)]), ("1:1", [(1, 1)])],
)
def test_throttled_replicas_of_a_topic(text: str, named: list[tuple[int, int]]) -> None:
    config, problems = LogConfig.in_force(BrokerConfig({}, {}, {}), {"leader.replication.throttled.replicas": text})
    assert not problems
    found = [each for each in [(0, 1), (1, 1), (1, 2)] if is_throttled(config.leader_throttled, *each)]
    assert found == named
    assert not config.follower_throttled
