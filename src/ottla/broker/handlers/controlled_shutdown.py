"""ControlledShutdown (key 7), versions 0-3: a broker that wants to stop asks the controller to move its leaders.

0 has a header without a client id; 2 adds the broker epoch (KIP-380); 3 is flexible.
"""

from __future__ import annotations

from ottla.broker.authorization import CLUSTER_ACTION, Accesses
from ottla.broker.context import RequestContext
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse


def accesses(context: RequestContext, request: ControlledShutdownRequest) -> Accesses:
    return (CLUSTER_ACTION,)


def handle(context: RequestContext, request: ControlledShutdownRequest) -> None:
    """Have the controller decide; what it has begun continues if the broker disconnects."""
    if not context.permits(*CLUSTER_ACTION):
        context.reply(ControlledShutdownResponse(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)))
        return
    context.spawn(_answer(context, request))


async def _answer(context: RequestContext, request: ControlledShutdownRequest) -> None:
    await context.replied(await context.broker.control.served.controlled_shutdown(request))
