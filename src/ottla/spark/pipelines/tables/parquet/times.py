"""Whether a partition folder lies wholly before a time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Final

#: Days end in the last time zone so much later than in UTC; which zone a column's dates are in is not known.
_ZONES: Final = timedelta(hours=12)
_DAY: Final = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[ T]\d{2}(?::\d{2}.*)?)?")


def is_passed(values: Mapping[str, str | None], watermark_ms: int) -> bool:
    """Whether all times with these values of partition columns lie before the watermark.

    A date, or a time (its day counts), as ISO text; or whole numbers in columns named `year`, `month` and `day`.
    Without any of these: no.
    """
    try:
        watermark = datetime.fromtimestamp(watermark_ms / 1000, UTC)
        ends = [_day_end(value) for value in values.values() if value is not None]
        ends.append(_calendar_end({name.lower(): value for name, value in values.items()}))
        return any(end is not None and end + _ZONES <= watermark for end in ends)
    except (ValueError, OverflowError, OSError):  # the 31st of April, the year 10000
        return False


def _day_end(value: str) -> datetime | None:
    matched = _DAY.fullmatch(value)
    return _midnight(date.fromisoformat(matched[1]) + timedelta(days=1)) if matched else None


def _calendar_end(values: Mapping[str, str | None]) -> datetime | None:
    if not values.get("year"):
        return None
    year = int(values["year"] or "")
    if not values.get("month"):
        return _midnight(date(year + 1, 1, 1))
    month = int(values["month"] or "")
    if not values.get("day"):
        return _midnight((date(year, month, 1) + timedelta(days=31)).replace(day=1))
    return _midnight(date(year, month, int(values["day"] or "")) + timedelta(days=1))


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
