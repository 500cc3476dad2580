"""A cluster on this machine as it is shown while it runs."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from ottla.cli.cluster.screen import (
    PlainClusterScreen,
    RichClusterScreen,
    ShownBroker,
    ShownCluster,
    make_cluster_screen,
)

RUNNING = ShownBroker(0, "127.0.0.1:9092", 4711, "running", True, 3, 6, 5)
ENDED = ShownBroker(1, "127.0.0.1:9093", 4712, "was killed by SIGKILL")
STATE = ShownCluster((RUNNING, ENDED), 2, 6, "1 under-replicated")


def test_in_a_pipe_a_line_for_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    screen = make_cluster_screen([])
    assert isinstance(screen, PlainClusterScreen)
    with screen:
        screen.say("ready")
        for state in (STATE, STATE, ShownCluster((RUNNING, ENDED))):
            screen.show(state)
    assert [re.sub(r"^ +[\d.]+ s  ", "", line) for line in capsys.readouterr().out.splitlines()] == [
        "ready",
        "controller 0, 2 topics, 6 partitions: 1 under-replicated",
        "no broker answers",
    ]


def test_on_a_terminal_a_table() -> None:
    screen = RichClusterScreen(["Ctrl-C stops all"])
    stream = io.StringIO()
    Console(file=stream, width=100).print(screen.table(STATE))
    shown = stream.getvalue()
    for part in (
        "controller 0, 2 topics",
        "running, controller",
        "127.0.0.1:9093",
        "was killed by SIGKILL",
        "5 of 6",
        "Ctrl-C",
    ):
        assert part in shown


def test_lines_above_the_table_leave_its_colours_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    screen = RichClusterScreen(["[x] stops all"])
    with screen:
        screen.show(STATE)
        screen.say("broker [bold]1[/] was killed")
    shown = capsys.readouterr().out
    assert "[green]" not in shown
    assert "[bold red]" not in shown
    assert "broker [bold]1[/] was killed" in shown
    assert "[x] stops all" in shown
