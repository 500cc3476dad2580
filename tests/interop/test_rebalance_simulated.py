"""`ottla rebalance simulate` asks live groups of any broker, and foretells what real members then do."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from support.brokers import RunningBroker
from support.processes import run_tool
from support.waiting import wait_until

pytestmark = pytest.mark.slow

PARTITIONS = 7
TIMEOUT_S = 60.0


@pytest.fixture
def topic(broker: RunningBroker, unique: str) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(unique, PARTITIONS, 1)])[unique].result(TIMEOUT_S)
    return unique


@pytest.fixture
def join(broker: RunningBroker, topic: str) -> Iterator[Callable[[str], Consumer]]:
    members: list[Consumer] = []

    def make(assignor: str) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": topic,
                "partition.assignment.strategy": assignor,
                "heartbeat.interval.ms": 500,
                "session.timeout.ms": 6_000,
            }
        )
        consumer.subscribe([topic])
        members.append(consumer)
        return consumer

    yield make
    for member in members:
        member.close()


def settled(members: list[Consumer], shares: list[int]) -> bool:
    for member in members:
        member.poll(0.05)
    return sorted(len(member.assignment()) for member in members) == sorted(shares)


def simulate(broker: RunningBroker, *arguments: str, check: bool = True) -> Any:
    command = [sys.executable, "-m", "ottla", "rebalance", "simulate", "-b", broker.bootstrap, *arguments]
    return run_tool(command, check=check)


def owned(member: Consumer) -> set[int]:
    assignment: list[TopicPartition] = member.assignment()
    return {one.partition for one in assignment}


@pytest.mark.spec("A4")
def test_what_a_live_group_would_do(
    broker: RunningBroker, topic: str, join: Callable[[str], Consumer], tmp_path: Path
) -> None:
    members = [join("cooperative-sticky"), join("cooperative-sticky")]
    wait_until(lambda: settled(members, [3, 4]), "two members")
    told = simulate(broker, "-g", topic, "-a", "cooperative-sticky", "--add", "1", "--format", "json")
    simulated = json.loads(told.stdout)
    assert simulated["rebalances"] == 2
    assert (simulated["kept"], simulated["moved"], simulated["paused"]) == (5, 2, 2)
    before = [owned(member) for member in members]
    saved = tmp_path / "group.json"
    simulate(broker, "-g", topic, "--save", str(saved))
    assert {len(one["owned"][topic]) for one in json.loads(saved.read_text())["members"].values()} == {3, 4}
    members.append(join("cooperative-sticky"))
    wait_until(lambda: settled(members, [2, 2, 3]), "three members")
    kept = sum(len(was & owned(member)) for was, member in zip(before, members, strict=False))
    assert kept == simulated["kept"], "the real group kept as many as was foretold"


def test_groups_that_cannot_be_asked(broker: RunningBroker, topic: str) -> None:
    done = simulate(broker, "-g", f"{topic}-none", check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"ottla rebalance: group {topic}-none has no members (state Dead)")
