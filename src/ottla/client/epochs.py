"""The ends of leader epochs in the log of a partition's leader (OffsetForLeaderEpoch, KIP-101)."""

from __future__ import annotations

from ottla.client.errors import BrokerError
from ottla.client.model import TopicPartition
from ottla.peer.cluster import Cluster
from ottla.peer.model import CONSUMER
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


async def end_of_epoch(cluster: Cluster, partition: TopicPartition, epoch: int) -> tuple[int, int]:
    """Return the leader's largest epoch that is at most `epoch`, and the offset where it ends there.

    Both are -1 if the leader knows none. Raises the errors of `Cluster.retry`.
    """

    async def attempt() -> tuple[int, int]:
        leader = await cluster.leader(partition)
        asked = OffsetForLeaderPartition(partition=partition.partition, leader_epoch=epoch)
        topic = OffsetForLeaderTopic(topic=partition.topic, partitions=[asked])
        request = OffsetForLeaderEpochRequest(replica_id=CONSUMER, topics=[topic])
        answer: OffsetForLeaderEpochResponse = await cluster.request(leader, request)
        for found in answer.topics:
            for each in found.partitions:
                if each.error_code != ErrorCode.NONE:
                    raise BrokerError(each.error_code, f"no end of leader epoch {epoch} of {partition} from {leader}")
                return each.leader_epoch, each.end_offset
        raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {leader} left {partition} out of its answer")

    return await cluster.retry(f"looking up leader epoch {epoch} of {partition}", attempt)
