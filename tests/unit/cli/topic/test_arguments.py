"""What is given on the command line: manual assignments, settings, filters."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from ottla.cli.command import CommandError
from ottla.cli.main import app
from ottla.cli.topic.changes import parse_assignment, parse_configs
from ottla.cli.topic.views import Filters
from ottla.client.admin.model import ConfigEntry
from ottla.client.model import TopicPartition
from ottla.ops.cluster_status import PartitionStatus, ReplicaStatus, TopicStatus


def partition(
    number: int, leader: int, replicas: str, *, min_isr: int = 1, leader_alive: bool = True
) -> PartitionStatus:
    """A partition of `1,2,-3`: broker 3 is not in sync."""
    ids = [int(each) for each in replicas.split(",")]
    return PartitionStatus(
        TopicPartition("t", number),
        leader,
        0,
        tuple(ReplicaStatus(abs(each), each > 0) for each in ids),
        min_insync_replicas=min_isr,
        is_leader_alive=leader_alive,
    )


def test_manual_assignments() -> None:
    assert parse_assignment("1:2,2:3") == {0: [1, 2], 1: [2, 3]}
    assert parse_assignment("5") == {0: [5]}
    assert parse_assignment(" 5 : 6 , 6:7") == {0: [5, 6], 1: [6, 7]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1:1", "may not contain duplicate entries: 1; name each broker once"),
        ("1:2,3", "Partition 1 has different replication factor: [3]; name as many"),
        ("1:a", "expected ids of brokers"),
        ("", "expected ids of brokers"),
        ("1:2,", "expected ids of brokers"),
        ("-1", "expected ids of brokers"),
    ],
)
def test_manual_assignments_that_cannot_be(text: str, message: str) -> None:
    with pytest.raises(CommandError) as caught:
        parse_assignment(text)
    assert message in str(caught.value)


def test_settings() -> None:
    assert parse_configs(["a=1", " b = x=y "]) == {"a": "1", "b": "x=y"}
    with pytest.raises(CommandError, match="expected key=value"):
        parse_configs(["a"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["create", "t", "--replica-assignment", "1", "-r", "1"], "leave --replication-factor out"),
        (["create", "t", "--replica-assignment", "1", "-p", "1"], "leave --partitions out"),
        (["alter", "t"], "say what to change"),
        (["alter", "t", "-c", "a=1", "--delete-config", "a"], "contradict each other"),
        (["alter", "t", "-c", "a=1", "--replica-assignment", "1"], "give --partitions, too"),
        (["list", "("], "is not a regular expression"),
    ],
)
def test_options_that_contradict_each_other(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["topic", *arguments, "-b", "127.0.0.1:1"])
    assert (done.exit_code, message in done.stderr) == (2, True), done.stderr


def test_partitions_in_kafkas_words() -> None:
    whole, behind = partition(0, 1, "1,2,3", min_isr=2), partition(1, 1, "1,-2,-3", min_isr=2)
    assert (whole.is_under_replicated, whole.is_under_min_isr, whole.is_at_min_isr, whole.is_offline) == (False,) * 4
    assert (behind.is_under_replicated, behind.is_under_min_isr, behind.isr) == (True, True, (1,))
    assert partition(0, 1, "1,2,-3", min_isr=2).is_at_min_isr
    leaderless = partition(0, -1, "1,-2")
    assert (leaderless.is_offline, leaderless.is_under_min_isr) == (True, True)
    assert partition(0, 1, "1,2", leader_alive=False).is_offline


def test_filters_choose_partitions_and_topics() -> None:
    own = {"retention.ms": ConfigEntry("retention.ms", "5", "DYNAMIC_TOPIC_CONFIG")}
    healthy = TopicStatus("healthy", (partition(0, 1, "1,2"),), configs=own)
    broken = TopicStatus(
        "broken", (partition(0, 1, "1,-2", min_isr=2), partition(1, -1, "1,2"), partition(2, 2, "1,2"))
    )
    internal = TopicStatus("__internal", (partition(0, 1, "1,2"),), is_internal=True)
    topics = [healthy, broken, internal]

    def shown(filters: Filters) -> list[tuple[str, list[int]]]:
        return [(each.name, [one.partition.partition for one in each.partitions]) for each in filters.apply(topics)]

    assert [name for name, _ in shown(Filters())] == ["healthy", "broken", "__internal"]
    assert [name for name, _ in shown(Filters(exclude_internal=True))] == ["healthy", "broken"]
    assert shown(Filters(with_overrides=True)) == [("healthy", [0])]
    assert shown(Filters(under_replicated=True)) == [("broken", [0])]
    assert shown(Filters(offline=True)) == [("broken", [1])]
    assert shown(Filters(under_min_isr=True)) == [("broken", [0, 1])]
    assert shown(Filters(under_replicated=True, offline=True)) == [("broken", [0, 1])]
    assert shown(Filters(at_min_isr=True)) == []
