"""AllocateProducerIds (key 67), version 0: the controller's next block of producer ids for a broker (KIP-730)."""

from __future__ import annotations

from ottla.broker.authorization import CLUSTER_ACTION, Accesses
from ottla.broker.context import RequestContext
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse


def accesses(context: RequestContext, request: AllocateProducerIdsRequest) -> Accesses:
    return (CLUSTER_ACTION,)


def handle(context: RequestContext, request: AllocateProducerIdsRequest) -> None:
    """Have the controller decide; what it has begun continues if the broker disconnects."""
    if not context.permits(*CLUSTER_ACTION):
        context.reply(AllocateProducerIdsResponse(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)))
        return
    context.spawn(_answer(context, request))


async def _answer(context: RequestContext, request: AllocateProducerIdsRequest) -> None:
    await context.replied(await context.broker.control.served.allocate_producer_ids(request))
