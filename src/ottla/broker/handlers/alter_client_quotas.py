"""AlterClientQuotas (key 49), versions 0-1: set and remove quotas of entities (KIP-546). Any broker does it."""

from __future__ import annotations

from ottla.broker.authorization import Accesses, on_cluster
from ottla.broker.config_changes import CHANGES_LIMIT, TOO_MANY_CHANGES
from ottla.broker.context import RequestContext
from ottla.broker.error_answers import CLUSTER_DENIED, error_fields
from ottla.cluster.acls import CLUSTER_NAME, Operation, ResourceType
from ottla.cluster.quotas import entity_of
from ottla.cluster.refusal import TopicRefusal
from ottla.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
    EntityData,
    EntryData,
)


def accesses(context: RequestContext, request: AlterClientQuotasRequest) -> Accesses:
    yield on_cluster(Operation.ALTER_CONFIGS)


def handle(context: RequestContext, request: AlterClientQuotasRequest) -> None:
    """Change the quotas of each entity; each has its own result."""
    context.connection.keep_frame()
    context.spawn(_alter(context, request))


async def _alter(context: RequestContext, request: AlterClientQuotasRequest) -> None:
    permitted = context.permits(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)
    results = []
    for entry in request.entries:
        await context.broker.slices.point()
        if context.is_gone:
            return
        refusal = await _changed(context, entry, request.validate_only) if permitted else CLUSTER_DENIED
        results.append(
            AlterClientQuotasResponseEntryData(
                **error_fields(refusal),
                entity=[
                    EntityData(entity_type=each.entity_type, entity_name=each.entity_name) for each in entry.entity
                ],
            )
        )
    await context.replied(AlterClientQuotasResponse(entries=results))


async def _changed(context: RequestContext, entry: EntryData, validate_only: bool) -> TopicRefusal | None:
    entity = entity_of((each.entity_type, each.entity_name) for each in entry.entity)
    if isinstance(entity, TopicRefusal):
        return entity
    if len(entry.ops) > CHANGES_LIMIT:
        return TOO_MANY_CHANGES
    ops = [(op.key, None if op.remove else op.value) for op in entry.ops]
    return await context.broker.control.quotas.change(entity, ops, validate_only=validate_only)
