"""UnregisterBroker (key 64), version 0: forget a broker that will not come back (KIP-631).

Apache Kafka has this with KRaft only. Here any broker does it, for a broker that is dead and has no replicas.
"""

from __future__ import annotations

from ottla.broker.authorization import Accesses, on_cluster
from ottla.broker.context import RequestContext
from ottla.broker.control.unregistering import unregister
from ottla.broker.error_answers import error_fields
from ottla.cluster.acls import CLUSTER_NAME, Operation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


def accesses(context: RequestContext, request: UnregisterBrokerRequest) -> Accesses:
    yield on_cluster(Operation.ALTER)


def handle(context: RequestContext, request: UnregisterBrokerRequest) -> None:
    """Forget the broker, and reply with the reason where that is refused."""
    if not context.permits(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        context.reply(UnregisterBrokerResponse(error_code=int(refused), error_message=refused.message))
        return
    context.spawn(_unregister(context, request.broker_id))


async def _unregister(context: RequestContext, broker_id: int) -> None:
    broker = context.broker
    refusal = await unregister(broker.control, broker_id, broker.slices)
    await context.replied(UnregisterBrokerResponse(**error_fields(refusal)))
