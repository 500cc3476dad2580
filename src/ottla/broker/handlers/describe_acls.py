"""DescribeAcls (key 29), versions 0-3: the ACLs that match a filter.

1 adds pattern types; 2 is flexible; 3 adds ACLs of users. As in Kafka, the connection of a client is closed whose
filter has an unknown code.
"""

from __future__ import annotations

from ottla.broker.authorization import Accesses, on_cluster
from ottla.broker.context import RequestContext
from ottla.broker.control.acl_store import AclStore
from ottla.cluster.acl_filters import AclFilter
from ottla.cluster.acls import CLUSTER_NAME, AclEntry, AclPattern, Operation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_acls import DeleteAclsFilter
from ottla.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ottla.wire.sliced import mapped

NO_AUTHORIZER = "No Authorizer is configured on the broker"


def accesses(context: RequestContext, request: DescribeAclsRequest) -> Accesses:
    return (on_cluster(Operation.DESCRIBE),)


def filter_of(request: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """The filter that fields of a request are."""
    return AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )


def handle(context: RequestContext, request: DescribeAclsRequest) -> None:
    wanted, acls = filter_of(request), context.broker.acls
    if not wanted.is_known:
        context.disconnect()
    elif not context.permits(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        _refuse(context, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    elif acls is None:
        _refuse(context, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    else:
        context.run(_describe(context, acls, wanted))


def _refuse(context: RequestContext, error: ErrorCode, message: str | None = None) -> None:
    context.reply(DescribeAclsResponse(error_code=int(error), error_message=message or error.message))


async def _describe(context: RequestContext, acls: AclStore, wanted: AclFilter) -> None:
    found: list[tuple[AclPattern, list[AclEntry]]] = []
    for pattern in list(acls.rules.patterns):
        await context.broker.slices.point()
        if wanted.matches_pattern(pattern):
            entries = [entry for entry in sorted(acls.rules.entries(pattern)) if wanted.matches_entry(entry)]
            if entries:
                found.append((pattern, entries))
    await context.replied(DescribeAclsResponse(resources=mapped(found, _resource)))


def _resource(one: tuple[AclPattern, list[AclEntry]]) -> DescribeAclsResource:
    (resource_type, name, pattern_type), entries = one
    return DescribeAclsResource(
        resource_type=int(resource_type),
        resource_name=name,
        pattern_type=int(pattern_type),
        acls=mapped(entries, _described),
    )


def _described(entry: AclEntry) -> AclDescription:
    principal, host, operation, permission = entry
    return AclDescription(principal=principal, host=host, operation=int(operation), permission_type=int(permission))
