"""UpdateMetadata (key 6), versions 0-8: the controller makes brokers, partitions and leaders known to this broker.

1 has several endpoints of a broker; 2 racks; 3 names of listeners; 4 offline replicas; 5 checks the broker epoch
(KIP-380), partitions by topic; 7 topic ids (KIP-516); 8 says whether the controller is one of KRaft, which is refused
(KIP-866).
"""

from __future__ import annotations

from uuid import UUID

from ottla.broker.authorization import CLUSTER_ACTION, Accesses
from ottla.broker.context import RequestContext
from ottla.broker.control.control_requests import entries_by_topic, header_of
from ottla.cluster.control_batches import PartitionEntry
from ottla.cluster.image import BrokerImage, PartitionImage
from ottla.config.listeners import SECURITY_PROTOCOLS, Endpoint
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from ottla.zk.tree import ZkError


def accesses(context: RequestContext, request: UpdateMetadataRequest) -> Accesses:
    return (CLUSTER_ACTION,)


def handle(context: RequestContext, request: UpdateMetadataRequest) -> None:
    """Apply it to the end, also if the controller disconnects: it sends it again then."""
    if not context.permits(*CLUSTER_ACTION):
        context.answer_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, request)
        return
    context.spawn(_apply(context, request))


async def _apply(context: RequestContext, request: UpdateMetadataRequest) -> None:
    brokers = {broker.id: _broker(broker) for broker in request.live_brokers}
    topics = await entries_by_topic(request, context.broker.slices, _entry)
    try:
        error = await context.broker.control_requests.update_metadata(header_of(request), brokers, topics)
    except ZkError:
        context.disconnect()  # the settings of new topics cannot be read: the controller tries again
        return
    context.reply(UpdateMetadataResponse(error_code=int(error)))


def _entry(topic: str, topic_id: UUID, state: UpdateMetadataPartitionState) -> PartitionEntry:
    image = PartitionImage(state.leader, state.leader_epoch, tuple(state.replicas), tuple(state.isr))
    return PartitionEntry(
        topic, topic_id, state.partition_index, image, state.zk_version, tuple(state.offline_replicas)
    )


def _broker(broker: UpdateMetadataBroker) -> BrokerImage:
    endpoints = [_endpoint(endpoint) for endpoint in broker.endpoints]
    if broker.v0_host:
        endpoints.append(Endpoint("PLAINTEXT", "PLAINTEXT", broker.v0_host, broker.v0_port))
    return BrokerImage(broker.id, tuple(endpoints), broker.rack)


def _endpoint(endpoint: UpdateMetadataEndpoint) -> Endpoint:
    """Before version 3 a listener has the name of its security protocol."""
    known = 0 <= endpoint.security_protocol < len(SECURITY_PROTOCOLS)
    protocol = SECURITY_PROTOCOLS[endpoint.security_protocol] if known else str(endpoint.security_protocol)
    return Endpoint(endpoint.listener or protocol, protocol, endpoint.host, endpoint.port)
