"""The examples of requirements G4 to G8, and the walk of C6, with Apache Kafka's own consumers on both brokers.

G4 to G6 hold to the letter with a client that knows JoinGroup 3 at most and calls its listener before its first join
(2.0.1); one of today (3.9.1) asks for its member id first, and makes one call of the revoke listener fewer. A tap
between clients and broker decides who comes first, and loses answers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import pytest

from interop.both_brokers import coordinator_is_up, made, topic_id_when_usable
from interop.groups.brokers import GroupBrokers
from interop.groups.consumers import CURRENT, Consumers
from interop.raw import RawConnection, batch, values_of
from interop.wire_json import Definitions, Json
from ottla.groups.evidence import EVIDENCE_TOPIC
from support.ports import LOOPBACK
from support.tap import JOIN_GROUP, SYNC_GROUP
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.needs_older, pytest.mark.slow]

OLDER = "2.0.1"
PARTITIONS = 3
PREPARING, AWAITING_SYNC, STABLE, EMPTY = "PreparingRebalance", "AwaitingSync", "Stable", "Empty"
REBALANCE = [PREPARING, AWAITING_SYNC, STABLE]

#: What Apache Kafka's log says of the states of a group.
LOGGED = {
    r"Preparing to rebalance group {} in state PreparingRebalance": PREPARING,
    r"Stabilized group {} generation": AWAITING_SYNC,
    r"Assignment received from leader \S+ for group {} for generation": STABLE,
    r"Group {} with generation \d+ is now empty": EMPTY,
}
#: The states that a group went through in a rebalance, by the outcome that ottla's evidence of it names.
OUTCOMES = {"superseded": [PREPARING, AWAITING_SYNC], "stable": REBALANCE, "empty": [PREPARING, EMPTY]}


class Walk:
    """A group of consumers on one broker, with a topic of three partitions."""

    def __init__(
        self, side: str, brokers: GroupBrokers, version: str, consumers: Consumers, raw: RawConnection, name: str
    ) -> None:
        self.side = side
        self.server = brokers.ottla if side == "ottla" else brokers.kafka
        self.tap = brokers.taps[side]
        self.version = version
        self.consumers = consumers
        self.raw = raw
        self.group = name
        self.alive: list[str] = []
        wait_until(
            lambda: made(raw, {"name": name, "num_partitions": PARTITIONS, "replication_factor": 1}), f"topic {name}"
        )
        topic_id_when_usable(raw, name, PARTITIONS)
        wait_until(lambda: coordinator_is_up(raw, name), "the coordinator")

    def start(self, number: int) -> str:
        """Consumer `number`. Their names are in the order of their numbers, and so are their member ids."""
        name = f"c{number}-{self.group}"
        self.consumers.start(name, f"{LOOPBACK}:{self.tap.port}", self.group, self.group)
        self.alive.append(name)
        return name

    def close(self, *names: str) -> None:
        """Consumers leave."""
        for name in names:
            self.alive.remove(name)
        self.consumers.close(*names)

    def described(self) -> Json:
        group: Json = self.raw.request("DescribeGroups", 5, groups=[self.group])["groups"][0]
        return group

    def wait_for_members(self, count: int) -> None:
        wait_until(lambda: len(self.described()["members"]) == count, lambda: f"{count} members: {self.described()}")

    def wait_until_shared(self, *owned: list[int]) -> None:
        """Until the living consumers own this, in the order of their start, and the group is stable."""

        def shared() -> bool:
            told = [self.consumers.owned(name) for name in self.alive]
            return told == list(owned) and self.described()["group_state"] == STABLE

        wait_until(shared, lambda: f"{owned}: {self.story()}")

    def produce(self) -> None:
        """A record in every partition."""
        data = [
            {"name": self.group, "partition_data": [{"index": index, "records": batch([b"x"])}]}
            for index in range(PARTITIONS)
        ]
        for one in data:
            answer = self.raw.request("Produce", 9, transactional_id=None, acks=-1, timeout_ms=20_000, topic_data=[one])
            assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0

    def wait_for_states(self, *expected: str) -> None:
        """Until the broker tells of these states of the group; no others before them, and none so far behind them."""
        wait_until(
            lambda: self.states() == list(expected), lambda: f"{expected}: {self.states()}\n{self.story()}", 10.0
        )

    def states(self) -> list[str]:
        """The states that the group went through, by the broker's own account."""
        if self.side == "ottla":
            return [state for outcome in self.outcomes() for state in OUTCOMES[outcome]]
        patterns = [(re.compile(text.format(re.escape(self.group))), state) for text, state in LOGGED.items()]
        lines = self.server.server.stdout.splitlines()
        return [state for line in lines for pattern, state in patterns if pattern.search(line)]

    def outcomes(self) -> list[str]:
        """How the rebalances of the group ended, of which ottla keeps evidence in a topic."""
        values: list[bytes | None] = []
        while fetched := values_of(self._fetch_evidence(len(values))):
            values += fetched
        told = [json.loads(value) for value in values if value is not None]
        return [one["outcome"] for one in told if one["group"] == self.group]

    def _fetch_evidence(self, offset: int) -> bytes | None:
        wanted = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        topics = [{"topic": EVIDENCE_TOPIC, "partitions": [wanted]}]
        fetched = self.raw.request("Fetch", 4, replica_id=-1, max_wait_ms=0, min_bytes=0, topics=topics)
        records: bytes | None = fetched["responses"][0]["partitions"][0]["records"]
        return records

    def calls(self, name: str) -> list[tuple[str, list[int]]]:
        """The calls of a consumer's listener."""
        return [(kind, partitions) for kind, partitions in self.consumers.events(name, "revoked", "assigned", "lost")]

    def first_call(self) -> list[tuple[str, list[int]]]:
        """What the listener is told before the first join: older clients revoke nothing."""
        return [("revoked", [])] if self.version == OLDER else []

    def joins(self, name: str) -> int:
        """How many JoinGroups a consumer sent, but for that which asks for its member id."""
        return self.tap.count(name, JOIN_GROUP) - (self.version == CURRENT)

    def story(self) -> str:
        return "\n".join(f"{name}: {self.consumers.events(name)}" for name in self.alive) + f"\n{self.described()}"


@pytest.fixture(scope="module")
def consumers_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Consumers]]:
    """A process with consumers of a version."""
    folder = tmp_path_factory.mktemp("consumers")
    started: dict[str, Consumers] = {}

    def of(version: str) -> Consumers:
        if version not in started:
            started[version] = Consumers(version, folder)
        return started[version]

    yield of
    for consumers in started.values():
        consumers.end()


@pytest.fixture(params=[OLDER, CURRENT])
def version(request: pytest.FixtureRequest) -> str:
    """The version of the Java client."""
    found: str = request.param
    return found


@pytest.fixture(params=["ottla", "kafka"])
def walk(
    request: pytest.FixtureRequest,
    group_brokers: GroupBrokers,
    consumers_of: Callable[[str], Consumers],
    version: str,
    definitions: Definitions,
    unique: str,
) -> Iterator[Walk]:
    """A group without members yet."""
    side = request.param
    group_brokers.taps[side].begin()
    with RawConnection(group_brokers.bootstraps[side], definitions) as raw:
        made = Walk(side, group_brokers, version, consumers_of(version), raw, unique)
        yield made
        group_brokers.taps[side].begin()
        made.close(*made.alive)


@pytest.mark.spec("G4", "G8")
def test_one_rebalance(walk: Walk) -> None:
    first_sync = walk.tap.hold(f"c1-{walk.group}", SYNC_GROUP)
    c1 = walk.start(1)
    first_sync.wait()
    c2, c3 = walk.start(2), walk.start(3)
    walk.wait_for_members(3)
    first_sync.release()
    walk.wait_until_shared([0], [1], [2])
    walk.wait_for_states(PREPARING, AWAITING_SYNC, *REBALANCE)
    assert [walk.joins(name) for name in (c1, c2, c3)] == [2, 1, 1]
    assert [walk.tap.count(name, SYNC_GROUP) for name in (c1, c2, c3)] == [2, 1, 1]
    for partition, name in enumerate((c1, c2, c3)):
        assert walk.calls(name) == [*walk.first_call(), ("assigned", [partition])]
    assert (max(walk.tap.versions(JOIN_GROUP)) <= 3) == (walk.version == OLDER)


@pytest.mark.spec("G5")
def test_two_rebalances(walk: Walk) -> None:
    c1 = walk.start(1)
    walk.wait_until_shared([0, 1, 2])
    walk.produce()
    wait_until(lambda: walk.consumers.events(c1, "records"), "the first records")
    join = walk.tap.hold(c1, JOIN_GROUP)
    c2, c3 = walk.start(2), walk.start(3)
    join.wait()
    walk.wait_for_members(3)
    assert walk.described()["group_state"] == PREPARING
    walk.produce()
    join.release()
    walk.wait_until_shared([0], [1], [2])
    walk.wait_for_states(*REBALANCE, *REBALANCE)
    assert walk.calls(c1) == [
        *walk.first_call(),
        ("assigned", [0, 1, 2]),
        ("revoked", [0, 1, 2]),
        ("assigned", [0]),
    ]
    assert walk.calls(c2) == [*walk.first_call(), ("assigned", [1])]
    assert walk.calls(c3) == [*walk.first_call(), ("assigned", [2])]
    assert [walk.joins(name) for name in (c1, c2, c3)] == [2, 1, 1]
    # While the others waited, the first had stopped.
    events = walk.consumers.events(c1)
    assert events[events.index(("revoked", [0, 1, 2])) + 1] == ("assigned", [0])


@pytest.mark.spec("G6")
def test_three_rebalances(walk: Walk) -> None:
    c1 = walk.start(1)
    walk.wait_until_shared([0, 1, 2])
    c2 = walk.start(2)
    walk.wait_until_shared([0, 1], [2])
    c3 = walk.start(3)
    walk.wait_until_shared([0], [1], [2])
    walk.wait_for_states(*REBALANCE * 3)
    assert walk.calls(c1) == [
        *walk.first_call(),
        ("assigned", [0, 1, 2]),
        ("revoked", [0, 1, 2]),
        ("assigned", [0, 1]),
        ("revoked", [0, 1]),
        ("assigned", [0]),
    ]
    assert walk.calls(c2) == [*walk.first_call(), ("assigned", [2]), ("revoked", [2]), ("assigned", [1])]
    assert walk.calls(c3) == [*walk.first_call(), ("assigned", [2])]
    assert [walk.joins(name) for name in (c1, c2, c3)] == [3, 2, 1]
    walk.close(c1, c2, c3)
    wait_until(lambda: walk.described()["group_state"] == EMPTY, "the group to be empty")
    (deleted,) = walk.raw.request("DeleteGroups", 2, groups_names=[walk.group])["results"]
    assert deleted["error_code"] == 0
    assert walk.described()["group_state"] == "Dead"


@pytest.mark.spec("G7")
def test_a_follower_whose_join_was_answered_in_vain(walk: Walk) -> None:
    walk.start(1)
    walk.wait_until_shared([0, 1, 2])
    c2 = walk.start(2)
    walk.wait_until_shared([0, 1], [2])
    again = walk.tap.hold(c2, JOIN_GROUP, skip=1)
    walk.tap.lose_answer(c2, JOIN_GROUP)
    walk.start(3)
    again.wait()
    wait_until(lambda: walk.described()["group_state"] == STABLE, walk.story)
    again.release()
    walk.wait_until_shared([0], [1], [2])
    walk.wait_for_states(*REBALANCE * 3)
    assert walk.joins(c2) == 3


@pytest.mark.spec("G7")
def test_a_leader_whose_join_was_answered_in_vain(walk: Walk) -> None:
    c1 = walk.start(1)
    walk.wait_until_shared([0, 1, 2])
    walk.start(2)
    walk.wait_until_shared([0, 1], [2])
    again = walk.tap.hold(c1, JOIN_GROUP, skip=1)
    walk.tap.lose_answer(c1, JOIN_GROUP)
    walk.start(3)
    again.wait()
    assert walk.described()["group_state"] == "CompletingRebalance"
    again.release()
    walk.wait_until_shared([0], [1], [2])
    walk.wait_for_states(*REBALANCE * 3)
    assert walk.joins(c1) == 4


@pytest.mark.spec("G8")
def test_only_those_who_wait_are_answered_by_the_leaders_sync(walk: Walk) -> None:
    c1 = walk.start(1)
    walk.wait_until_shared([0, 1, 2])
    c2 = walk.start(2)
    walk.wait_until_shared([0, 1], [2])
    leaders, followers = walk.tap.hold(c1, SYNC_GROUP), walk.tap.hold(c2, SYNC_GROUP)
    c3 = walk.start(3)
    leaders.wait()
    followers.wait()
    wait_until(lambda: walk.tap.count(c3, SYNC_GROUP) == 1, "the sync that waits")
    assert walk.described()["group_state"] == "CompletingRebalance"
    assert walk.consumers.owned(c3) is None
    leaders.release()
    wait_until(lambda: walk.consumers.owned(c1) == [0] and walk.consumers.owned(c3) == [2], walk.story)
    assert walk.described()["group_state"] == STABLE
    assert walk.consumers.owned(c2) is None
    followers.release()
    walk.wait_until_shared([0], [1], [2])
    walk.wait_for_states(*REBALANCE * 3)


@pytest.mark.spec("C6")
def test_the_walk(walk: Walk) -> None:
    c1 = walk.start(1)
    walk.wait_until_shared([0, 1, 2])
    c2 = walk.start(2)
    walk.wait_until_shared([0, 1], [2])
    c3 = walk.start(3)
    walk.wait_until_shared([0], [1], [2])
    c4 = walk.start(4)
    walk.wait_until_shared([0], [1], [2], [])
    walk.close(c1)
    walk.wait_until_shared([0], [1], [2])
    walk.close(c2)
    walk.wait_until_shared([0, 1], [2])
    walk.close(c3)
    walk.wait_until_shared([0, 1, 2])
    owned = {
        c1: [[0, 1, 2], [0, 1], [0], [0]],
        c2: [[2], [1], [1], [0]],
        c3: [[2], [2], [1], [0, 1]],
        c4: [[], [2], [2], [0, 1, 2]],
    }
    for name, shares in owned.items():
        # Four calls of assigned each, and one of revoked between two of them, even where nothing is owned.
        calls = [call for share in shares for call in (("assigned", share), ("revoked", share))]
        # Today's consumers revoke once more when they close.
        is_last_reported = walk.version == CURRENT and name != c4
        assert walk.calls(name) == [*walk.first_call(), *calls[: None if is_last_reported else -1]]
    walk.wait_for_states(*REBALANCE * 7)
