"""Topics as their brokers see them: leaders, in-sync replicas, offsets, sizes, and how far each replica is.

Every broker is asked once, for all its replicas; one that does not answer costs its own figures only. The end of a
follower comes from ListOffsets with Kafka's replica id of debugging tools (-2), which any replica answers.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.client.admin.brokers import described_log_dir
from ottla.client.admin.configs import config_entry
from ottla.client.admin.model import ConfigEntry, LogDirDescription, ResourceType
from ottla.client.errors import BrokerError, ClientError
from ottla.client.model import EARLIEST, LATEST, Node, TopicPartition, by_topic
from ottla.client.offsets import list_offsets_request, offsets_in
from ottla.peer.cluster import Cluster
from ottla.peer.metadata import NO_NODE
from ottla.peer.model import CONSUMER, PartitionMetadata, TopicMetadata
from ottla.wire.errors import ErrorCode
from ottla.wire.lost_records import LostRecords
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

ANY_REPLICA = -2
"""In place of a replica's broker id: a tool that may ask any replica for the end of its log
(`ListOffsetsRequest.DEBUGGING_REPLICA_ID`)."""
MIN_ISR = "min.insync.replicas"
NO_EPOCH = -1
_Moving = Mapping[TopicPartition, tuple[tuple[int, ...], tuple[int, ...]]]
"""Replicas that reassignments add and remove."""
TOPICS_A_REQUEST = 1000
"""Topics whose settings are asked for in one request."""


@dataclass(slots=True, frozen=True)
class ReplicaStatus:
    """A replica. What its broker did not answer is None; `lag` is in records behind the end of the leader's log."""

    broker: int
    is_in_sync: bool
    is_offline: bool = False
    log_end_offset: int | None = None
    lag: int | None = None
    size_bytes: int | None = None


@dataclass(slots=True, frozen=True)
class PartitionStatus:
    """A partition and its replicas, the preferred leader first; `leader` is -1 while there is none.

    `log_start_offset` and `high_watermark` are the leader's, None if it did not answer. `adding` and `removing` are the
    replicas that a reassignment under way brings and takes.
    """

    partition: TopicPartition
    leader: int
    leader_epoch: int
    replicas: tuple[ReplicaStatus, ...]
    log_start_offset: int | None = None
    high_watermark: int | None = None
    min_insync_replicas: int | None = None
    is_leader_alive: bool = True
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    #: Why the leader could not write the last records that were sent to it, as brokers of ottla report it.
    refusal: str | None = None

    @property
    def isr(self) -> tuple[int, ...]:
        """Ids of the brokers whose replicas are in sync, in the order of the replicas."""
        return tuple(each.broker for each in self.replicas if each.is_in_sync)

    @property
    def is_offline(self) -> bool:
        """Whether no live broker leads it (`--unavailable-partitions`)."""
        return self.leader == NO_NODE or not self.is_leader_alive

    @property
    def is_under_replicated(self) -> bool:
        """Whether fewer replicas are in sync than wanted, those that a reassignment adds not counted."""
        return len(self.isr) < len(self.replicas) - len(self.adding)

    @property
    def is_under_min_isr(self) -> bool:
        """Whether it has no leader, or fewer replicas in sync than min.insync.replicas, as Kafka's tool counts."""
        return self.leader == NO_NODE or len(self.isr) < (self.min_insync_replicas or 0)

    @property
    def is_refusing_acks_all(self) -> bool:
        """Whether acks=all is refused; with fewer replicas than min.insync.replicas, all of them have to be in sync."""
        return self.leader == NO_NODE or len(self.isr) < min(self.min_insync_replicas or 0, len(self.replicas))

    @property
    def is_at_min_isr(self) -> bool:
        """Whether the next replica that falls behind stops acks=all."""
        return len(self.isr) == self.min_insync_replicas

    @property
    def is_well(self) -> bool:
        """Whether it has a leader that can write, and all replicas are in sync."""
        return not (self.is_offline or self.is_refusing_acks_all or self.is_under_replicated or self.refusal)

    @property
    def records(self) -> int | None:
        """Offsets between the start of the log and the high watermark."""
        if self.high_watermark is None or self.log_start_offset is None:
            return None
        return max(0, self.high_watermark - self.log_start_offset)

    @property
    def size_bytes(self) -> int | None:
        """Bytes of the leader's log, None if unknown."""
        return next((each.size_bytes for each in self.replicas if each.broker == self.leader), None)

    @property
    def lag(self) -> int | None:
        """The largest lag of a replica, None if none is known."""
        return max((each.lag for each in self.replicas if each.lag is not None), default=None)


@dataclass(slots=True, frozen=True)
class TopicStatus:
    """A topic; `configs` are its settings by name, empty where they were not asked for or may not be read."""

    name: str
    partitions: tuple[PartitionStatus, ...]
    is_internal: bool = False
    topic_id: uuid.UUID | None = None
    configs: Mapping[str, ConfigEntry] = field(default_factory=dict)

    @property
    def replication_factor(self) -> int:
        """Replicas of its first partition, as Kafka's tool counts them."""
        return len(self.partitions[0].replicas) if self.partitions else 0

    @property
    def overrides(self) -> dict[str, str | None]:
        """Settings of its own, with their values."""
        own = (each for each in self.configs.values() if each.source == "DYNAMIC_TOPIC_CONFIG")
        return {each.name: each.value for each in own}

    @property
    def records(self) -> int:
        """Records between start and high watermark of the partitions where both are known."""
        return sum(each.records or 0 for each in self.partitions)

    @property
    def size_bytes(self) -> int:
        """Bytes of all replicas that are known."""
        return sum(each.size_bytes or 0 for partition in self.partitions for each in partition.replicas)


@dataclass(slots=True, frozen=True)
class BrokerStatus:
    """A registered broker; `log_dirs` by path. `problem` says why it did not answer.

    `is_refusal` says that the problem is an error that the broker answered.
    """

    node: Node
    log_dirs: Mapping[str, LogDirDescription] = field(default_factory=dict)
    problem: str | None = None
    is_refusal: bool = False

    @property
    def failed_log_dirs(self) -> list[str]:
        """Paths of log directories that are offline."""
        return [each.path for each in self.log_dirs.values() if each.error is not None]

    @property
    def size_bytes(self) -> int:
        """Bytes of all logs in its log directories."""
        return sum(each.size_bytes for each in self.log_dirs.values())


class LossStatus(NamedTuple):
    """The report of the replica on `broker` on records that are lost, or that it removed as a follower."""

    partition: TopicPartition
    broker: int
    report: LostRecords


class BrokerRow(NamedTuple):
    """A broker and what it has; `host` is None for one that has replicas and is not registered."""

    broker: int
    host: str | None
    port: int | None
    rack: str | None
    is_controller: bool
    leads: int
    replicas: int
    in_sync: int
    size_bytes: int | None
    log_dirs: Sequence[Mapping[str, Any]]
    problem: str | None


@dataclass(slots=True, frozen=True)
class ClusterStatus:
    """A cluster at one moment; `controller` is None while there is none."""

    cluster_id: str | None
    controller: int | None
    brokers: tuple[BrokerStatus, ...]
    topics: tuple[TopicStatus, ...]
    missing: Mapping[str, BrokerError]

    @property
    def registered(self) -> list[int]:
        """Ids of the registered brokers."""
        return [each.node.node_id for each in self.brokers]

    @property
    def silent(self) -> dict[int, str]:
        """Why brokers did not answer, by their ids."""
        return {each.node.node_id: each.problem for each in self.brokers if each.problem is not None}

    @property
    def absent(self) -> list[int]:
        """Ids of brokers that have replicas and are not registered, sorted."""
        held = {each.broker for partition in self.partitions for each in partition.replicas}
        return sorted(held.difference(self.registered))

    def broker_row(self, broker: int) -> BrokerRow:
        """A broker with the number of partitions that it leads, of its replicas, and of those in sync."""
        known = next((each for each in self.brokers if each.node.node_id == broker), None)
        replicas = [each for partition in self.partitions for each in partition.replicas if each.broker == broker]
        return BrokerRow(
            broker=broker,
            host=None if known is None else known.node.host,
            port=None if known is None else known.node.port,
            rack=None if known is None else known.node.rack,
            is_controller=broker == self.controller,
            leads=sum(each.leader == broker for each in self.partitions),
            replicas=len(replicas),
            in_sync=sum(each.is_in_sync for each in replicas),
            size_bytes=None if known is None or known.problem else known.size_bytes,
            log_dirs=[
                {name: getattr(each, name) for name in ("path", "total_bytes", "usable_bytes", "error")}
                for each in (known.log_dirs.values() if known else ())
            ],
            problem=None if known is None else known.problem,
        )

    @property
    def is_well(self) -> bool:
        """Whether there is a controller, every broker answered, no log directory failed, all replicas are in sync."""
        return (
            self.controller is not None
            and not any(each.problem or each.failed_log_dirs for each in self.brokers)
            and all(each.is_well for each in self.partitions)
        )

    @property
    def refusals(self) -> list[tuple[TopicPartition, int, str]]:
        """Replicas that could not write the last records that came, each with its broker and the reason."""
        return sorted(
            (partition, broker.node.node_id, reason)
            for broker in self.brokers
            for log_dir in broker.log_dirs.values()
            for partition, reason in log_dir.refusals.items()
        )

    @property
    def losses(self) -> list[LossStatus]:
        """Records that were lost, as brokers of ottla report it; by partition, oldest first.

        Elections without being in sync, and removals by followers: of committed records, or of records of former
        leaders in favour of such an election. Other removals are usual when a leader dies, and lose nothing that was
        acknowledged by all.
        """
        found = [
            LossStatus(partition, broker.node.node_id, report)
            for broker in self.brokers
            for log_dir in broker.log_dirs.values()
            for partition, reports in log_dir.lost_records.items()
            for report in reports
        ]
        elections: dict[TopicPartition, list[int]] = {}
        for partition, _, report in found:
            if report.is_election:
                elections.setdefault(partition, []).append(report.leader_epoch)

        def is_loss(each: LossStatus) -> bool:
            report = each.report
            newest = max(report.epochs, default=NO_EPOCH)
            return (
                report.is_election
                or report.was_committed
                or any(newest < epoch <= report.leader_epoch for epoch in elections.get(each.partition, ()))
            )

        return sorted(filter(is_loss, found), key=lambda each: (each.partition, each.report.at_ms, each.broker))

    @property
    def partitions(self) -> list[PartitionStatus]:
        """The partitions of all topics."""
        return [each for topic in self.topics for each in topic.partitions]


@dataclass(slots=True)
class _Reply:
    """The answers of one broker."""

    ends: dict[TopicPartition, int] = field(default_factory=dict)
    high_watermarks: dict[TopicPartition, int] = field(default_factory=dict)
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    sizes: dict[TopicPartition, int] = field(default_factory=dict)
    log_dirs: dict[str, LogDirDescription] = field(default_factory=dict)
    problem: str | None = None
    is_refusal: bool = False


async def read_cluster_status(
    cluster: Cluster,
    names: Sequence[str] | None = None,
    *,
    configs: Sequence[str] | None = (MIN_ISR,),
    sizes: bool = True,
    offsets: bool = True,
) -> ClusterStatus:
    """Ask all brokers for these topics, None for all of them.

    Args:
        cluster: connections to it.
        names: the topics; those that do not exist are in `missing`.
        configs: names of the settings to ask for, None for all of them.
        sizes: ask every broker for offsets and sizes; without, only what metadata and settings say.
        offsets: ask for the offsets, too, of which there is one for each replica.

    Raises ClientError where no broker answers at all; a single broker's failure is its `problem`.
    """
    metadata = await cluster.retry("reading the metadata", lambda: cluster.refresh(names))
    wanted = sorted(metadata.topics) if names is None else [name for name in names if name in metadata.topics]
    topics = [metadata.topics[name] for name in wanted]
    missing = {
        name: BrokerError(metadata.errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), f"topic {name}")
        for name in names or ()
        if name not in metadata.topics
    }
    settings = await _configs(cluster, wanted, configs)
    # As they are in this answer: a request to the controller that fails has it looked up again.
    nodes, controller = dict(metadata.nodes), metadata.controller_id
    moving = await _reassignments(cluster) if sizes else {}
    replies = {each: _Reply() for each in nodes}
    if sizes:
        replies = await _ask_all(cluster, list(nodes), topics, all_topics=names is None, offsets=offsets)
    return ClusterStatus(
        cluster_id=metadata.cluster_id,
        controller=controller if controller in nodes else None,
        brokers=tuple(
            BrokerStatus(nodes[each], replies[each].log_dirs, replies[each].problem, replies[each].is_refusal)
            for each in sorted(nodes)
        ),
        topics=tuple(_topic_status(each, settings.get(each.name, {}), nodes, replies, moving) for each in topics),
        missing=missing,
    )


async def _configs(
    cluster: Cluster, names: Sequence[str], keys: Sequence[str] | None
) -> dict[str, dict[str, ConfigEntry]]:
    """Settings by topic; topics whose settings may not be read, or that are gone, are left out."""
    wanted = None if keys is None else list(keys)
    if wanted == []:
        return {}
    found: dict[str, dict[str, ConfigEntry]] = {}
    for start in range(0, len(names), TOPICS_A_REQUEST):
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=ResourceType.TOPIC, resource_name=name, configuration_keys=wanted)
                for name in names[start : start + TOPICS_A_REQUEST]
            ]
        )

        async def attempt(request: DescribeConfigsRequest = request) -> DescribeConfigsResponse:
            answer: DescribeConfigsResponse = await cluster.request_any(request)
            return answer

        for result in (await cluster.retry("reading settings of topics", attempt)).results:
            if result.error_code == ErrorCode.NONE:
                found[result.resource_name] = {each.name: config_entry(each) for each in result.configs}
    return found


async def _reassignments(cluster: Cluster) -> _Moving:
    """Replicas that are added and removed; nothing where the brokers cannot or may not say, or have no controller now.

    Source: TopicCommand.listAllReassignments.
    """
    request = ListPartitionReassignmentsRequest(timeout_ms=cluster.settings.request_timeout_ms)
    try:
        answer: ListPartitionReassignmentsResponse = await cluster.request_controller(request)
    except ClientError:
        return {}
    return {
        TopicPartition(topic.name, each.partition_index): (tuple(each.adding_replicas), tuple(each.removing_replicas))
        for topic in answer.topics
        for each in topic.partitions
    }


async def _ask_all(
    cluster: Cluster, brokers: Sequence[int], topics: Sequence[TopicMetadata], *, all_topics: bool, offsets: bool
) -> dict[int, _Reply]:
    """Ask each broker.

    Ends of logs are asked for after all leaders have given their high watermarks: no replica in sync is behind those.
    """
    hosted: dict[int, dict[TopicPartition, PartitionMetadata]] = {broker: {} for broker in brokers}
    for topic in topics:
        for each in topic.partitions:
            for broker in each.replicas:
                if broker in hosted:
                    hosted[broker][TopicPartition(topic.name, each.partition)] = each
    replies = {broker: _Reply() for broker in brokers}

    async def ask_first(broker: int) -> None:
        await _ask_log_dirs(cluster, broker, hosted[broker], all_topics, replies[broker])
        if offsets:
            led = [partition for partition, each in hosted[broker].items() if each.leader == broker]
            replies[broker].high_watermarks = await _offsets(cluster, broker, led, LATEST, CONSUMER)
            replies[broker].starts = await _offsets(cluster, broker, led, EARLIEST, CONSUMER)

    async def ask_ends(broker: int) -> None:
        replies[broker].ends = await _offsets(cluster, broker, list(hosted[broker]), LATEST, ANY_REPLICA)

    async def noted(broker: int, work: Awaitable[None]) -> None:
        try:
            await work
        except ClientError as error:
            replies[broker].problem, replies[broker].is_refusal = str(error), isinstance(error, BrokerError)

    await asyncio.gather(*(noted(each, ask_first(each)) for each in brokers))
    if offsets:
        await asyncio.gather(*(noted(each, ask_ends(each)) for each in brokers if replies[each].problem is None))
    return replies


async def _ask_log_dirs(
    cluster: Cluster, broker: int, hosted: Mapping[TopicPartition, object], all_topics: bool, reply: _Reply
) -> None:
    wanted = [
        DescribableLogDirTopic(topic=name, partitions=partitions)
        for name, partitions in by_topic({each: each.partition for each in hosted}).items()
    ]
    answer: DescribeLogDirsResponse = await cluster.request(
        broker, DescribeLogDirsRequest(topics=None if all_topics else wanted)
    )
    if answer.error_code != ErrorCode.NONE:
        raise BrokerError(answer.error_code, f"broker {broker} does not describe its log directories")
    reply.log_dirs = {each.log_dir: described_log_dir(each) for each in answer.results}
    for found in reply.log_dirs.values():
        reply.sizes |= {each: replica.size_bytes for each, replica in found.replicas.items() if not replica.is_future}


async def _offsets(
    cluster: Cluster, broker: int, partitions: Sequence[TopicPartition], at: int, replica_id: int
) -> dict[TopicPartition, int]:
    """Offsets of the broker's own replicas; those that it does not have are left out."""
    if not partitions:
        return {}
    request = list_offsets_request(dict.fromkeys(partitions, at), replica_id=replica_id)
    found, _ = offsets_in(await cluster.request(broker, request), broker, partitions)
    return {each: offset.offset for each, offset in found.items() if offset is not None}


def _topic_status(
    topic: TopicMetadata,
    configs: Mapping[str, ConfigEntry],
    nodes: Mapping[int, Node],
    replies: Mapping[int, _Reply],
    moving: _Moving,
) -> TopicStatus:
    min_isr = configs[MIN_ISR].value if MIN_ISR in configs else None
    return TopicStatus(
        name=topic.name,
        partitions=tuple(
            _partition_status(topic.name, each, None if min_isr is None else int(min_isr), nodes, replies, moving)
            for each in topic.partitions
        ),
        is_internal=topic.is_internal,
        topic_id=topic.topic_id,
        configs=configs,
    )


def _partition_status(
    topic: str,
    known: PartitionMetadata,
    min_isr: int | None,
    nodes: Mapping[int, Node],
    replies: Mapping[int, _Reply],
    moving: _Moving,
) -> PartitionStatus:
    partition = TopicPartition(topic, known.partition)
    leader = replies.get(known.leader, _Reply())
    end = leader.ends.get(partition)

    def replica(broker: int) -> ReplicaStatus:
        reply = replies.get(broker, _Reply())
        own_end = reply.ends.get(partition)
        return ReplicaStatus(
            broker=broker,
            is_in_sync=broker in known.isr,
            is_offline=broker in known.offline_replicas or broker not in nodes,
            log_end_offset=own_end,
            # The leader may have been asked first and have grown since.
            lag=None if end is None or own_end is None else max(0, end - own_end),
            size_bytes=reply.sizes.get(partition),
        )

    adding, removing = moving.get(partition, ((), ()))
    if not {*adding, *removing} & set(known.replicas):
        adding, removing = (), ()  # it ended between the two answers
    return PartitionStatus(
        partition=partition,
        leader=known.leader,
        leader_epoch=known.leader_epoch,
        replicas=tuple(replica(each) for each in known.replicas),
        log_start_offset=leader.starts.get(partition),
        high_watermark=leader.high_watermarks.get(partition),
        min_insync_replicas=min_isr,
        is_leader_alive=known.leader in nodes,
        adding=adding,
        removing=removing,
        refusal=next(
            (each.refusals[partition] for each in leader.log_dirs.values() if partition in each.refusals), None
        ),
    )
