"""Commands in the window of a pseudo terminal: narrow ones, colours, and lines of progress that are taken away."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli import progress
from ottla.cli.main import app
from ottla.client.sync import Consumer
from ottla.testing import Broker
from support.screen import Display, window
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.spec("U2")]

RECORDS = 400


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"orders": 2}, settings={"group.initial.rebalance.delay.ms": 0}) as broker:
        for number in range(RECORDS):
            broker.send("orders", b"order %d" % number)
        yield broker


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


def shown(*arguments: str, columns: int, code: int = 0) -> Display:
    """The window after a command, which must end with this code."""
    with pytest.MonkeyPatch.context() as patch, window(60, columns) as (stream, display):
        for name in ("stdout", "stderr", "__stdout__"):
            patch.setattr(sys, name, stream)
        with pytest.raises(SystemExit) as end:
            app(arguments)
        assert end.value.code in (code, None if code == 0 else code)
    return display


def painted(display: Display) -> set[str]:
    """The colours of the window."""
    return {cell.fg for row in display.screen.buffer.values() for cell in row.values()} - {"default"}


def squeezed(rows: list[str]) -> str:
    """The text of lines, wherever they are wrapped."""
    return "".join("".join(rows).split())


def test_why(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """In colour; without where NO_COLOR is set; in a window of 40 columns lines are wrapped."""
    with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g", client_id="anna") as anna:
        anna.subscribe(["orders"])
        wait_until(lambda: anna.poll(50) is not None and len(anna.assignment()) == 2, "the assignment")
        broker.wait_for_records("__ottla_rebalances", 1)
        command = ("group", "why", "g", "-n", "1", "-b", broker.bootstrap_servers)
        wide, narrow = shown(*command, columns=120), shown(*command, columns=40)
        monkeypatch.setenv("NO_COLOR", "1")
        plain = shown(*command, columns=120)
    assert wide.rows[0].startswith("g  generation ")
    assert plain.rows == wide.rows
    assert painted(plain) == set()
    assert "green" in painted(wide)
    assert b"\x1b[" not in plain.drawn
    assert squeezed(narrow.rows).startswith(squeezed(wide.rows[:3]))
    assert "MEMBER" in squeezed(narrow.rows)


def test_simulate_in_a_narrow_window(tmp_path: Path) -> None:
    file = tmp_path / "group.json"
    file.write_text(json.dumps({"topics": {"orders": 4}, "members": ["c1", "c2"]}))
    display = shown("rebalance", "simulate", "--file", str(file), "--add", "1", "-a", "range", columns=40)
    assert display.rows[0].startswith("assignor  protocol  rebalances  kept")
    assert max(map(len, display.rows)) <= 40
    assert "■ kept  ▣ gained  □ revoked" in display.rows


@pytest.mark.parametrize("columns", [100, 20])
def test_progress_is_taken_away(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """Also in a window that is narrower than the line of progress."""
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    servers = broker.bootstrap_servers
    found = shown("search", "orders", "nothing like it", "-b", servers, columns=columns, code=1)
    assert b"\r\x1b[K" in found.drawn
    last = f"ottla search: 0 records found, {RECORDS} of {RECORDS} offsets (100%) read"
    assert found.rows[: -(-len(last) // columns)] == [row.rstrip() for row in re.findall(f".{{1,{columns}}}", last)]
    assert not any(found.rows[-(-len(last) // columns) :])
    file = str(tmp_path / "orders.parquet")
    done = shown("consume", "orders", "--from", "beginning", "--exit", "--to", file, "-b", servers, columns=columns)
    assert f"{RECORDS} records read"[: columns - 1].encode() in done.drawn
    assert not any("records read" in row for row in done.rows[1:])
    assert Path(file).stat().st_size > 0
