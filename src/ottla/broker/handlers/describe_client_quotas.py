"""DescribeClientQuotas (key 48), versions 0-1: the quotas of the entities that a filter finds (KIP-546)."""

from __future__ import annotations

from ottla.broker.authorization import Accesses, on_cluster
from ottla.broker.context import RequestContext
from ottla.broker.error_answers import CLUSTER_DENIED, error_fields
from ottla.cluster.acls import CLUSTER_NAME, Operation, ResourceType
from ottla.cluster.quotas import ABSENT, DEFAULT, ComponentFilter, filter_of, is_found
from ottla.cluster.refusal import TopicRefusal
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

EXACT, OF_DEFAULT, ANY = range(3)


def accesses(context: RequestContext, request: DescribeClientQuotasRequest) -> Accesses:
    yield on_cluster(Operation.DESCRIBE_CONFIGS)


def handle(context: RequestContext, request: DescribeClientQuotasRequest) -> None:
    context.connection.keep_frame()
    context.run(_describe(context, request))


async def _describe(context: RequestContext, request: DescribeClientQuotasRequest) -> None:
    slices = context.broker.slices
    if not context.permits(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        await context.replied(DescribeClientQuotasResponse(**error_fields(CLUSTER_DENIED), entries=None))
        return
    components = []
    for each in request.components:
        await slices.point()
        is_whole = each.match_type in (OF_DEFAULT, ANY) or (each.match_type == EXACT and each.match)
        if not is_whole and each.entity_type:
            await context.replied(
                DescribeClientQuotasResponse(error_code=int(ErrorCode.UNKNOWN_SERVER_ERROR), entries=None)
            )
            return
        components.append(
            ComponentFilter(each.entity_type, {OF_DEFAULT: DEFAULT, ANY: ABSENT}.get(each.match_type, each.match))
        )
    wanted = filter_of(components)
    if isinstance(wanted, TopicRefusal):
        await context.replied(DescribeClientQuotasResponse(**error_fields(wanted), entries=None))
        return
    entries = []
    for entity, values in (await context.broker.control.quotas.described()).items():
        await slices.point()
        if is_found(entity, wanted, strict=request.strict):
            entries.append(
                EntryData(
                    entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts],
                    values=[ValueData(key=key, value=value) for key, value in values.items()],
                )
            )
    await context.replied(DescribeClientQuotasResponse(error_message="", entries=entries))
