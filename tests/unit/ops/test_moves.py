"""What moves of partitions are made of: files, throttles, proposals."""

from __future__ import annotations

import json

import pytest

from ottla.client.admin.model import ConfigOperation, ConfigResource, PartitionReassignment
from ottla.client.errors import BrokerError, InvalidArgumentError
from ottla.client.model import Node, PartitionMetadata, TopicMetadata, TopicPartition
from ottla.ops.moves import moving
from ottla.ops.moves.files import (
    ReplicaDirectory,
    WantedMove,
    moves_json,
    parse_moves,
    parse_partitions,
    parse_topics,
    replica_directories,
)
from ottla.ops.moves.moving import proposed
from ottla.ops.moves.throttles import Flow, cleared, flows, interbroker, log_dirs
from ottla.wire.errors import ErrorCode

pytestmark = pytest.mark.spec("R1")

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def moves_of(*partitions: object, **more: object) -> str:
    return json.dumps({"partitions": list(partitions), **more})


def test_moves_are_read() -> None:
    one = {"topic": "a", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "/d"]}
    (first, second) = parse_moves(moves_of(one, {"topic": "b", "partition": 0, "replicas": [3]}, version=1))
    assert first == WantedMove(A0, (1, 2), ("any", "/d"))
    assert second == WantedMove(B0, (3,), ("any",))
    assert replica_directories([first, second]) == [ReplicaDirectory(A0, 2, "/d")]
    assert moves_json({B0: (3,), A0: (1, 2)}) == (
        '{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[1,2],"log_dirs":["any","any"]},'
        '{"topic":"b","partition":0,"replicas":[3],"log_dirs":["any"]}]}'
    )
    assert [move.partition for move in parse_moves(moves_json({A0: (1, 2)}))] == [A0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "it is not JSON"),
        ("[" * 100_000, "it is nested too deeply"),
        ("[]", 'it has no list "partitions"'),
        ('{"partitions": []}', "Partition reassignment list cannot be empty"),
        (moves_of(version=2), "Not supported version field value 2"),
        (moves_of({"topic": "a", "partition": 0}), "entry 1 of the list cannot be read"),
        (moves_of({"topic": "a", "partition": "0", "replicas": [1]}), "entry 1 of the list cannot be read"),
        (moves_of({"topic": "", "partition": 0, "replicas": [1]}), "entry 1 of the list cannot be read"),
        (moves_of({"topic": "a", "partition": 0, "replicas": [-1]}), "entry 1 of the list cannot be read"),
        (moves_of({"topic": "a", "partition": 0, "replicas": [True]}), "entry 1 of the list cannot be read"),
        (moves_of(7), "entry 1 of the list cannot be read"),
        (moves_of({"topic": "a", "partition": 0, "replicas": []}), "name at least one broker"),
        (moves_of({"topic": "a", "partition": 0, "replicas": [1, 1]}), "a-0 contains multiple entries for 1"),
        (moves_of(*[{"topic": "a", "partition": 0, "replicas": [1]}] * 2), "duplicate topic partitions: a-0"),
        (
            moves_of({"topic": "a", "partition": 0, "replicas": [1, 2], "log_dirs": ["any"]}),
            "Size of replicas list [1, 2] is different from size of log dirs list ['any'] for partition a-0",
        ),
    ],
)
def test_moves_that_cannot_be(text: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        parse_moves(text)
    assert message in str(caught.value)


def test_topics_and_partitions_are_read() -> None:
    assert parse_topics('{"topics": [{"topic": "a"}, {"topic": "b"}], "version": 1}') == ["a", "b"]
    assert parse_partitions(moves_of({"topic": "a", "partition": 1}, {"topic": "b", "partition": 0})) == [A1, B0]
    with pytest.raises(InvalidArgumentError, match="duplicate entries: a"):
        parse_topics('{"topics": [{"topic": "a"}, {"topic": "a"}]}')
    with pytest.raises(InvalidArgumentError, match="duplicate partitions: a-1"):
        parse_partitions(moves_of(*[{"topic": "a", "partition": 1}] * 2))


def operations(**settings: str) -> list[ConfigOperation]:
    return [ConfigOperation("set", name.replace("_", "."), value) for name, value in settings.items()]


def test_throttles_cover_moves_under_way_and_wanted_ones() -> None:
    under_way = {A0: PartitionReassignment((3, 1, 2), (3,), (1,)), B0: PartitionReassignment((2, 1), (2,), (1,))}
    copied = flows(under_way, {A0: (4, 2), A1: (2, 1)}, {A0: (3, 1, 2), A1: (1, 2)})
    both, none = frozenset({1, 2}), frozenset[int]()
    assert copied == {
        A0: Flow(both, frozenset({4})),
        B0: Flow(frozenset({1}), frozenset({2})),
        A1: Flow(both, none),
    }
    rates = operations(leader_replication_throttled_rate="9", follower_replication_throttled_rate="9")
    assert interbroker(copied, 9, (1, 2, 3, 4)) == {
        ConfigResource.topic("a"): operations(
            leader_replication_throttled_replicas="0:1,0:2,1:1,1:2", follower_replication_throttled_replicas="0:4"
        ),
        ConfigResource.topic("b"): operations(
            leader_replication_throttled_replicas="0:1", follower_replication_throttled_replicas="0:2"
        ),
        **{ConfigResource.broker(broker): rates for broker in (1, 2, 4)},
    }
    # A topic of which nothing is copied has no throttled followers.
    assert len(interbroker({A1: copied[A1]}, 9, (1, 2))[ConfigResource.topic("a")]) == 1
    # A dead broker, whose replicas are moved away, is not asked: that would fail.
    assert ConfigResource.broker(2) not in interbroker(copied, 9, (1, 4))


def test_throttles_are_taken_away() -> None:
    rate = "replica.alter.log.dirs.io.max.bytes.per.second"
    assert log_dirs([2, 1, 2], 5) == {
        ConfigResource.broker(broker): [ConfigOperation("set", rate, "5")] for broker in (1, 2)
    }
    changes = cleared([2], ["a", "a"])
    assert {resource: [each.name for each in one] for resource, one in changes.items()} == {
        ConfigResource.broker(2): ["leader.replication.throttled.rate", "follower.replication.throttled.rate", rate],
        ConfigResource.topic("a"): ["leader.replication.throttled.replicas", "follower.replication.throttled.replicas"],
    }
    assert all(each.operation == "delete" for one in changes.values() for each in one)


def test_a_move_that_ended_before_it_was_cancelled_is_not_refused() -> None:
    """It was done, or its topic was deleted; what is left is said."""
    codes = (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_CONTROLLER)
    errors = {TopicPartition("t", index): BrokerError(code, "no") for index, code in enumerate(codes)}
    assert list(moving._refused(errors)) == [TopicPartition("t", 2)]


def test_assignments_are_proposed() -> None:
    partitions = (PartitionMetadata(0, 1, 0, (1, 2), (1, 2)), PartitionMetadata(1, 2, 0, (2, 1), (2, 1)))
    topic = TopicMetadata("a", partitions, is_internal=False)
    nodes = [Node(each, "localhost", 9092, rack) for each, rack in ((1, "x"), (2, "x"), (3, "y"))]
    found = proposed([topic], nodes, lambda _: 0)
    assert list(found) == [A0, A1]
    assert all(3 in replicas for replicas in found.values()), "one replica in either rack"
    assert proposed([topic], nodes, lambda _: 0, rack_aware=False) == {A0: (1, 2), A1: (2, 3)}
    with pytest.raises(InvalidArgumentError, match="Not all brokers have rack information"):
        proposed([topic], [*nodes, Node(4, "localhost", 9092)], lambda _: 0)
    with pytest.raises(InvalidArgumentError, match="topic a: Replication factor: 2 larger than available brokers: 1"):
        proposed([topic], nodes[:1], lambda _: 0)
