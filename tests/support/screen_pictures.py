"""Recorded screens: `top`, `group why` and `rebalance simulate` over a group that the simulator plays."""

from __future__ import annotations

import io
import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from rich.console import Console
from typer.testing import CliRunner

from ottla.cli.group.why import LEGEND, show_rebalance
from ottla.cli.main import app
from ottla.cli.terminal import Terminal
from ottla.cli.top_screen import TopScreen
from ottla.client.groups import GroupDescription, GroupMember
from ottla.client.model import Node
from ottla.groups.classic.group import GroupLimits
from ottla.groups.events import Step
from ottla.groups.evidence import Evidence
from ottla.ops.cluster_view import BrokerPresence, BrokerRates, ClusterRates, GroupRates, TopicRates
from ottla.ops.rebalances import RebalanceRecord, parse_rebalance
from ottla.rebalance.scripted_group import ScriptedGroup
from ottla.sim.group_coordinator import SimulatedCoordinator
from support.pictures import terminal_picture

WIDTH: Final = 104
START_MS: Final = 1_796_000_000_000
BROKERS: Final = [Node(number, f"broker-{number}", 9092) for number in (1, 2, 3)]


class _Recording(SimulatedCoordinator):
    """Keeps the evidence that the group's state machine gives."""

    evidence: list[Evidence]

    def _carry_out(self, step: Step, now_ms: int) -> None:
        super()._carry_out(step, now_ms)
        self.evidence.extend(step.notes)


class _Group(ScriptedGroup):
    """A group of orders whose members answer at once."""

    def __init__(self) -> None:
        super().__init__("orders", 6)
        self.now_ms = START_MS
        self._coordinator = self.recording = _Recording(GroupLimits(initial_rebalance_delay_ms=0), self._answered)
        self.recording.evidence = []


@cache
def rebalance() -> RebalanceRecord:
    """Three members, of which one is slow to join again when the third comes."""
    group = _Group()
    group.join("anna")
    group.sync("anna")
    group.join("ben")
    group.rejoin("anna")
    group.sync("ben")
    group.wait(5_000)
    group.join("cleo")
    group.wait(200)
    group.heartbeat("ben")
    group.join("ben")
    group.wait(900)
    group.heartbeat("anna")
    group.wait(400)
    group.join("anna")
    group.wait(40)
    group.sync("ben", "cleo", "anna")
    last = parse_rebalance(group.recording.evidence[-1].encode())
    assert last is not None
    return RebalanceRecord({**last.value, "group": "billing"})


def why() -> str:
    """`ottla group why`."""
    stream = io.StringIO()
    terminal = Terminal(stream, width=WIDTH, colours=True)
    show_rebalance(terminal, rebalance())
    terminal.line()
    terminal.line(LEGEND)
    return terminal_picture("ottla group why billing -n 1", stream.getvalue())


def top() -> str:
    """`ottla top`, with the table of groups."""
    console = Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=WIDTH, height=20)
    screen = TopScreen(_rates(), console)
    screen.update(_rates())
    screen.press("3")
    return terminal_picture("ottla top", screen.draw())


def _rates() -> ClusterRates:
    def group(name: str, members: int, lag: int, consumed: float, trend: float, state: str = "Stable") -> GroupRates:
        people = tuple(GroupMember(f"{name}-{at}", None, name, "/127.0.0.1", (), ()) for at in range(members))
        one = GroupDescription(name, state, "consumer", "range", BROKERS[0], people)
        return GroupRates(one, lag, consumed, trend)

    up = BrokerPresence.UP
    return ClusterRates(
        START_MS + 8_000,
        "q1Nn0UvKQ2u3nC5PqR0xzA",
        1,
        [BrokerRates(each, up, each.node_id == 1, 8, 24, 24, 410.0, 96_000.0, 96_000_000, None) for each in BROKERS],
        [TopicRates(name, False, 6, 3, 0, 0, 615.0, 144_000.0, 144_000_000) for name in ("orders", "payments")],
        [
            group("archive", 2, 48_210, 2_350.0, -1_120.0),
            group("billing", 3, 1_204, 618.0, -96.0),
            group("fraud", 1, 912, 540.0, 74.5),
            group("reports", 0, 0, 0.0, 0.0, "Empty"),
        ],
        4,
        (),
        [rebalance()],
    )


def simulate() -> str:
    """`ottla rebalance simulate`."""
    group = {"topics": {"orders": 4, "payments": 4}, "members": ["c1", "c2", "c3"]}
    options = ["--remove", "c2", "-a", "range", "-a", "cooperative-sticky"]
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "group.json")
        file.write_text(json.dumps(group))
        done = CliRunner().invoke(app, ["rebalance", "simulate", "--file", str(file), *options])
    assert done.exit_code == 0, done.output
    return terminal_picture(f"ottla rebalance simulate --file group.json {' '.join(options)}", done.stdout)


#: Picture to what draws it.
SCREENS: Final = {"top": top, "group-why": why, "rebalance-simulate": simulate}
