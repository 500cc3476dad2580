"""Placement is that of Apache Kafka 3.9.1: 1,000 seeded random cases against its `AdminUtils.assignReplicasToBrokers`.

`placement.jsonl` is what `Placement.java` prints for these cases, a line each; `OTTLA_RECORD=1` records it again.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.cluster.placement import BrokerRack, assign_replicas
from ottla.cluster.refusal import TopicRefusal
from support.java import java_tool

RECORDED = Path(__file__).with_name("placement.jsonl")
PROGRAM = Path(__file__).with_name("Placement.java")
SEED = 39_1
CASES = 1_000
#: Java sorts the fourth before the third.
RACKS = ("rack1", "rack2", "\uff52", "\U0001f5c4", "", "a", "B", "rack10", "zone-z")

pytestmark = pytest.mark.spec("R4")


def cases() -> Iterator[dict[str, Any]]:
    """Brokers with and without racks, fixed starts and random ones, new topics and added partitions, bad counts."""
    chance = random.Random(SEED)
    for _ in range(CASES):
        count = chance.choice((1, 2, 3, 3, 4, 5, 6, 7, 9, 12))
        ids = sorted(chance.sample(range(20), count))
        kind = chance.random()
        names = chance.sample(RACKS, chance.randint(1, min(count, len(RACKS))))
        racks = [chance.choice(names) if kind > 0.4 else None for _ in ids]
        if kind > 0.95 and count > 1:
            racks[chance.randrange(count)] = None
        yield {
            "brokers": [list(each) for each in zip(ids, racks, strict=True)],
            "partitions": chance.choice((0, -1)) if chance.random() < 0.02 else chance.randint(1, 14),
            "factor": chance.choice((0, -1, count + 1)) if chance.random() < 0.04 else chance.randint(1, min(count, 5)),
            "fixed": chance.choice((-1, -1, -1, 0, chance.randrange(count), 30)),
            "first": chance.choice((-1, 0, chance.randrange(20))),
            "seed": chance.getrandbits(40),
        }


def recorded() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RECORDED.read_text().splitlines()]


@pytest.mark.needs_kafka
def test_the_recorded_placements_are_kafkas() -> None:
    lines = "".join(f"{json.dumps(case)}\n" for case in cases())
    told = java_tool(str(PROGRAM), stdin=lines).stdout
    if os.environ.get("OTTLA_RECORD"):
        RECORDED.write_text(told)
    assert told == RECORDED.read_text()


def test_replicas_go_where_kafka_puts_them() -> None:
    refused = 0
    for case, told in zip(cases(), recorded(), strict=True):
        result = assign_replicas(
            [BrokerRack(broker, rack) for broker, rack in case["brokers"]],
            case["partitions"],
            case["factor"],
            start=told.get("start", 0),
            shift=told.get("shift", 0),
            first_partition=max(0, case["first"]),
        )
        if "error" in told:
            refused += 1
            assert isinstance(result, TopicRefusal), case
            assert result.message == told["message"]
            # For brokers without racks among others Apache Kafka has no error code, and answers UNKNOWN_SERVER_ERROR.
            if told["error"] != "AdminOperationException":
                assert f"{result.error.name.title().replace('_', '')}Exception" == told["error"]
            continue
        first = max(0, case["first"])
        assert result == {first + place: tuple(replicas) for place, replicas in enumerate(told["replicas"])}, case
    assert 40 < refused < 150
