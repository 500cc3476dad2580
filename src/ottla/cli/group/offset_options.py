"""Values of the options about offsets: topics with partitions, dates, durations."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from ottla.client.errors import InvalidArgumentError

_DURATION = re.compile(
    r"P(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:[.,]\d{1,9})?)S)?)?",
    re.IGNORECASE,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOST_PARTITION = (1 << 31) - 1


def parse_topic(text: str) -> tuple[str, tuple[int, ...] | None]:
    """`orders` (None: all partitions) or `orders:0,3`. Raises InvalidArgumentError."""
    topic, colon, listed = text.partition(":")
    if not topic:
        raise InvalidArgumentError(f"--topic {text!r} names no topic; write orders, or orders:0,3")
    if not colon:
        return topic, None
    numbers = listed.split(",")
    if not all(each.isascii() and each.isdigit() and len(each) <= len(str(MOST_PARTITION)) for each in numbers):
        raise InvalidArgumentError(f"--topic {text!r}: partitions are numbers with commas between, as in orders:0,3")
    return topic, tuple(dict.fromkeys(map(int, numbers)))


def parse_datetime(text: str) -> int:
    """Milliseconds since 1970 of `2026-11-21T09:30:00.000`, UTC unless it names a zone. InvalidArgumentError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgumentError(
            f"--to-datetime {text!r} is not a date and time of ISO 8601; write 2026-11-21T09:30:00.000, in UTC unless "
            "it ends with a zone (+01:00)"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    at_ms = (moment - _EPOCH) // timedelta(milliseconds=1)
    if at_ms < 0:
        raise InvalidArgumentError(f"--to-datetime {text!r} is before 1970, when no record was written")
    return at_ms


def parse_duration_ms(text: str, option: str = "--by-duration") -> int:
    """Milliseconds of `P1DT2H30M` and the like (weeks to seconds of ISO 8601). Raises InvalidArgumentError."""
    match = _DURATION.fullmatch(text)
    units = {} if match is None else {name: each.replace(",", ".") for name, each in match.groupdict().items() if each}
    try:
        if not units or text.upper().endswith("T"):
            raise ValueError
        return timedelta(**{name: float(each) for name, each in units.items()}) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        raise InvalidArgumentError(
            f"{option} {text!r} is not a duration of ISO 8601; write PT30M for half an hour, P1DT12H for a day "
            "and a half"
        ) from None
