"""The wire messages of control requests, and what their responses say.

LeaderAndIsr 7, UpdateMetadata 8 and StopReplica 4, as Apache Kafka 3.9 sends them: isKRaftController false, type 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from ottla.broker.slices import CHUNK_ITEMS
from ottla.cluster.control_batches import (
    ControlRequest,
    LeaderAndIsrBatch,
    PartitionEntry,
    StopEntry,
    StopReplicaBatch,
    UpdateMetadataBatch,
)
from ottla.cluster.controller_events import DeletionAnswered, LeaderAndIsrAnswered, PartitionKey, SendToBroker
from ottla.config.listeners import SECURITY_PROTOCOLS
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from ottla.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from ottla.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla.zk.layout import RECOVERING

if TYPE_CHECKING:
    from ottla.broker.slices import LoopSlices
    from ottla.cluster.image import BrokerImage
    from ottla.wire.schema import Message
    from ottla.wire.sliced import Sliced

TopicState = TypeVar("TopicState", LeaderAndIsrTopicState, StopReplicaTopicState, UpdateMetadataTopicState)
Entry = TypeVar("Entry", PartitionEntry, StopEntry)

#: Partitions made into messages in one slice.
PARTITIONS_PER_SLICE = 1_000


class ControlMessages:
    """Makes the wire messages of control requests; those that several brokers get alike are made once."""

    def __init__(self, controller_id: int, listener_name: str, slices: LoopSlices) -> None:
        self._controller_id = controller_id
        self._listener_name = listener_name
        #: Large messages are made, encoded and understood in slices.
        self.slices = slices
        #: The partitions of the last UpdateMetadata, which every broker gets.
        self._last: tuple[UpdateMetadataBatch, list[UpdateMetadataTopicState]] | None = None

    async def make(self, sending: SendToBroker, request: ControlRequest) -> Message:
        """The message of one request of `sending`."""
        message: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest
        if isinstance(request, LeaderAndIsrBatch):
            topics = await self._by_topic(request.entries, _roles_of, partial(_role, epoch=sending.epoch))
            leaders = self._leaders(request.entries, sending.brokers)
            message = LeaderAndIsrRequest(topic_states=topics, live_leaders=leaders)
        elif isinstance(request, StopReplicaBatch):
            message = StopReplicaRequest(topic_states=await self._by_topic(request.entries, _stops_of, _stop))
        else:
            if self._last is None or self._last[0] is not request:
                state_of = partial(_metadata, epoch=sending.epoch)
                states = await self._by_topic(request.entries, _metadata_of, state_of)
                self._last = (request, states)
            brokers = list(map(_broker, sending.brokers.values()))
            message = UpdateMetadataRequest(topic_states=self._last[1], live_brokers=brokers)
        message.controller_id = self._controller_id
        message.controller_epoch = sending.epoch
        message.broker_epoch = sending.broker_epoch
        return message

    async def _by_topic(
        self,
        entries: Iterable[Entry],
        topic_of: Callable[[Entry], TopicState],
        state_of: Callable[[Entry], Any],
    ) -> list[TopicState]:
        """The states of the partitions, in what `topic_of` makes of the first entry of each topic."""
        topics: dict[str, TopicState] = {}
        for count, entry in enumerate(entries):
            topic = topics.get(entry.topic)
            if topic is None:
                topic = topics[entry.topic] = topic_of(entry)
            topic.partition_states.append(state_of(entry))
            if count % PARTITIONS_PER_SLICE == PARTITIONS_PER_SLICE - 1:
                await self.slices.point()
        return list(topics.values())

    def _leaders(
        self, entries: Iterable[PartitionEntry], brokers: Mapping[int, BrokerImage]
    ) -> list[LeaderAndIsrLiveLeader]:
        leaders = []
        for broker_id in {entry.state.leader: None for entry in entries}:
            broker = brokers.get(broker_id)
            endpoint = broker.endpoint(self._listener_name) if broker is not None else None
            if endpoint is not None:
                leader = LeaderAndIsrLiveLeader(broker_id=broker_id, host_name=endpoint.host, port=endpoint.port)
                leaders.append(leader)
        return leaders


def _roles_of(entry: PartitionEntry) -> LeaderAndIsrTopicState:
    return LeaderAndIsrTopicState(topic_name=entry.topic, topic_id=entry.topic_id, partition_states=[])


def _metadata_of(entry: PartitionEntry) -> UpdateMetadataTopicState:
    return UpdateMetadataTopicState(topic_name=entry.topic, topic_id=entry.topic_id, partition_states=[])


def _stops_of(entry: StopEntry) -> StopReplicaTopicState:
    return StopReplicaTopicState(topic_name=entry.topic, partition_states=[])


def _stop(entry: StopEntry) -> StopReplicaPartitionState:
    return StopReplicaPartitionState(
        partition_index=entry.partition, leader_epoch=entry.leader_epoch, delete_partition=entry.is_deletion
    )


def _role(entry: PartitionEntry, epoch: int) -> LeaderAndIsrPartitionState:
    state = entry.state
    return LeaderAndIsrPartitionState(
        partition_index=entry.partition,
        controller_epoch=epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        partition_epoch=entry.partition_epoch,
        replicas=list(state.replicas),
        adding_replicas=list(entry.adding),
        removing_replicas=list(entry.removing),
        is_new=entry.is_new,
        leader_recovery_state=RECOVERING if entry.is_recovering else 0,
    )


def _metadata(entry: PartitionEntry, epoch: int) -> UpdateMetadataPartitionState:
    state = entry.state
    return UpdateMetadataPartitionState(
        partition_index=entry.partition,
        controller_epoch=epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        zk_version=entry.partition_epoch,
        replicas=list(state.replicas),
        offline_replicas=list(entry.offline),
    )


def _broker(broker: BrokerImage) -> UpdateMetadataBroker:
    endpoints = [
        UpdateMetadataEndpoint(
            port=endpoint.port,
            host=endpoint.host,
            listener=endpoint.listener_name,
            security_protocol=SECURITY_PROTOCOLS.index(endpoint.security_protocol),
        )
        for endpoint in broker.endpoints
    ]
    return UpdateMetadataBroker(id=broker.id, endpoints=endpoints, rack=broker.rack)


def leader_and_isr_answered(
    sending: SendToBroker, request: LeaderAndIsrBatch, response: LeaderAndIsrResponse
) -> Sliced[LeaderAndIsrAnswered]:
    """The partitions that a LeaderAndIsr response reports online or offline, found topic by topic."""
    names: dict[UUID, str] = {}
    for topic, entries in groupby(request.entries, attrgetter("topic")):
        names[next(entries).topic_id] = topic
        yield
    online: list[PartitionKey] = []
    offline: list[PartitionKey] = []
    for answered in response.topics:
        name = names[answered.topic_id]
        for count, partition in enumerate(answered.partition_errors, 1):
            if partition.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                offline.append((name, partition.partition_index))
            elif partition.error_code == ErrorCode.NONE:
                online.append((name, partition.partition_index))
            if not count % CHUNK_ITEMS:
                yield
        yield
    return LeaderAndIsrAnswered(sending.broker_id, sending.broker_epoch, online, offline)


def deletion_answered(
    sending: SendToBroker, request: StopReplicaBatch, response: StopReplicaResponse
) -> Sliced[DeletionAnswered | None]:
    """The replicas that a StopReplica response reports deleted or not, in steps; None if none were to be deleted."""
    if not any(stop.is_deletion for stop in request.entries):
        return None
    errors: dict[PartitionKey, int] = {}
    for count, each in enumerate(response.partition_errors, 1):
        errors[each.topic_name, each.partition_index] = each.error_code
        if not count % CHUNK_ITEMS:
            yield
    deleted: list[PartitionKey] = []
    failed: list[PartitionKey] = []
    for count, stop in enumerate(request.entries, 1):
        if stop.is_deletion:
            key = stop.topic, stop.partition
            (failed if response.error_code or errors.get(key, ErrorCode.NONE) else deleted).append(key)
        if not count % CHUNK_ITEMS:
            yield
    return DeletionAnswered(sending.broker_id, sending.broker_epoch, deleted, failed)
