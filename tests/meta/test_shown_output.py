"""The comparison of what a page of the documentation shows with what a command prints."""

from __future__ import annotations

import pytest

from support.terminal import matches


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("a\n…\nz", "a\nb\nc\nz"),
        ("a\n…\nz", "a\nz"),
        ("…", "x\ny"),
        ("a\n…", "a\nb"),
        ("ready in 0.24 s: broker …", "ready in 1.5 s: broker 1 listening"),
        ("at 2026-11-22 19:22:08.138 UTC", "at 2027-01-02 03:04:05.678 UTC"),
        ("1,001 rows in 4.21 s, … rows/s", "1,001 rows in 1.2 min, 14 rows/s"),
        ("took 0 ms", "took 1,234 ms"),
        ("2 s ago", "1m 05s ago"),
        ("2 s ago", "1h 02m ago"),
        ("2 s ago", "2d 03h ago"),
        ("took 4.21 s", "took 1.5 h"),
        ("1 passed in 0.21s", "1 passed in 61.23s (0:01:01)"),
        ("a  \n", "a"),
    ],
)
def test_what_differs_from_run_to_run_is_equal(shown: str, printed: str) -> None:
    assert matches(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("a", "b"),
        ("a", "a\nb"),
        ("a … c", "a\nc"),
        ("a\n…\nz", "a\nb"),
        ("1,001 rows in 4.21 s", "1,002 rows in 4.21 s"),
        ("key 1 d", "key 2 d"),
    ],
)
def test_anything_else_is_not(shown: str, printed: str) -> None:
    assert not matches(shown, printed)


@pytest.mark.timeout(20)
def test_a_long_text_that_differs_is_told_at_once() -> None:
    lines = "\n".join("x" * 200 for _ in range(200))
    assert not matches("first\n…\nmiddle\n…\nlast", f"first\n{lines}\nmiddle\n{lines}\nother")
