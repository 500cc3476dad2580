"""AlterPartition (key 56), versions 0-3: leaders propose ISRs to the controller (KIP-497).

1 adds the recovery state of the leader (KIP-704); 2 takes topic ids and may answer INELIGIBLE_REPLICA (KIP-841); 3 has
the broker epochs of the proposed replicas (KIP-903), which are -1 with ZooKeeper.
"""

from __future__ import annotations

from ottla.broker.authorization import CLUSTER_ACTION, Accesses
from ottla.broker.context import RequestContext
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse


def accesses(context: RequestContext, request: AlterPartitionRequest) -> Accesses:
    return (CLUSTER_ACTION,)


def handle(context: RequestContext, request: AlterPartitionRequest) -> None:
    """Have the controller decide; what it has begun continues if the broker disconnects."""
    if not context.permits(*CLUSTER_ACTION):
        context.reply(AlterPartitionResponse(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)))
        return
    context.spawn(_answer(context, request))


async def _answer(context: RequestContext, request: AlterPartitionRequest) -> None:
    await context.replied(await context.broker.control.served.alter_partitions(request, context.api_version))
