"""Topics, dates and durations on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.group.offset_options import parse_datetime, parse_duration_ms, parse_topic
from ottla.cli.main import app
from ottla.client.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("text", "expected"), [("orders", ("orders", None)), ("o:0", ("o", (0,))), ("o:3,1,3", ("o", (3, 1)))]
)
def test_topics(text: str, expected: tuple[str, tuple[int, ...] | None]) -> None:
    assert parse_topic(text) == expected


@pytest.mark.parametrize("text", ["", ":0", "o:", "o:x", "o:-1", "o:1,,2", "o:²", "o:99999999999"])
def test_what_is_no_topic(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="--topic"):
        parse_topic(text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:01", 1000),
        ("1970-01-01T00:00:01.5Z", 1500),
        ("1970-01-01T01:00:00+01:00", 0),
        ("2026-11-21T09:30:00.123", 1_795_253_400_123),
    ],
)
def test_dates(text: str, ms: int) -> None:
    assert parse_datetime(text) == ms


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01T00:00:00", "1960-01-01T00:00:00", "12:00"])
def test_what_is_no_date(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="--to-datetime"):
        parse_datetime(text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT0S", 0),
        ("PT1.5S", 1500),
        ("PT30M", 1_800_000),
        ("P1DT2H", 93_600_000),
        ("p1w", 604_800_000),
        ("PT0,5S", 500),
    ],
)
def test_durations(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1h", "PT-1S", "P1", "P1Y", f"P{'9' * 400}D"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="--by-duration"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "say where to, once"),
        (["--to-latest", "--to-earliest", "--all-topics"], "say where to, once"),
        (["--to-latest"], "say of which partitions"),
        (["--to-latest", "--all-topics", "-t", "x"], "say of which partitions"),
        (["--from-file", "x.csv", "--all-topics"], "--from-file names the partitions itself"),
        (["--from-file", "x.csv", "--to-latest"], "say where to, once"),
        (["--shift-by", str(1 << 64), "--all-topics"], "is not an offset"),
        (["--to-latest", "-t", "x:y"], "partitions are numbers"),
    ],
)
def test_contradictions_are_reported_before_anybody_is_asked(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as ended:
        app(["group", "reset-offsets", "g", "-b", "127.0.0.1:1", *arguments])
    told = capsys.readouterr()
    assert (ended.value.code, told.out) == (2, "")
    assert words in told.err
