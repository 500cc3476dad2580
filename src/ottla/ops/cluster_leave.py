"""A broker that leaves a cluster for good: what keeps it there, and what to do before it is stopped.

Works over the wire with brokers of ottla and of Apache Kafka.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ottla.client.admin.model import ResourceType
from ottla.client.errors import BrokerError, ClientError
from ottla.client.model import TopicPartition
from ottla.ops.planned_cluster import PlannedCluster, read_planned_cluster
from ottla.ops.planning.batches import batches
from ottla.ops.planning.model import PartitionMove, PlanGoal, PlanRefusal
from ottla.ops.planning.planner import plan
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
    """The state of the broker that is to leave.

    `held` are the partitions with a replica on it, without the evidence topic's where that will be removed. `unasked`
    are brokers that did not say whether they are of ottla.
    """

    broker: int
    is_registered: bool
    held: Mapping[TopicPartition, PartitionMetadata]
    removes_evidence: bool
    unasked: tuple[int, ...] = ()

    @property
    def alone(self) -> list[TopicPartition]:
        """The partitions of which no other broker has a replica."""
        return [partition for partition, known in self.held.items() if known.replicas == (self.broker,)]


class PlannedDeparture(NamedTuple):
    """The moves of the replicas: `moves` in all, and in `batches` that are carried out one after the other.

    `left` says why a replica has no place. `silent` are brokers that did not say the sizes of their logs, with the
    reason. `refusal` says why planning failed.
    """

    moves: Mapping[TopicPartition, tuple[int, ...]]
    batches: Sequence[Sequence[PartitionMove]]
    left: Mapping[TopicPartition, str]
    silent: Mapping[int, str]
    refusal: str = ""


async def read_departure(cluster: Cluster, broker: int) -> Departure:
    """Ask the cluster about the broker that is to leave. Raises ClientError."""
    metadata = await cluster.retry("reading the metadata", lambda: cluster.refresh(None))
    others = [each for each in metadata.nodes if each != broker]
    removes_evidence = False
    unasked: tuple[int, ...] = ()
    if EVIDENCE_TOPIC in metadata.topics and others:
        answers = dict(zip(others, await asyncio.gather(*(_is_ottla(cluster, each) for each in others)), strict=True))
        unasked = tuple(each for each, is_ottla in answers.items() if is_ottla is None)
        removes_evidence = not unasked and not any(answers.values())
    held = {}
    for name in sorted(metadata.topics):
        for known in metadata.topics[name].partitions:
            if broker in known.replicas and not (removes_evidence and name == EVIDENCE_TOPIC):
                held[TopicPartition(name, known.partition)] = known
    return Departure(broker, broker in metadata.nodes, held, removes_evidence, unasked)


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


async def plan_departure(cluster: Cluster, departure: Departure) -> PlannedDeparture:
    """Ask all brokers for sizes, and plan where the replicas of the leaving one go. Raises ClientError."""
    held = {partition.topic for partition in departure.held}
    return planned_departure(await read_planned_cluster(cluster, held.__contains__), departure.broker)


def planned_departure(known: PlannedCluster, broker: int) -> PlannedDeparture:
    """Plan the moves of a broker's replicas, as `ottla reassign plan --empty` does."""
    made = plan(known.brokers, known.partitions, PlanGoal(empty=(broker,)))
    if isinstance(made, PlanRefusal):
        return PlannedDeparture({}, (), {}, known.silent, made.message)
    moves = {TopicPartition(each.topic, each.partition): each.after for each in made.moves}
    left = {TopicPartition(*each): why.value for each, why in made.left.items()}
    return PlannedDeparture(moves, tuple(batches(made, known.brokers)), left, known.silent)


def reassignment_json(moves: Mapping[TopicPartition, Sequence[int] | None]) -> str:
    """The file that `kafka-reassign-partitions --reassignment-json-file` takes."""
    partitions = [
        {"topic": topic, "partition": index, "replicas": list(replicas)}
        for (topic, index), replicas in moves.items()
        if replicas is not None
    ]
    return json.dumps({"version": 1, "partitions": partitions}, indent=1) + "\n"
