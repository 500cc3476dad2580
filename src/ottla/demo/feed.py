"""The events that the demo sends, and what anybody can compute of them without a broker or Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from zoneinfo import ZoneInfo

# A bucket is at most this often in the whole time span, so that plots stay readable and state small.
MOST_BUCKETS = 2_000
_BUCKETS = {
    "1 minute": 60,
    "5 minutes": 300,
    "15 minutes": 900,
    "1 hour": 3_600,
    "6 hours": 21_600,
    "1 day": 86_400,
    "7 days": 604_800,
    "30 days": 2_592_000,
    "365 days": 31_536_000,
}
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - local calendar days are counted from it, in any zone


@dataclass(slots=True)
class BucketTotal:
    """The totals of one key and bucket; `total` sums the measure over `measured` events that have it."""

    events: int = 0
    measured: int = 0
    total: float = 0.0


@dataclass(frozen=True, slots=True)
class Event:
    """One record to be: time in milliseconds since 1970 (UTC), key, JSON value, and what the checks need of it."""

    time_ms: int
    key: bytes | None
    value: bytes
    group: str | None
    measure: float | None = None
    place: str | None = None


@dataclass(slots=True)
class Feed:
    """Events in the order of their time, and how the pipelines are to treat them.

    `group_field` and `measure_field` are JSON fields for the online pipeline (without `group_field` it groups by the
    record's key). The archive has the `fields`, with their types in Spark's DDL. Its events are under a day and, with
    `place_field`, a place: the day is in the fields `day_fields` (year, month, day), or else in `date_column`, which
    the archive adds. `partition_by` are the folders of the archive.
    """

    name: str
    events: list[Event]
    fields: Mapping[str, str]
    group_field: str | None = None
    measure_field: str | None = None
    place_field: str | None = None
    day_fields: tuple[str, str, str] | None = None
    date_column: str = "date"
    partition_by: tuple[str, ...] = ()
    timezone: str = "UTC"
    bucket: str = "1 hour"
    _days: dict[int, str] = field(default_factory=dict)

    @property
    def bucket_ms(self) -> int:
        """The length of a bucket in milliseconds."""
        return _BUCKETS[self.bucket] * 1_000

    def totals(self) -> dict[tuple[int, str | None], BucketTotal]:
        """Per (start of the bucket in ms, group): what the online pipeline must arrive at."""
        length = self.bucket_ms
        found: dict[tuple[int, str | None], BucketTotal] = {}
        for event in self.events:
            place = (event.time_ms // length * length, event.group)
            total = found.get(place)
            if total is None:
                total = found[place] = BucketTotal()
            total.events += 1
            if event.measure is not None:
                total.measured += 1
                total.total += event.measure
        return found

    def folders(self) -> Counter[tuple[str, str | None]]:
        """Per (day as 2013-01-01, place): how many events the archive must hold there."""
        zone = ZoneInfo(self.timezone)
        return Counter((self._day(event.time_ms, zone), event.place) for event in self.events)

    def watermark_s(self, slice_size: int) -> int:
        """How much disorder the stream may show when it is sent in slices of this size; in seconds.

        Partitions are filled a slice at a time, so a reader sees them apart by two slices at most. Five are allowed.
        """
        times = [event.time_ms for event in self.events[::slice_size]]
        last = self.events[-1].time_ms
        apart = max(later - earlier for earlier, later in zip(times, times[5:] + [last] * 5, strict=False))
        return max(apart, self.bucket_ms) // 1_000 + 1

    def _day(self, time_ms: int, zone: tzinfo) -> str:
        quarter = time_ms // 900_000  # Offsets from UTC change at quarters of an hour.
        day = self._days.get(quarter)
        if day is None:
            day = self._days[quarter] = datetime.fromtimestamp(quarter * 900, zone).date().isoformat()
        return day


def choose_bucket(first_ms: int, last_ms: int) -> str:
    """The shortest bucket that divides the time span into MOST_BUCKETS or fewer."""
    for name, seconds in _BUCKETS.items():
        if (last_ms - first_ms) / 1_000 <= seconds * MOST_BUCKETS:
            return name
    return name
