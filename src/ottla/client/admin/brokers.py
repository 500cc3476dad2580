"""Brokers and their log directories."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.client.admin.model import ClusterDescription, LogDirDescription, ReplicaSize
from ottla.client.admin.outcomes import AdminCalls, Outcomes, no_such_broker
from ottla.client.errors import BrokerError, UnsupportedVersionError
from ottla.client.model import TopicPartition
from ottla.peer.arguments import MAX_INT32, several, whole_number
from ottla.peer.errors import KNOWN_CODES
from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.lost_records import (
    LOST_RECORDS_TAG,
    REFUSED_RECORDS_TAG,
    LostRecords,
    decode_lost_records,
    decode_refusal,
)
from ottla.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


class BrokerAdmin(AdminCalls):
    """Admin calls about brokers."""

    async def describe_cluster(self, *, timeout_ms: int | None = None) -> ClusterDescription:
        """Return the cluster's id, its controller and its brokers."""
        metadata = await self._cluster.retry("describing the cluster", lambda: self._cluster.refresh([]), timeout_ms)
        nodes = tuple(sorted(metadata.nodes.values()))
        return ClusterDescription(metadata.cluster_id, metadata.nodes.get(metadata.controller_id), nodes)

    async def unregister_broker(self, broker_id: int, *, timeout_ms: int | None = None) -> None:
        """Have the cluster forget a dead broker: its settings, and where settings of topics name it.

        Brokers of ottla do it, and Apache Kafka with KRaft. Raises BrokerError with the broker's reason
        (POLICY_VIOLATION: it is alive, or has replicas; BROKER_ID_NOT_REGISTERED: there is nothing to forget).
        """
        node_id = whole_number("the id of a broker", broker_id, 0, MAX_INT32)
        request = UnregisterBrokerRequest(broker_id=node_id)

        async def ask() -> UnregisterBrokerResponse:
            # Beside brokers of ottla there may be some that do not know this request.
            nodes = sorted((await self._cluster.refresh([])).nodes)
            for at, node in enumerate(nodes, 1):
                try:
                    answer: UnregisterBrokerResponse = await self._cluster.request(node, request)
                except UnsupportedVersionError:
                    if at == len(nodes):
                        raise
                else:
                    return answer
            raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, "no broker is known")

        async def attempt() -> None:
            answer = await ask()
            if answer.error_code != ErrorCode.NONE:
                what = f"broker {node_id} is not unregistered"
                raise BrokerError(answer.error_code, what, answer.error_message)

        await self._cluster.retry("unregistering a broker", attempt, timeout_ms)

    async def describe_log_dirs(
        self, brokers: Iterable[int] | None = None, *, timeout_ms: int | None = None
    ) -> dict[int, dict[str, LogDirDescription]]:
        """Return the log directories of these brokers (None: all) by path; a failed one has an `error`.

        Raises BrokerError, PartlyFailedError if several brokers were asked.
        """
        if brokers is None:
            brokers = [node.node_id for node in (await self.describe_cluster(timeout_ms=timeout_ms)).nodes]
        node_ids = [whole_number("the id of a broker", each, 0, MAX_INT32) for each in several("brokers", brokers)]
        outcomes: Outcomes[int, dict[str, LogDirDescription]] = Outcomes("describing log directories", node_ids)

        async def ask(broker: int, _: list[int]) -> None:
            if broker not in self._cluster.metadata.nodes:
                raise no_such_broker(self._cluster, broker)
            answer: DescribeLogDirsResponse = await self._cluster.request(broker, DescribeLogDirsRequest(topics=None))
            if answer.error_code != ErrorCode.NONE:
                raise BrokerError(answer.error_code, f"broker {broker} does not describe its log directories")
            outcomes.succeed(broker, {each.log_dir: described_log_dir(each) for each in answer.results})

        async def attempt(pending: list[int]) -> None:
            await self._cluster.refresh([])
            await outcomes.ask_each({broker: [broker] for broker in pending}, ask)

        return await outcomes.work_off(self._cluster, attempt, timeout_ms)


def described_log_dir(result: DescribeLogDirsResult) -> LogDirDescription:
    """A log directory as a broker describes it."""
    error = None
    if result.error_code != ErrorCode.NONE:
        known = KNOWN_CODES.get(result.error_code)
        error = f"code {result.error_code}" if known is None else f"{known.message} ({known.name})"
    partitions = {
        TopicPartition(topic.name, each.partition_index): each for topic in result.topics for each in topic.partitions
    }
    return LogDirDescription(
        path=result.log_dir,
        replicas={
            partition: ReplicaSize(each.partition_size, each.offset_lag, each.is_future_key)
            for partition, each in partitions.items()
        },
        total_bytes=result.total_bytes,
        usable_bytes=result.usable_bytes,
        error=error,
        lost_records={partition: lost for partition, each in partitions.items() if (lost := _lost_records(each))},
        refusals={
            partition: decode_refusal(data)
            for partition, each in partitions.items()
            if (data := (each.unknown_tagged_fields or {}).get(REFUSED_RECORDS_TAG)) is not None
        },
    )


def _lost_records(partition: DescribeLogDirsPartition) -> list[LostRecords]:
    """The lost records that a broker of ottla reports; none where the report is malformed."""
    data = (partition.unknown_tagged_fields or {}).get(LOST_RECORDS_TAG)
    try:
        return decode_lost_records(data) if data is not None else []
    except WireError:
        return []
