"""The transcripts played to Apache Kafka's newer coordinator: where it differs from the classic one is known.

This is about Apache Kafka alone; it keeps the table of docs/decisions/0034-which-coordinator.md true.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from interop.both_brokers import made, topic_id_when_usable
from interop.groups.brokers import IN_TURN, SETTINGS
from interop.groups.player import TOPICS, Player, connector
from interop.groups.test_group_pairs import SCENARIOS
from interop.groups.transcript import Scenario, Step
from interop.raw import RawConnection
from interop.wire_json import Definitions
from support.apache import ApacheKafka
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.long, pytest.mark.timeout(600)]

PLAYERS = 10
UNSUPPORTED_VERSION = 35
#: What DescribeGroups tells of a member's assignment, which the newer coordinator keeps while the group rebalances.
ASSIGNMENT = re.compile(r"(?:\([a-z,]*\))?=[^ \]]+|\([a-z,]*\)")
#: Scenarios that end otherwise there: with a partition that is named twice, with an empty group that is left without
#: offsets, with a member for which there is no room.
DIFFERENT = {
    "forgotten_offsets-offsets-of-topics-that-are-subscribed-to-or-not",
    "forgotten_offsets-offsets-in-every-state-of-a-group",
    "forgotten_offsets-offsets-of-a-group-of-another-protocol",
    "forgotten_offsets-offsets-of-a-group-without-members",
    "forgotten_offsets-offsets-of-partitions-and-topics-that-are-not-there",
    "forgotten_offsets-an-id-that-was-handed-out-does-not-keep-a-group-whose-offsets-are-gone",
    "forgotten_offsets-an-empty-group-without-offsets-ends-whatever-is-forgotten",
    "sizes-five-join-while-the-group-rebalances",
    "sizes-ids-that-are-handed-out-count",
}


class CarelessPlayer(Player):
    """A player that does not look at assignments in descriptions."""

    def look(self) -> tuple[list[str], str]:
        answers, state = super().look()
        return answers, without_assignments(state)


def without_assignments(line: str) -> str:
    return ASSIGNMENT.sub("", line) if line.startswith("[") else line


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory, definitions: Definitions) -> Iterator[ApacheKafka]:
    """Apache Kafka in KRaft mode with the newer coordinator, and the topics of the transcripts."""
    protocols = {"group.coordinator.rebalance.protocols": "classic,consumer"}
    kafka = ApacheKafka(
        tmp_path_factory.mktemp("newer"), zookeeper=None, overrides={**SETTINGS, **IN_TURN, **protocols}
    )
    try:
        kafka.start()
        with RawConnection(kafka.bootstrap, definitions) as connection:
            for name in TOPICS:
                topic = {"name": name, "num_partitions": 2, "replication_factor": 1, "configs": []}
                wait_until(lambda topic=topic: made(connection, topic), f"topic {name}")
                topic_id_when_usable(connection, name, 2)
        yield kafka
    finally:
        kafka.stop()


def test_it_differs_where_we_say_so(newer: ApacheKafka, definitions: Definitions) -> None:
    def surprise(scenario: Scenario) -> str | None:
        opened: list[RawConnection] = []
        try:
            player = CarelessPlayer(connector(newer.bootstrap, definitions, opened), scenario.name)
            for step in scenario.steps:
                expected = [without_assignments(line) for line in step.expected("kafka")]
                found = player.play(Step(step.command, step.line, expected), "kafka")
                if sorted(found) != sorted(expected):
                    return f"line {step.line + 1}, {step.command}: {found}, and not {expected}"
        finally:
            for connection in opened:
                connection.close()
        return None

    with ThreadPoolExecutor(PLAYERS) as pool:
        ends = dict(zip([one.name for one in SCENARIOS], pool.map(surprise, SCENARIOS), strict=True))
    unexpected = {name: end for name, end in ends.items() if (end is not None) != (name in DIFFERENT)}
    assert unexpected == {}


def test_it_has_nowhere_to_keep_the_offsets_of_the_first_version(newer: ApacheKafka, definitions: Definitions) -> None:
    at = {"partition_index": 0, "committed_offset": 1, "committed_metadata": None}
    with RawConnection(newer.bootstrap, definitions) as connection:
        topics = [{"name": TOPICS[0], "partitions": [at]}]
        answer = connection.request("OffsetCommit", 0, group_id="g", topics=topics)
        assert answer["topics"][0]["partitions"][0]["error_code"] == UNSUPPORTED_VERSION
        topics = [{"name": TOPICS[0], "partition_indexes": [0]}]
        answer = connection.request("OffsetFetch", 0, group_id="g", topics=topics)
        assert answer["topics"][0]["partitions"][0]["error_code"] == UNSUPPORTED_VERSION
