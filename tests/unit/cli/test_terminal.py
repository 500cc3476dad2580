"""Tables that fit a window, and are whole in a pipe."""

from __future__ import annotations

import io
from operator import itemgetter
from typing import Any

import pytest

from ottla.cli.terminal import Cell, Column, Style, Terminal, count, duration, numbers, shortened

COLUMNS: list[Column[Any]] = [
    Column("NAME", itemgetter(0), may_shrink=True),
    numbers("LAG", itemgetter(1)),
    Column("NOTE", itemgetter(2)),
]


def shown(width: int | None, *rows: tuple[str | Cell, ...], colours: bool = False) -> list[str]:
    stream = io.StringIO()
    Terminal(stream, width=width, colours=colours).table(COLUMNS, rows)
    return stream.getvalue().splitlines()


def test_columns_are_aligned_and_empty_ones_left_out() -> None:
    assert shown(None, ("a", "5", ""), ("long", "12345", "-")) == [
        "  NAME    LAG",
        "  a         5",
        "  long  12345",
    ]


def test_only_a_window_shortens() -> None:
    row = ("x" * 90 + "-the-end", "5", "note")
    assert shown(None, row)[1].split()[0] == row[0]
    lines = shown(60, row)
    assert max(map(len, lines)) == 60
    assert "…" in lines[1]
    assert "-the-end" in lines[1]


def test_colours_do_not_move_columns() -> None:
    row = ("a", Cell("5", Style.BAD), "n")
    plain, coloured = shown(None, row), shown(None, row, colours=True)
    assert "\x1b[31m5\x1b[0m" in coloured[1]
    assert coloured[1].replace("\x1b[31m", "").replace("\x1b[0m", "") == plain[1]


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert shown(None, ("a\x1b[2Jb", "1", ""))[1].split()[0] == r"a\x1b[2Jb"


def test_an_encoding_without_arrows() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    Terminal(stream, width=None, colours=False).line("a → b · █")
    assert raw.getvalue() == b"a > b - #\n"


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, "-"),
        (0, "0 ms"),
        (999, "999 ms"),
        (1500, "1.5 s"),
        (61_000, "1m 01s"),
        (3_660_000, "1h 01m"),
        (90_000_000, "1d 01h"),
    ],
)
def test_durations(ms: int | None, text: str) -> None:
    assert duration(ms) == text


def test_counts_and_shortening() -> None:
    assert (count(1, "member"), count(2000, "member")) == ("1 member", "2,000 members")
    assert shortened("abcdefghij", 7) == "abc…hij"
