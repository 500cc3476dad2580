"""DescribeCluster (key 60), versions 0-1: cluster id, controller, brokers (KIP-700).

1 asks for the endpoints of brokers or of controllers (KIP-919); controllers have none of their own here.
"""

from __future__ import annotations

from ottla.broker.authorization import Accesses, on_cluster
from ottla.broker.context import RequestContext
from ottla.broker.handlers.metadata import cluster_operations, knows_brokers, reachable_brokers
from ottla.cluster.acls import Operation
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1
CONTROLLERS = 2


def accesses(context: RequestContext, request: DescribeClusterRequest) -> Accesses:
    """DESCRIBE of the cluster for its operations; without it there are none."""
    return (on_cluster(Operation.DESCRIBE),) if request.include_cluster_authorized_operations else ()


def handle(context: RequestContext, request: DescribeClusterRequest) -> None:
    """Reply from the image, with the endpoints of the listener that received the request."""
    if request.endpoint_type != BROKERS:
        context.reply(_refuse_endpoint_type(request.endpoint_type))
        return
    context.run(_answer(context, request))


async def _answer(context: RequestContext, request: DescribeClusterRequest) -> None:
    if not await knows_brokers(context):
        context.disconnect()
        return
    image = context.broker.image
    brokers = [
        DescribeClusterBroker(broker_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
        for broker, endpoint in reachable_brokers(context)
    ]
    context.reply(
        DescribeClusterResponse(
            cluster_id=image.cluster_id,
            controller_id=image.controller_id,
            brokers=brokers,
            cluster_authorized_operations=cluster_operations(context, request.include_cluster_authorized_operations),
        )
    )


def _refuse_endpoint_type(endpoint_type: int) -> DescribeClusterResponse:
    if endpoint_type == CONTROLLERS:
        return DescribeClusterResponse(
            error_code=int(ErrorCode.MISMATCHED_ENDPOINT_TYPE),
            error_message="The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type "
            "CONTROLLER",
        )
    return DescribeClusterResponse(
        error_code=int(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        error_message=f"Unsupported endpoint type {endpoint_type}",
    )
