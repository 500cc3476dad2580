"""The states of topics as brokers report them, and brokers that do not."""

from __future__ import annotations

from ottla.client.model import TopicPartition
from ottla.ops.cluster_status import read_cluster_status
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from support.fake_cluster import DROP, FakeCluster


def replicated(fakes):
    """A partition led by broker 0, with a follower that has everything and one that does not."""
    [partition] = fakes.topic("t", 0)
    fakes.replicas[partition] = [0, 1, 2]
    fakes.in_sync[partition] = [0, 1]
    fakes.fill(partition, 20)
    fakes.follower_ends[2, partition] = 12
    return partition


def test_each_replica_is_asked_for_its_end(fakes, with_cluster):
    partition = replicated(fakes)
    state = with_cluster(fakes, read_cluster_status)
    assert (state.controller, fakes.controller) == (0, 0)
    [topic] = state.topics
    [found] = topic.partitions
    assert (found.partition, found.leader, found.isr, found.is_under_replicated) == (partition, 0, (0, 1), True)
    assert [(each.broker, each.log_end_offset, each.lag) for each in found.replicas] == [
        (0, 20, 0), (1, 20, 0), (2, 12, 8),
    ]  # fmt: skip
    assert (found.log_start_offset, found.high_watermark, found.records, found.lag) == (0, 20, 20, 8)
    assert {each.node.node_id: list(each.log_dirs) for each in state.brokers} == {
        0: ["/logs-of-0"], 1: ["/logs-of-1"], 2: ["/logs-of-2"],
    }  # fmt: skip


def test_under_load_no_replica_in_sync_is_behind_the_high_watermark(fakes, with_cluster):
    """Each answer about offsets is of a later moment."""
    partition = replicated(fakes)

    def grown(node, request, code):
        fakes.fill(partition, 5)
        return FakeCluster.on_list_offsets(fakes, node, request, code)

    fakes.on_list_offsets = grown
    [found] = with_cluster(fakes, read_cluster_status).partitions
    assert found.high_watermark > 20
    assert all(each.log_end_offset >= found.high_watermark for each in found.replicas if each.is_in_sync)


def test_a_broker_that_fails_costs_its_own_figures_only(fakes, with_cluster):
    replicated(fakes)
    fakes.on_describe_log_dirs = lambda node, request, code: (
        DROP if node == 2 else FakeCluster.on_describe_log_dirs(fakes, node, request, code)
    )
    state = with_cluster(fakes, read_cluster_status)
    assert [each.node.node_id for each in state.brokers if each.problem] == [2]
    [found] = state.topics[0].partitions
    assert [(each.broker, each.lag) for each in found.replicas] == [(0, 0), (1, 0), (2, None)]


def test_topics_that_are_not_there(fakes, with_cluster):
    fakes.topic("t", 0)
    state = with_cluster(fakes, lambda cluster: read_cluster_status(cluster, ["t", "u"]))
    assert [each.name for each in state.topics] == ["t"]
    assert {name: error.code for name, error in state.missing.items()} == {"u": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_without_figures_no_broker_is_asked_for_offsets(fakes, with_cluster):
    fakes.topic("t", 0, 1)
    state = with_cluster(fakes, lambda cluster: read_cluster_status(cluster, sizes=False))
    assert not fakes.requests_of(ApiKey.LIST_OFFSETS) + fakes.requests_of(ApiKey.DESCRIBE_LOG_DIRS)
    assert [each.partition for each in state.partitions] == [TopicPartition("t", 0), TopicPartition("t", 1)]


def test_replicas_that_a_reassignment_adds_are_not_missing(fakes, with_cluster):
    partition = replicated(fakes)
    moving = OngoingPartitionReassignment(
        partition_index=0, replicas=[0, 1, 2], adding_replicas=[2], removing_replicas=[1]
    )
    topic = OngoingTopicReassignment(name=partition.topic, partitions=[moving])
    fakes.also_serves = (ApiKey.LIST_PARTITION_REASSIGNMENTS,)
    fakes.on_list_partition_reassignments = lambda *_: ListPartitionReassignmentsResponse(topics=[topic])
    [found] = with_cluster(fakes, read_cluster_status).partitions
    assert (found.adding, found.removing, found.is_under_replicated) == ((2,), (1,), False)
