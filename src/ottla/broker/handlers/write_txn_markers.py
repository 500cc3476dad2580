"""WriteTxnMarkers (key 27), versions 0-1: a coordinator has markers written that end transactions (KIP-98).

1 is flexible. The response comes when all markers are committed, or their time is up. Administrators send it as well,
to abort a transaction that hangs (KIP-664, KIP-1037).
"""

from __future__ import annotations

import asyncio
from functools import partial

from ottla.broker.authorization import CLUSTER_ACTION, Accesses, on_cluster, or_else
from ottla.broker.context import RequestContext
from ottla.broker.coordinators.transaction_markers import marker_of
from ottla.cluster.acls import CLUSTER_NAME, Operation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


def accesses(context: RequestContext, request: WriteTxnMarkersRequest) -> Accesses:
    """ALTER of the cluster, for administrators, or CLUSTER_ACTION, for brokers."""
    return or_else(on_cluster(Operation.ALTER), (CLUSTER_ACTION,))


def handle(context: RequestContext, request: WriteTxnMarkersRequest) -> None:
    """Append the markers; what was begun continues if the coordinator disconnects."""
    is_allowed = context.permits(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME) or context.permits(
        *CLUSTER_ACTION
    )
    if is_allowed:
        context.spawn(_write(context, request))
    else:
        context.answer_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, request)


async def _write(context: RequestContext, request: WriteTxnMarkersRequest) -> None:
    writer = context.broker.transactions.markers
    awaited = _Outcomes()
    results = []
    for wanted in request.markers:
        marker = marker_of(wanted)
        topics = []
        for topic in wanted.topics:
            partitions = []
            for index in topic.partition_indexes:
                result = WritableTxnMarkerPartitionResult(partition_index=index, error_code=0)
                partitions.append(result)
                awaited.begin()
                writer.write(topic.name, index, marker, partial(awaited.settle, result))
                await context.broker.slices.point()
            topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
        results.append(WritableTxnMarkerResult(producer_id=wanted.producer_id, topics=topics))
    await awaited.all()
    await context.replied(WriteTxnMarkersResponse(markers=results))


class _Outcomes:
    """The outcomes of markers, as they come."""

    def __init__(self) -> None:
        self._left = 0
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self) -> None:
        """Wait for another one."""
        self._left += 1

    def settle(self, result: WritableTxnMarkerPartitionResult, error: ErrorCode) -> None:
        """Note an outcome."""
        result.error_code = int(error)
        self._left -= 1
        if not self._left and not self._done.done():
            self._done.set_result(None)

    async def all(self) -> None:
        """Wait for all."""
        while self._left:
            self._done = asyncio.get_running_loop().create_future()
            await self._done
