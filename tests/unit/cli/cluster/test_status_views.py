"""The state of a cluster, as it looks in a pipe."""

from __future__ import annotations

import io

import pytest

from ottla.cli.cluster.status_views import show_status, status_rows
from ottla.cli.terminal import Terminal
from ottla.client.admin.model import LogDirDescription, ReplicaSize
from ottla.client.model import Node, TopicPartition
from ottla.ops.cluster_status import BrokerStatus, ClusterStatus, PartitionStatus, ReplicaStatus, TopicStatus
from ottla.wire.lost_records import LostRecords

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


def cluster(*partitions: PartitionStatus, controller: int | None = 1) -> ClusterStatus:
    logs = LogDirDescription("/logs", {FIRST: ReplicaSize(1500, 0, False)}, 10**12, 5 * 10**11)
    brokers = (
        BrokerStatus(Node(1, "127.0.0.1", 9092, "a"), {"/logs": logs}),
        BrokerStatus(Node(2, "127.0.0.1", 9093, "b"), problem="it hangs"),
    )
    return ClusterStatus("abc", controller, brokers, (TopicStatus("orders", partitions),), {})


BEHIND = cluster(
    PartitionStatus(
        FIRST,
        1,
        0,
        (
            ReplicaStatus(1, True, log_end_offset=20, lag=0, size_bytes=1500),
            ReplicaStatus(2, False, log_end_offset=12, lag=8, size_bytes=900),
            ReplicaStatus(3, False, is_offline=True),
        ),
        log_start_offset=0,
        high_watermark=20,
        min_insync_replicas=1,
    ),
    PartitionStatus(SECOND, 1, 0, (ReplicaStatus(1, True, lag=0), ReplicaStatus(2, True, lag=0))),
)


def test_tables() -> None:
    stream = io.StringIO()
    show_status(Terminal(stream, width=None, colours=False), BEHIND)
    assert stream.getvalue() == (
        "cluster abc  2 brokers · controller 1 · 1 topic · 2 partitions · "
        "1 broker does not answer, 1 under-replicated\n"
        "\n"
        "  BROKER  ADDRESS         RACK  LEADS  REPLICAS  IN SYNC    SIZE      FREE  NOTE\n"
        "       1  127.0.0.1:9092  a         2         2        2  1.5 kB  500.0 GB  controller\n"
        "       2  127.0.0.1:9093  b         0         2        1       -         -  no answer\n"
        "       3  -               -         0         1        0       -         -  not there\n"
        "\n"
        "  TOPIC   PARTITIONS  REPLICAS  RECORDS    SIZE  LAG  HEALTH\n"
        "  orders           2         3       20  2.4 kB    8  1 under-replicated\n"
        "\n"
        "  TOPIC   PARTITION  LEADER  REPLICAS  ISR  LAG         NOTE\n"
        "  orders          0       1  1,2,3     1    2: 8, 3: ?  not in sync: 2, 3\n"
    )


def test_the_first_line_is_not_ok_while_a_dead_leader_is_still_registered() -> None:
    """Metadata names it as the leader until its session has expired."""
    well = PartitionStatus(FIRST, 2, 0, (ReplicaStatus(2, True), ReplicaStatus(1, True)))
    failed = BrokerStatus(Node(1, "h", 1), {"/d": LogDirDescription("/d", {}, error="it failed")})
    dead = BrokerStatus(Node(2, "h", 2), problem="refused")
    for brokers, said in (
        ((dead,), "1 broker does not answer"),
        ((dead, dead), "2 brokers do not answer"),
        ((failed, dead), "1 broker does not answer, 1 failed log directory"),
        ((BrokerStatus(Node(1, "h", 1)),), "ok"),
    ):
        stream = io.StringIO()
        status = ClusterStatus("abc", 1, brokers, (TopicStatus("t", (well,)),), {})
        show_status(Terminal(stream, width=None, colours=False), status)
        assert stream.getvalue().splitlines()[0].endswith(f" · {said}")


def test_objects() -> None:
    whole, *brokers, topic = status_rows(BEHIND)
    assert (whole["controller"], whole["brokers"], whole["absent_brokers"]) == (1, [1, 2], [3])
    assert [(each["broker"], each["rack"], each["size_bytes"], each["problem"]) for each in brokers] == [
        (1, "a", 1500, None), (2, "b", None, "it hangs"),
    ]  # fmt: skip
    assert [each["lag"] for each in topic["partitions"][0]["replica_states"]] == [0, 8, None]


def test_when_all_is_well() -> None:
    replicas = (ReplicaStatus(1, True, lag=0),)
    whole = PartitionStatus(FIRST, 1, 0, replicas)
    answering = BrokerStatus(Node(1, "h", 1))
    assert ClusterStatus("abc", 1, (answering,), (TopicStatus("t", (whole,)),), {}).is_well
    assert not ClusterStatus("abc", None, (answering,), (), {}).is_well
    assert not BEHIND.is_well
    failed = BrokerStatus(Node(1, "h", 1), {"/d": LogDirDescription("/d", {}, error="it failed")})
    assert not ClusterStatus("abc", 1, (failed,), (), {}).is_well
    assert failed.failed_log_dirs == ["/d"]


def with_reports(*reports: LostRecords) -> ClusterStatus:
    logs = {"/logs": LogDirDescription("/logs", {}, lost_records={FIRST: reports})}
    return ClusterStatus("abc", 1, (BrokerStatus(Node(1, "127.0.0.1", 9092, "a"), logs),), (), {})


ELECTION = LostRecords(True, 1, 3, 3, (), 1, 3, 1_767_225_600_123)
REMOVAL = LostRecords(False, 1, 3, -1, (0, 1), 2, 3, 1_767_225_600_456)


def test_lost_records() -> None:
    stream = io.StringIO()
    show_status(Terminal(stream, width=None, colours=False), with_reports(ELECTION, REMOVAL))
    assert stream.getvalue().partition("  TOPIC")[2].splitlines() == [
        "   PARTITION  BROKER  OFFSETS  EPOCHS  WHEN                     LOST RECORDS",
        "  orders          0       1  from 1   3       2026-01-01 00:00:00.123  "
        "elected without being in sync: what others had is lost, at least 2 committed",
        "  orders          0       1  1-2      0,1     2026-01-01 00:00:00.456  2 removed for leader 2 in epoch 3",
    ]
    (row, _) = [row for row in status_rows(with_reports(ELECTION, REMOVAL)) if row["kind"] == "lost_records"]
    assert (row["is_unclean_election"], row["first_offset"], row["committed_end_offset"]) == (True, 1, 3)


@pytest.mark.parametrize(
    ("reports", "lost"),
    [
        ((REMOVAL,), 0),
        ((REMOVAL._replace(committed_end=2),), 1),
        ((ELECTION._replace(leader_epoch=1), REMOVAL), 1),
        ((ELECTION._replace(leader_epoch=2), REMOVAL), 2),
        ((ELECTION._replace(leader_epoch=4), REMOVAL), 1),
        ((ELECTION, REMOVAL._replace(epochs=())), 2),
    ],
)
def test_a_removal_is_a_loss_if_it_was_committed_or_an_unclean_election_lies_in_between(
    reports: tuple[LostRecords, ...], lost: int
) -> None:
    assert len(with_reports(*reports).losses) == lost
