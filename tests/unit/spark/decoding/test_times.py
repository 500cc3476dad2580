"""Dates and timestamps as Spark reads them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest

from ottla.spark.decoding.times import days_since_1970, parse_date, parse_local_timestamp, parse_timestamp

NEW_YORK = ZoneInfo("America/New_York")


def _micros(text: str) -> int:
    moment = datetime.fromisoformat(text).astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (moment.days * 86_400 + moment.seconds) * 1_000_000 + moment.microseconds


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2024-02-29T12:34:56Z", "2024-02-29T12:34:56+00:00"),
        ("2024-02-29 12:34:56.1234567", "2024-02-29T12:34:56.123456-05:00"),
        ("2024-07-01T1:2:3", "2024-07-01T01:02:03-04:00"),
        ("2024-02", "2024-02-01T00:00:00-05:00"),
        ("2024-02-29T12:34:56 Europe/Berlin", "2024-02-29T12:34:56+01:00"),
        ("2024-02-29T12:34:56PST", "2024-02-29T12:34:56-08:00"),
        ("2024-02-29T12:34:56+1:5", "2024-02-29T12:34:56+01:05"),
        ("2024-02-29T12:34:56UTC-0730", "2024-02-29T12:34:56-07:30"),
        # In the gap of March and the overlap of November the offset before them counts, as in java.time.
        ("2024-03-10T02:30:00", "2024-03-10T03:30:00-04:00"),
        ("2024-11-03T01:30:00", "2024-11-03T01:30:00-04:00"),
    ],
)
def test_timestamps(text: str, moment: str) -> None:
    assert parse_timestamp(text, NEW_YORK) == _micros(moment)


def test_years_that_python_has_not() -> None:
    far = days_since_1970(200_000, 7, 1)
    assert far is not None
    assert parse_timestamp("200000-07-01T00:00:00Z", NEW_YORK) == far * 86_400_000_000
    assert parse_timestamp("200000-07-01T00:00:00", NEW_YORK) == (far * 86_400 + 4 * 3600) * 1_000_000
    assert parse_date("-0001-03-01") == days_since_1970(-1, 3, 1)
    assert parse_timestamp("-0044-03-15T12:00:00Z", NEW_YORK) is not None
    assert parse_timestamp("999999-01-01T00:00:00Z", NEW_YORK) is None


@pytest.mark.parametrize(
    "text",
    ["", "T12:34:56", "2024-02-29T", "2024-02-29T12:34Z", "2023-02-29", "2024-02-29T24:00:00", "2024-02-29T12:34:60Z",
     "2024-02-29T12:34:56+18:01", "2024-02-29T12:34:56 Mars/Base", "2024-02-29T12:34:56,5Z", "24-02-29", "now"],
)  # fmt: skip
def test_no_timestamps(text: str) -> None:
    assert parse_timestamp(text, NEW_YORK) is None


def test_local_timestamps_have_no_zone() -> None:
    assert parse_local_timestamp("2024-02-29 12:34:56.5") == _micros("2024-02-29T12:34:56.500+00:00")
    assert parse_local_timestamp("2024-02-29 12:34:56Z") is None


def test_dates() -> None:
    day = (date(2024, 2, 9) - date(1970, 1, 1)).days
    for text in ("2024-02-09", "2024-2-9", " 2024-02-09 ", "2024-02-09T25:99", "2024-02-09 anything"):
        assert parse_date(text) == day
    assert parse_date("-5") == -5
    assert parse_date("20240101") == 20240101
    assert all(parse_date(text) is None for text in ("", "2024-02-30", "2024-02-09x", "09/02/2024", "2024-01T"))
    assert days_since_1970(1970, 1, 1) == 0
    assert [days_since_1970(year, 2, 29) is None for year in (1900, 2000, 2023, 2024)] == [True, False, True, False]
