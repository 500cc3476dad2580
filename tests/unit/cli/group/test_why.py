"""A rebalance for people."""

from __future__ import annotations

import io
import json
from typing import Any

from ottla.cli.group.why import MEMBERS_SHOWN, show_rebalance
from ottla.cli.terminal import Terminal
from ottla.ops.rebalances import parse_rebalance

START = 1_000_000


def who(name: str, number: int, **more: Any) -> dict[str, Any]:
    return {
        "member_id": f"{name}-{number:06}",
        "group_instance_id": None,
        "client_id": name,
        "client_host": "/10.0.0.7",
        **more,
    }


def member(name: str, number: int, *times: int | None, pause: int = 0) -> dict[str, Any]:
    names = ("told_at_ms", "joined_at_ms", "synced_at_ms", "answered_at_ms")
    counts = dict.fromkeys(("before", "after", "kept", "gained", "given_up"), 2)
    at = {key: None if each is None else START + each for key, each in zip(names, times, strict=True)}
    return who(name, number, **at, pause_ms=pause, **{f"partitions_{key}": value for key, value in counts.items()})


def told(**changes: Any) -> dict[str, Any]:
    moves = [("t", index, "anna-000001", "ben-000002") for index in (4, 0, 1, 2)] + [("u", 7, None, "ben-000002")]
    return {
        "group": "g",
        "generation": 3,
        "previous_generation": 2,
        "outcome": "stable",
        "assignor": "range",
        "started_at_ms": START,
        "joined_at_ms": START + 100,
        "stable_at_ms": START + 200,
        "duration_ms": 240,
        "causes": [
            who("ben", 2, cause="member_joined", at_ms=START, detail=None),
            who("cleo", 3, cause="member_left", at_ms=START + 50, detail="the consumer is being closed"),
        ],
        "cause_count": 2,
        "leader": "anna-000001",
        "members": [member("anna", 1, 40, 100, 120, 200, pause=160), member("ben", 2, None, 0, 110, 200, pause=200)],
        "member_count": 2,
        "removed": [who("cleo", 3, cause="member_left")],
        "moved": [dict(zip(("topic", "partition", "from", "to"), each, strict=True)) for each in moves],
        "moved_count": 4,
        "kept_count": 6,
    } | changes


def shown(width: int | None = None, **changes: Any) -> list[str]:
    stream = io.StringIO()
    record = parse_rebalance(json.dumps(told(**changes)).encode())
    assert record is not None
    show_rebalance(Terminal(stream, width=width, colours=False), record)
    return stream.getvalue().splitlines()


def test_the_whole_story() -> None:
    assert shown() == [
        "g  generation 2 → 3  stable  1970-01-01 00:16:40.000 UTC  took 240 ms",
        "  why    ben (10.0.0.7) joined",
        "         cleo (10.0.0.7) left, 50 ms later: the consumer is being closed",
        "  how    2 members, range, led by anna, all joined after 100 ms, assigned after 200 ms",
        "  moved  of the partitions 6 stayed, 4 changed hands, 1 found an owner",
        "         u  7      no owner  →  ben",
        "         t  0-2,4  anna      →  ben",
        "  gone   cleo (member left)",
        "  MEMBER  HOST       PAUSE  HAD  KEPT  GAINED  GAVE UP  HAS  TIMELINE",
        "  ben     10.0.0.7  200 ms    2     2       2        2    2  ▒▒▒▒▒▒▒▒▒▒▒██████████···",
        "  anna    10.0.0.7  160 ms    2     2       2        2    2  ····░░░░░░▒▒█████████···",
    ]


def test_members_of_one_client_id_are_distinguished() -> None:
    twins = [member("anna", 1, 0, 0, 0, 0), member("anna", 2, 0, 0, 0, 0)]
    lines = shown(members=twins, causes=[], removed=[], moved=[])
    assert [line.split()[0] for line in lines[-2:]] == ["anna·000001", "anna·000002"]


def test_what_did_not_come_to_an_assignment() -> None:
    waiting = {**member("anna", 1, None, 5, None, None), "partitions_after": None, "pause_ms": None}
    lines = shown(
        outcome="superseded", joined_at_ms=None, stable_at_ms=None, assignor=None, leader=None, members=[waiting]
    )
    assert not any("moved" in line for line in lines)
    assert lines[-2].split() == ["MEMBER", "HOST", "HAD", "KEPT", "GAINED", "GAVE", "UP", "TIMELINE"]
    assert lines[-1].split() == ["anna", "10.0.0.7", "2", "2", "2", "2", "▒" * 24]


def test_it_fits_a_window_of_100_columns() -> None:
    people = [member(f"consumer-of-{'orders-' * 9}{at}", at, 0, 1, 2, 3) for at in range(40)]
    lines = shown(100, members=people, member_count=40, causes=[], removed=[])
    table = lines[lines.index(next(line for line in lines if "MEMBER" in line)) :]
    assert max(map(len, table)) <= 100
    assert len(table) == 1 + MEMBERS_SHOWN + 1
    assert table[-1].startswith("  and 20 more members")


def test_many_moves_and_causes_are_cut() -> None:
    moves = [{"topic": f"t{at}", "partition": 0, "from": "a", "to": "b"} for at in range(30)]
    causes = [who("c", at, cause="member_joined", at_ms=START, detail=None) for at in range(12)]
    lines = shown(moved=moves, causes=causes, cause_count=900)
    assert "         and 18 more moves (--json has all)" in lines
    assert "         and 892 more causes" in lines


def test_clients_cannot_write_to_the_terminal() -> None:
    evil = who("e\x1b[2J", 9, cause="member_joined", at_ms=START, detail="\x1b]0;x\x07")
    assert not any("\x1b" in line or "\x07" in line for line in shown(causes=[evil], removed=[], members=[]))
