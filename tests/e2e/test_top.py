"""`ottla top`, once and in a terminal."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

from ottla.cli.main import app
from ottla.client.sync import Consumer
from ottla.testing import Broker
from support.screen import Screen, drawn
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.spec("U2", "G10")]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"orders": 2}, settings={"group.initial.rebalance.delay.ms": 0}) as broker:
        yield broker


def top(broker: Broker, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["top", "--interval", "0.1", "-b", broker.bootstrap_servers, *arguments])


def test_once(broker: Broker) -> None:
    """Also where no terminal is."""
    broker.send("orders", b"record")
    for arguments in ((), ("--once",)):
        done = top(broker, *arguments)
        assert (done.exit_code, done.stderr) == (0, "")
        head, _, brokers, _, _, topics, *rest = done.stdout.splitlines()
        assert head.startswith("1 broker · controller ")
        assert (brokers.split()[:3], topics.split()[:3]) == (
            ["BROKER", "ADDRESS", "LEADS"],
            ["TOPIC", "PARTITIONS", "RECORDS/S"],
        )
        assert [line.split()[:3] for line in rest if line.startswith("orders")] == [["orders", "2", "0"]]


def test_json(broker: Broker) -> None:
    done = top(broker, "--once", "--json")
    [row] = map(json.loads, done.stdout.splitlines())
    assert [(each["state"], each["is_controller"], each["records_per_s"]) for each in row["brokers"]] == [
        ("up", True, 0)
    ]
    [orders] = [each for each in row["topics"] if each["topic"] == "orders"]
    assert (orders["partitions"], orders["records_per_s"], orders["under_replicated"]) == (2, 0, 0)
    assert row["group_count"] == len(row["groups"])


def member(broker: Broker) -> Consumer:
    servers = broker.bootstrap_servers
    consumer = Consumer(bootstrap_servers=servers, group_id="g", client_id="anna", auto_offset_reset="earliest")
    consumer.subscribe(["orders"])
    return consumer


def wait_for(screen: Screen, text: str) -> None:
    wait_until(lambda: text in screen.text, lambda: f"{text!r} in {screen.text[-3000:]!r}")


def screen_command(broker: Broker) -> list[str]:
    return [sys.executable, "-m", "ottla", "top", "--interval", "0.1", "-b", broker.bootstrap_servers]


def test_in_a_terminal(broker: Broker) -> None:
    """Keys, a rebalance with its cause, another window, q; the terminal is as it was before."""
    with drawn(*screen_command(broker)) as screen:
        wait_for(screen, "[1 brokers]")
        assert screen.drawn.startswith(b"\x1b[?1049h")
        assert not screen.echoes
        screen.press("\x1b[B")  # an arrow
        screen.press("3")
        wait_for(screen, "[3 groups]")
        with member(broker) as anna:
            wait_until(
                lambda: anna.poll(50) is not None and "anna (127.0.0.1) joined, longest" in screen.text, "the rebalance"
            )
            wait_for(screen, "g Stable 1")
        screen.resize(10, 40)
        screen.signal(signal.SIGWINCH)
        wait_until(lambda: b"[3 groups]" in screen.drawn, "a frame")
        wait_until(lambda: screen.display.rows[1].startswith(" 1 brokers   2 topics  [3 groups]"), "the narrow window")
        assert screen.display.rows[3].split()[:2] == ["GROUP", "STATE"]
        assert screen.display.screen.cursor.hidden
        screen.press("q")
        assert screen.wait() == 0
        wait_until(lambda: screen.drawn.endswith(b"\x1b[?1049l"), "the end")
        assert b"\x1b[2J" not in screen.drawn
        assert screen.echoes
        assert not screen.display.screen.cursor.hidden


def test_ctrl_c_and_no_color(broker: Broker) -> None:
    with drawn(*screen_command(broker), NO_COLOR="1") as screen:
        wait_for(screen, "[1 brokers]")
        assert b"\x1b[1m" not in screen.drawn
        screen.signal(signal.SIGINT)
        assert screen.wait() == 130
        wait_until(lambda: screen.drawn.endswith(b"\x1b[?1049l"), "the end")
        assert screen.echoes
        assert not screen.display.screen.cursor.hidden
        assert "Traceback" not in screen.text
