"""CreateAcls (key 30), versions 0-3: create ACLs, each for itself.

1 adds pattern types; 2 is flexible; 3 adds ACLs of users. As in Kafka, the connection of a client is closed whose
request has an unknown code, and a code that only filters have fails the whole request.
"""

from __future__ import annotations

from ottla.broker.authorization import Accesses, on_cluster
from ottla.broker.context import RequestContext
from ottla.broker.control.acl_store import AclStore
from ottla.broker.error_answers import CLUSTER_DENIED, error_fields
from ottla.cluster.acl_filters import AclFilter, creation_problem
from ottla.cluster.acls import CLUSTER_NAME, AclEntry, AclPattern, Operation, PatternType, Permission, ResourceType
from ottla.cluster.refusal import TopicRefusal
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from ottla.wire.sliced import mapped

NO_AUTHORIZER = TopicRefusal(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
ONLY_FOR_FILTERS = TopicRefusal(ErrorCode.UNKNOWN_SERVER_ERROR, "ANY and MATCH are for filters, not for ACLs")


def accesses(context: RequestContext, request: CreateAclsRequest) -> Accesses:
    return (on_cluster(Operation.ALTER),)


def handle(context: RequestContext, request: CreateAclsRequest) -> None:
    context.spawn(_create(context, request))


async def _create(context: RequestContext, request: CreateAclsRequest) -> None:
    slices, acls = context.broker.slices, context.broker.acls
    wanted: list[tuple[AclPattern, AclEntry]] = []
    refusal: TopicRefusal | None = None
    for creation in request.creations:
        await slices.point()
        if not _filter_of(creation).is_known:
            context.disconnect()
            return
        try:
            wanted.append(_acl(creation))
        except ValueError:
            refusal = ONLY_FOR_FILTERS
    if not context.permits(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        refusal = CLUSTER_DENIED
    elif acls is None:
        refusal = NO_AUTHORIZER
    if refusal is not None or acls is None:
        fields = error_fields(refusal)
        results = mapped(request.creations, lambda _: AclCreationResult(**fields))
        await context.replied(CreateAclsResponse(results=results))
        return
    refusals = await _created(context, acls, wanted)
    await context.replied(
        CreateAclsResponse(results=mapped(wanted, lambda acl: AclCreationResult(**error_fields(refusals.get(acl)))))
    )


async def _created(
    context: RequestContext, acls: AclStore, wanted: list[tuple[AclPattern, AclEntry]]
) -> dict[tuple[AclPattern, AclEntry], TopicRefusal]:
    """Add the ACLs, those of a pattern together; the refusals of those that are not added."""
    refusals: dict[tuple[AclPattern, AclEntry], TopicRefusal] = {}
    by_pattern: dict[AclPattern, dict[AclEntry, None]] = {}
    for pattern, entry in wanted:
        await context.broker.slices.point()
        problem = creation_problem(pattern, entry)
        if problem is None:
            by_pattern.setdefault(pattern, {})[entry] = None
        else:
            refusals[pattern, entry] = problem
    for pattern, entries in by_pattern.items():
        await context.broker.slices.point()
        problem = await acls.add(pattern, entries)
        if problem is not None:
            refusals.update(dict.fromkeys(((pattern, entry) for entry in entries), problem))
    return refusals


def _filter_of(creation: AclCreation) -> AclFilter:
    return AclFilter(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def _acl(creation: AclCreation) -> tuple[AclPattern, AclEntry]:
    """Raises ValueError for codes that only filters have."""
    pattern = AclPattern(
        ResourceType(creation.resource_type),
        creation.resource_name,
        PatternType(creation.resource_pattern_type),
    )
    operation, permission = Operation(creation.operation), Permission(creation.permission_type)
    return pattern, AclEntry(creation.principal, creation.host, operation, permission)
