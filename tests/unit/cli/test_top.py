"""`ottla top`: what the screen shows, the tables, and JSON."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
from typing import Any

import pytest
from rich.console import Console
from rich.live import Live
from typer.testing import CliRunner

from ottla.cli.main import app
from ottla.cli.top import has_screen
from ottla.cli.top_screen import TopScreen, _keys_and_signals
from ottla.client.errors import ClientError
from ottla.client.groups import GroupDescription
from ottla.client.model import Node
from ottla.ops import cluster_look
from ottla.ops.cluster_view import (
    BrokerPresence,
    BrokerRates,
    ClusterRates,
    GroupRates,
    StateChange,
    TopicRates,
)

pytestmark = pytest.mark.spec("U2")

NODE = Node(1, "127.0.0.1", 9092)


def group(name: str, lag: int | None, lag_per_s: float | None, state: str = "Stable") -> GroupRates:
    return GroupRates(GroupDescription(name, state, "consumer", "range", NODE, ()), lag, 120.0, lag_per_s)


def rates(*groups: GroupRates, topics: int = 2, group_count: int | None = None) -> ClusterRates:
    moving = GroupDescription("billing", "PreparingRebalance", "consumer", "", NODE, ())
    return ClusterRates(
        at_ms=1_796_000_000_000,
        cluster_id="abc",
        controller=1,
        brokers=[
            BrokerRates(NODE, BrokerPresence.UP, True, 3, 6, 6, 1234.4, 150_000.4, 1_500_000, None),
            BrokerRates(Node(2, "127.0.0.1", 9093), BrokerPresence.ABSENT, False, 0, 6, 0, None, None, None, None),
        ],
        topics=[TopicRates(f"topic{at}", False, 3, 2, at, 0, at * 1.5, at * 100, 10 - at) for at in range(topics)],
        groups=groups,
        group_count=len(groups) if group_count is None else group_count,
        state_changes=[StateChange(1_796_000_000_000, moving, "Stable")],
        rebalances=None,
    )


def screen_of(known: ClusterRates, width: int = 100, height: int = 20, **options: Any) -> tuple[TopScreen, Console]:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, height=height, **options)
    return TopScreen(known, console), console


def lines_of(screen: TopScreen) -> list[str]:
    return screen.draw().plain.splitlines()


def test_keys_choose_table_and_order() -> None:
    screen, _ = screen_of(rates(group("a", 5, -1.0), group("b", 70, 2.5)))
    assert lines_of(screen)[:2] == [
        "1 of 2 brokers · controller 1 · 2 topics · 2 groups · 00:53:20 UTC · cluster abc",
        "[1 brokers]  2 topics   3 groups    s: by id   q: quit",
    ]
    assert lines_of(screen)[3:] == [
        "BROKER  ADDRESS         LEADS  IN SYNC  RECORDS/S   BYTES/S    SIZE  NOTE",
        "     1  127.0.0.1:9092      3   6 of 6       1234  150.0 kB  1.5 MB  controller",
        "     2  127.0.0.1:9093      0   0 of 6          -         -       -  not there",
    ]
    screen.press("\t")
    assert lines_of(screen)[3:] == [
        "TOPIC   PARTITIONS  RECORDS/S  BYTES/S  SIZE  UNDER-REPLICATED",
        "topic1           3        1.5    100 B   9 B                 1",
        "topic0           3          0      0 B  10 B                 -",
    ]
    screen.press("3")
    assert lines_of(screen)[3:] == [
        "GROUP  STATE   MEMBERS  LAG  CONSUMED/S  LAG/S  CATCHES UP",
        "b      Stable        0   70         120   +2.5       never",
        "a      Stable        0    5         120   -1.0       5.0 s",
    ]
    screen.press("s")
    assert "s: by name" in lines_of(screen)[1]
    assert [line[0] for line in lines_of(screen)[4:]] == ["a", "b"]
    screen.press("x")
    screen.press("\t")
    assert lines_of(screen)[1].startswith("[1 brokers]")
    screen.press("3")
    assert "s: by name" in lines_of(screen)[1]


def test_it_fits_the_window() -> None:
    screen, console = screen_of(rates(topics=50), width=40, height=12)
    screen.update(rates(topics=50))
    screen.press("2")
    assert lines_of(screen)[4].startswith("topic49 ")
    assert lines_of(screen)[9:] == ["… 45 more", "", "00:53:20  billing: Stable → PreparingRebalance, 0 members"]
    with Live(screen.draw(), console=console, screen=True, auto_refresh=False) as live:
        live.update(screen.draw(), refresh=True)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    frame = shown.split("\x1b[H")[-1].split("\x1b[?25h")[0]
    assert len(frame.split("\n")) == 12
    assert frame.endswith("\n00:53:20  billing: Stable → PreparingReb")


def test_groups_that_were_not_described_are_counted() -> None:
    screen, _ = screen_of(rates(group("a", 5, None), group_count=201))
    screen.press("3")
    assert lines_of(screen)[-1] == "… 200 more"


def test_a_failure_is_shown_until_the_next_look() -> None:
    screen, _ = screen_of(rates())
    screen.fail("broker 1 cannot be reached\x1b[2J")
    assert lines_of(screen)[0] == "broker 1 cannot be reached\\x1b[2J; trying again"
    screen.update(rates())
    assert lines_of(screen)[0].startswith("1 of 2 brokers")


@pytest.mark.parametrize(("options", "is_coloured"), [({}, True), ({"no_color": True}, False)])
def test_colours(options: dict[str, bool], is_coloured: bool) -> None:
    screen, console = screen_of(rates(), **options)
    console.print(screen.draw())
    assert ("\x1b[" in console.file.getvalue()) == is_coloured  # type: ignore[attr-defined]


def test_seconds_that_are_none() -> None:
    for option in (["--timeout", "inf"], ["--interval", "nan"]):
        done = CliRunner().invoke(app, ["top", "--once", *option])
        assert (done.exit_code, f"Invalid value for '{option[0]}'" in done.stderr) == (2, True)


def test_no_cluster() -> None:
    done = CliRunner().invoke(app, ["top", "-b", "127.0.0.1:1", "--timeout", "1"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("ottla top: ")


class ScriptedLooks:
    """Looks that succeed or fail, one after the other, and Ctrl-C at their end."""

    def __init__(self, *found: ClusterRates | ClientError) -> None:
        self._found = iter(found)

    async def next(self) -> ClusterRates:
        found = next(self._found, None)
        if found is None:
            raise KeyboardInterrupt
        if isinstance(found, ClientError):
            raise found
        return found


def test_json_of_each_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that is away is reported once, and waited for."""
    away, there = ClientError("it is away"), rates(group("a", 5, -1.0))
    monkeypatch.setattr(cluster_look, "ClusterLooks", lambda cluster: ScriptedLooks(there, away, away, there))
    done = CliRunner().invoke(app, ["top", "--json", "--interval", "0.1"])
    assert (done.exit_code, done.stderr) == (130, "ottla top: it is away; trying again\n")
    first, second = map(json.loads, done.stdout.splitlines())
    assert first == second
    assert first["groups"] == [
        {
            "group": "a", "state": "Stable", "member_count": 0, "coordinator": 1, "lag": 5, "consumed_per_s": 120.0,
            "lag_per_s": -1.0, "catch_up_ms": 5000.0,
        }
    ]  # fmt: skip
    assert first["state_changes"] == [{"group": "billing", "before": "Stable", "state": "PreparingRebalance"}]
    assert [each["state"] for each in first["brokers"]] == ["up", "not there"]


def test_a_terminal_without_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdout", terminal)
    for name, expected in (("dumb", False), ("xterm", True)):
        monkeypatch.setenv("TERM", name)
        assert has_screen() is expected


def test_the_terminal_is_as_before_after_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    termios = pytest.importorskip("termios")
    leader, follower = os.openpty()

    async def press() -> list[str]:
        pressed: asyncio.Queue[str] = asyncio.Queue()
        handlers = {"SIGHUP": lambda: pressed.put_nowait("hung up")}
        with _keys_and_signals(asyncio.get_running_loop(), pressed.put_nowait, handlers):
            os.write(leader, b"\x1as")  # Ctrl-Z does not stop the process
            keys = [await pressed.get()]
            os.kill(os.getpid(), signal.SIGHUP)
            return [*keys, await pressed.get()]

    with open(leader, "rb", buffering=0), open(follower, encoding="utf-8") as keyboard:
        monkeypatch.setattr("sys.stdin", keyboard)
        before = termios.tcgetattr(follower)
        assert asyncio.run(press()) == ["\x1as", "hung up"]
        assert termios.tcgetattr(follower) == before
