"""A broker that leaves a cluster for good: what keeps it there, and what is to be done before it is stopped.

Works over the wire with brokers of ottla and of Apache Kafka.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ottla.client.admin.model import ResourceType
from ottla.client.errors import BrokerError, ClientError
from ottla.client.model import Node, TopicPartition
from ottla.peer.cluster import Cluster
from ottla.peer.model import PartitionMetadata
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

EVIDENCE_TOPIC = "__ottla_rebalances"
"""The topic with the causes of rebalances. Apache Kafka shows it as an ordinary one, and has no use for it."""
OWN_SETTING = "ottla.rebalance.evidence.enable"
"""A setting that only brokers of ottla have."""


@dataclass(slots=True, frozen=True)
class Departure:
    """What is known of the broker that is to leave.

    `held` are the partitions with a replica on it, those of the evidence topic left out where that is to be removed.
    `unasked` are brokers that did not say whether they are of ottla.
    """

    broker: int
    is_registered: bool
    held: Mapping[TopicPartition, PartitionMetadata]
    removes_evidence: bool
    nodes: Mapping[int, Node]
    replica_counts: Mapping[int, int]
    unasked: tuple[int, ...] = ()

    @property
    def alone(self) -> list[TopicPartition]:
        """The partitions of which nobody else has a replica."""
        return [partition for partition, known in self.held.items() if known.replicas == (self.broker,)]


async def read_departure(cluster: Cluster, broker: int) -> Departure:
    """Ask the cluster about the broker that is to leave. Raises ClientError."""
    metadata = await cluster.retry("reading the metadata", lambda: cluster.refresh(None))
    nodes = dict(metadata.nodes)
    others = [each for each in nodes if each != broker]
    removes_evidence = False
    unasked: tuple[int, ...] = ()
    if EVIDENCE_TOPIC in metadata.topics and others:
        kinds = dict(zip(others, await asyncio.gather(*(_is_ottla(cluster, each) for each in others)), strict=True))
        unasked = tuple(each for each, is_ottla in kinds.items() if is_ottla is None)
        removes_evidence = not unasked and not any(kinds.values())
    counts: Counter[int] = Counter()
    held = {}
    for name in sorted(metadata.topics):
        for known in metadata.topics[name].partitions:
            counts.update(known.replicas)
            if broker in known.replicas and not (removes_evidence and name == EVIDENCE_TOPIC):
                held[TopicPartition(name, known.partition)] = known
    return Departure(broker, broker in nodes, held, removes_evidence, nodes, counts, unasked)


async def _is_ottla(cluster: Cluster, broker: int) -> bool | None:
    """Whether a broker is one of ottla; None if it does not say."""
    resource = DescribeConfigsResource(
        resource_type=ResourceType.BROKER, resource_name=str(broker), configuration_keys=[OWN_SETTING]
    )
    try:
        answer: DescribeConfigsResponse = await cluster.request(broker, DescribeConfigsRequest(resources=[resource]))
    except ClientError:
        return None
    (result,) = answer.results
    return None if result.error_code != ErrorCode.NONE else bool(result.configs)


async def hand_over(cluster: Cluster, broker: int) -> list[TopicPartition]:
    """Have the controller move the broker's leaderships away and elect it no more, until it registers again.

    Returns the partitions that it still leads. Raises ClientError.
    """

    async def attempt() -> ControlledShutdownResponse:
        # Without a broker epoch, which only a broker knows of itself.
        answer: ControlledShutdownResponse = await cluster.request_controller(
            ControlledShutdownRequest(broker_id=broker)
        )
        if answer.error_code != ErrorCode.NONE:
            raise BrokerError(answer.error_code, f"broker {broker} is not relieved of its leaderships")
        return answer

    answer = await cluster.retry("a controlled shutdown", attempt)
    return [TopicPartition(each.topic_name, each.partition_index) for each in answer.remaining_partitions]


def planned_moves(departure: Departure) -> dict[TopicPartition, tuple[int, ...] | None]:
    """The replicas of each partition that it holds, with another broker in its place; None where there is no other.

    The least loaded one takes over, in a rack of its own if there is one.
    """
    counts = Counter(departure.replica_counts)
    moves: dict[TopicPartition, tuple[int, ...] | None] = {}
    for partition, known in departure.held.items():
        others = [each for each in known.replicas if each != departure.broker]
        racks = {departure.nodes[each].rack for each in others if each in departure.nodes}
        free = [each for each in departure.nodes if each != departure.broker and each not in others]
        if not free:
            moves[partition] = None
            continue
        chosen = min(free, key=lambda each: (_is_crowded(departure.nodes[each], racks), counts[each], each))
        counts[chosen] += 1
        moves[partition] = tuple(chosen if each == departure.broker else each for each in known.replicas)
    return moves


def _is_crowded(node: Node, racks: set[str | None]) -> bool:
    """Whether a replica of the partition is in the rack of this broker."""
    return node.rack is not None and node.rack in racks


def reassignment_json(moves: Mapping[TopicPartition, Sequence[int] | None]) -> str:
    """The file that `kafka-reassign-partitions --reassignment-json-file` takes."""
    partitions = [
        {"topic": topic, "partition": index, "replicas": list(replicas)}
        for (topic, index), replicas in moves.items()
        if replicas is not None
    ]
    return json.dumps({"version": 1, "partitions": partitions}, indent=1) + "\n"
