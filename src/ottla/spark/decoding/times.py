"""Dates and timestamps in text, as Spark's casts read them (`DateTimeUtils.stringToTimestamp`, `stringToDate`).

Everything is arithmetic on the proleptic Gregorian calendar: Java's years go beyond those of `datetime`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

MICROS_PER_SECOND = 1_000_000
SECONDS_PER_DAY = 86_400
MAX_MICROS = (1 << 63) - 1
#: Java's zone offsets go from -18:00 to +18:00.
MAX_ZONE_OFFSET_S = 18 * 3600
#: Days since 1970 as text count in Julian days below this one (1582-10-15); such texts are refused.
FIRST_GREGORIAN_DAY = -141_427
MAX_ZONES = 1_024
#: Characters of a zone's name; no zone has as many.
MAX_ZONE_NAME = 100
#: Years after which weekdays and leap years repeat.
CYCLE_YEARS = 400
CYCLE_SECONDS = 146_097 * SECONDS_PER_DAY

_TIMESTAMP = re.compile(
    r"([+-]?)([0-9]{4,6})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T]([0-9]{1,2})(?::([0-9]{1,2})"
    r"(?::([0-9]{1,2})(?:\.([0-9]*))?(.*))?)?)?)?)?",
    re.DOTALL,
)
_DATE = re.compile(r"([+-]?)([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_INT = re.compile(r"[+-]?[0-9]{1,10}")
_OFFSET = re.compile(r"([+-])([0-9]{1,2})(?::?([0-9]{2})(?::?([0-9]{2}))?)?")
#: What Java and Spark trim: whitespace and control characters.
_TRIMMED = "".join(map(chr, range(33))) + "\x7f"
_MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: The days that `datetime` has, in every zone.
_FIRST_SECOND = -62_135_596_800 + SECONDS_PER_DAY
_LAST_SECOND = 253_402_300_799 - SECONDS_PER_DAY

#: java.time.ZoneId.SHORT_IDS.
_SHORT_ZONES = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "EST": "-05:00",
    "HST": "-10:00",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "MST": "-07:00",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}


def parse_timestamp(text: str, zone: ZoneInfo) -> int | None:
    """Microseconds since 1970 in UTC, local times being those of `zone`; None where it is not a timestamp.

    A time of day without a date is refused: Spark takes today's date, so that a second read gives another value.
    """
    found = _TIMESTAMP.fullmatch(text.strip(_TRIMMED))
    if found is None:
        return None
    local = _local_micros(found)
    if local is None:
        return None
    name = (found[9] or "").strip(_TRIMMED)
    if (found[9] and not name) or len(name) > MAX_ZONE_NAME:
        return None
    offset = _zone(name) if name else zone
    if offset is None:
        return None
    seconds = offset if isinstance(offset, int) else _offset_of(offset, local)
    micros = local - seconds * MICROS_PER_SECOND
    return micros if -MAX_MICROS <= micros <= MAX_MICROS else None


def parse_local_timestamp(text: str) -> int | None:
    """Microseconds since 1970 of a timestamp without time zone; None where it is none, or names a zone."""
    found = _TIMESTAMP.fullmatch(text.strip(_TRIMMED))
    return None if found is None or found[9] else _local_micros(found)


def parse_date(text: str) -> int | None:
    """Days since 1970; None where it is not a date."""
    trimmed = text.strip(_TRIMMED)
    found = _DATE.fullmatch(trimmed)
    if found is not None:
        days = _days(found[1], found[2], found[3], found[4])
        if days is not None:
            return days
    if _INT.fullmatch(text) and FIRST_GREGORIAN_DAY <= int(text) < 1 << 31:
        return int(text)
    return None


def _local_micros(found: re.Match[str]) -> int | None:
    days = _days(found[1], found[2], found[3], found[4])
    hour, minute, second = (int(found[group] or 0) for group in (5, 6, 7))
    if days is None or hour > 23 or minute > 59 or second > 59:
        return None
    fraction = int((found[8] or "")[:6].ljust(6, "0"))
    seconds = days * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second
    micros = seconds * MICROS_PER_SECOND + fraction
    return micros if -MAX_MICROS <= micros <= MAX_MICROS else None


def _days(sign: str, year: str, month: str | None, day: str | None) -> int | None:
    return days_since_1970(-int(year) if sign == "-" else int(year), int(month or 1), int(day or 1))


def days_since_1970(year: int, month: int, day: int) -> int | None:
    """Days since 1970 of a date of the proleptic Gregorian calendar; None if it does not exist."""
    if not 1 <= month <= 12 or day < 1:
        return None
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if day > _MONTH_DAYS[month - 1] + (leap and month == 2):
        return None
    # Years that begin in March, so that the leap day is their last.
    years = year - (month < 3)
    cycle, rest = divmod(years, CYCLE_YEARS)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return cycle * 146_097 + rest * 365 + rest // 4 - rest // 100 + day_of_year - 719_468


@lru_cache(maxsize=MAX_ZONES)
def _zone(name: str) -> int | ZoneInfo | None:
    """A zone's offset in seconds, or its rules; None where Java knows no such zone."""
    name = _SHORT_ZONES.get(name, name)
    if name in ("Z", "UTC", "GMT", "UT"):
        return 0
    plain = name
    for prefix in ("UTC", "GMT", "UT"):
        if name.startswith((f"{prefix}+", f"{prefix}-")):
            plain = name.removeprefix(prefix)
            break
    if plain[0] in "+-":
        return _fixed_offset(plain)
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        return None


def _fixed_offset(text: str) -> int | None:
    # Spark pads what is beside a colon: +1:5 is +01:05.
    text = re.sub(r"^([+-])([0-9]):", r"\g<1>0\g<2>:", text)
    text = re.sub(r"^([+-][0-9]{2}):([0-9])$", r"\g<1>:0\g<2>", text)
    found = _OFFSET.fullmatch(text)
    if found is None or (found[3] and len(found[2]) == 1):
        return None
    minutes, seconds = int(found[3] or 0), int(found[4] or 0)
    total = int(found[2]) * 3600 + minutes * 60 + seconds
    if minutes > 59 or seconds > 59 or total > MAX_ZONE_OFFSET_S:
        return None
    return -total if found[1] == "-" else total


def _offset_of(zone: tzinfo, local_micros: int) -> int:
    """The offset of a zone at a local time, in seconds: the earlier one where two are, that before a gap."""
    seconds = local_micros // MICROS_PER_SECOND
    if seconds < _FIRST_SECOND:
        seconds = _FIRST_SECOND
    elif seconds > _LAST_SECOND:
        # Today's zones keep their rules for ever, and the calendar repeats.
        seconds = seconds % CYCLE_SECONDS + 4 * CYCLE_SECONDS
    local = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=zone, fold=0)
    offset = local.utcoffset()
    return 0 if offset is None else round(offset.total_seconds())
