"""Plain lines, for where there is no terminal."""

from __future__ import annotations

import pytest

from ottla.cli import demo_screen as screen
from ottla.cli.demo_screen import PlainScreen, RichScreen, make_screen


def test_progress_is_reported_now_and_then_and_when_a_task_is_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screen, "PLAIN_INTERVAL_S", 1e9)
    with PlainScreen() as plain:
        plain.progress("load", 1_000, 5_000)
        plain.progress("load", 2_000, 5_000)
        plain.say("hello")
        plain.progress("load", 5_000, 5_000)
        plain.progress("load", 5_000, 5_000)
    lines = [line.split(" s  ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert lines == ["hello", "load 5,000/5,000"]


def test_what_was_not_reported_is_reported_at_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screen, "PLAIN_INTERVAL_S", 1e9)
    with PlainScreen() as plain:
        plain.progress("load", 1, 5)
        plain.progress("other", 0, 2)
    assert capsys.readouterr().out.endswith("load 1/5   other 0/2\n")


def test_a_table_is_one_line_per_row(capsys: pytest.CaptureFixture[str]) -> None:
    PlainScreen().table("Checks", [("ok", "equal", "yes"), ("FAILED", "there", "no"), ("", "events", "5")])
    assert capsys.readouterr().out == "Checks\n  ok      equal: yes\n  FAILED  there: no\n  events: 5\n"


def test_bars_take_any_text(capsys: pytest.CaptureFixture[str]) -> None:
    with RichScreen() as rich:
        rich.progress("load", 1, 2)
        rich.progress("load", 2, 2)
        rich.say("[red]not markup[/]")
        rich.table("T", [("ok", "[a]", "[/b]")])
    told = capsys.readouterr().out
    assert "[red]not markup[/]" in told
    assert "[a]" in told
    assert "2/2" in told


def test_without_a_terminal_lines_are_plain() -> None:
    assert isinstance(make_screen(), PlainScreen)
