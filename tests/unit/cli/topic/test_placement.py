"""`ottla topic create --validate-only` shows where the replicas would be."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner, Result

from ottla.cli.main import app
from ottla.client.admin.model import CreatedTopic, NewTopic
from ottla.ops.new_topics import placement_of
from ottla.peer.model import Node
from ottla.testing import Broker

pytestmark = pytest.mark.spec("R4", "U2")


def nodes(*racks: str | None) -> dict[int, Node]:
    return {number: Node(number, "h", 1, rack) for number, rack in enumerate(racks)}


def test_start_and_shift_of_0() -> None:
    placed = placement_of(nodes(None, None, None), NewTopic("t", 4, 2), CreatedTopic("t"))
    assert [each.replicas for each in placed] == [(0, 1), (1, 2), (2, 0), (0, 2)], "the shift grows after each round"


def test_defaults_come_from_the_answer() -> None:
    by_default = NewTopic("t")
    assert len(placement_of(nodes("a", "b"), by_default, CreatedTopic("t", None, 5, 2))) == 5
    assert placement_of(nodes("a", "b"), by_default, CreatedTopic("t")) == [], "an older controller does not say them"


def test_racks_alternate() -> None:
    (placed,) = placement_of(nodes("a", "a", "b"), NewTopic("t", 1, 2), CreatedTopic("t"))
    assert (placed.replicas, placed.racks) == ((0, 2), ("a", "b"))


def test_the_command() -> None:
    with Broker() as broker:

        def create(*arguments: str) -> Result:
            server = ["-b", broker.bootstrap_servers]
            return CliRunner().invoke(app, ["topic", "create", "t", "--validate-only", *arguments, *server])

        done = create("-p", "2")
        lines = [line.split() for line in done.stdout.splitlines()]
        assert (done.exit_code, lines[:2]) == (0, [["valid:", "t"], ["PARTITION", "LEADER", "REPLICAS"]])
        leader = lines[2][1]
        assert lines[2:4] == [["0", leader, leader], ["1", leader, leader]]
        assert "draws both at random" in done.stdout
        done = create("--replica-assignment", leader)
        assert "random" not in done.stdout
        row = json.loads(create("--json").stdout)
        placement = {"partition": 0, "replicas": [int(leader)], "racks": [None]}
        assert row == {"topic": "t", "created": False, "valid": True, "placement": [placement]}
