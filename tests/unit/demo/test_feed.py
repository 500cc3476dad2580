"""What can be computed of the events without broker or Spark."""

from __future__ import annotations

import pytest

from ottla.demo.feed import MOST_BUCKETS, BucketTotal, Event, Feed, choose_bucket

HOUR = 3_600_000


def _feed(*events: Event, **settings: str) -> Feed:
    return Feed("x", list(events), "a INT", **settings)


def test_totals_per_bucket_and_group() -> None:
    feed = _feed(
        Event(10, None, b"", "UA", 5.0),
        Event(HOUR - 1, None, b"", "UA", -2.0),
        Event(HOUR, None, b"", "UA"),
        Event(HOUR, None, b"", None, 1.0),
    )
    assert feed.totals() == {
        (0, "UA"): BucketTotal(2, 2, 3.0),
        (HOUR, "UA"): BucketTotal(1, 0, 0.0),
        (HOUR, None): BucketTotal(1, 1, 1.0),
    }


def test_directories_are_local_days() -> None:
    events = [Event(4 * HOUR, None, b"", "k", None, "JFK"), Event(6 * HOUR, None, b"", "k", None, "JFK")]
    assert dict(_feed(*events).folders()) == {("1970-01-01", "JFK"): 2}
    assert dict(_feed(*events, timezone="America/New_York").folders()) == {
        ("1969-12-31", "JFK"): 1,
        ("1970-01-01", "JFK"): 1,
    }


def test_the_watermark_allows_for_five_slices() -> None:
    feed = _feed(*(Event(number * HOUR, None, b"", "k") for number in range(1_000)))
    assert feed.watermark_s(10) == 50 * 3_600 + 1
    assert feed.watermark_s(2_000) == 999 * 3_600 + 1, "all in one slice: everything may come in any order"
    assert _feed(Event(0, None, b"", "k")).watermark_s(1) == 3_601, "never below a bucket"


@pytest.mark.parametrize(
    ("days", "bucket"),
    [(0.5, "1 minute"), (3, "5 minutes"), (15, "15 minutes"), (60, "1 hour"), (365, "6 hours"), (36_500, "30 days")],
)
def test_buckets_grow_with_the_time_span(days: float, bucket: str) -> None:
    assert choose_bucket(0, round(days * 24 * HOUR)) == bucket


def test_there_is_a_bucket_for_every_span() -> None:
    feed = _feed(Event(0, None, b"", "k"), bucket=choose_bucket(0, 253_402_300_799_000))
    assert 253_402_300_799_000 / feed.bucket_ms <= MOST_BUCKETS * 5
