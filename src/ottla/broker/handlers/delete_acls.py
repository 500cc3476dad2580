"""DeleteAcls (key 31), versions 0-3: delete the ACLs that match filters.

1 adds pattern types; 2 is flexible; 3 adds ACLs of users. As in Kafka, an ACL is reported with the first filter that
it matches, and the connection of a client is closed whose filter has an unknown code.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.broker.authorization import Accesses, on_cluster
from ottla.broker.context import RequestContext
from ottla.broker.control.acl_store import AclStore
from ottla.broker.error_answers import CLUSTER_DENIED, error_fields
from ottla.broker.handlers.create_acls import NO_AUTHORIZER
from ottla.broker.handlers.describe_acls import filter_of
from ottla.cluster.acl_filters import AclFilter
from ottla.cluster.acls import CLUSTER_NAME, AclEntry, AclPattern, Operation, ResourceType
from ottla.cluster.refusal import TopicRefusal
from ottla.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ottla.wire.sliced import mapped

#: Filters that are looked at between two slices.
FILTERS_PER_SLICE = 256


class _Deletion(NamedTuple):
    """An ACL that a filter matches, and why it was not deleted."""

    pattern: AclPattern
    entry: AclEntry
    refusal: TopicRefusal | None


def accesses(context: RequestContext, request: DeleteAclsRequest) -> Accesses:
    return (on_cluster(Operation.ALTER),)


def handle(context: RequestContext, request: DeleteAclsRequest) -> None:
    context.spawn(_delete(context, request))


async def _delete(context: RequestContext, request: DeleteAclsRequest) -> None:
    slices, acls = context.broker.slices, context.broker.acls
    filters = []
    for each in request.filters:
        await slices.point()
        wanted = filter_of(each)
        if not wanted.is_known:
            context.disconnect()
            return
        filters.append(wanted)
    permitted = context.permits(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    if acls is None or not permitted:
        fields = error_fields(NO_AUTHORIZER if permitted else CLUSTER_DENIED)
        results = mapped(filters, lambda _: DeleteAclsFilterResult(**fields))
        await context.replied(DeleteAclsResponse(filter_results=results))
        return
    deletions: list[list[_Deletion]] = [[] for _ in filters]
    named = {pattern: None for each in filters if (pattern := each.one_pattern) is not None}
    for pattern in dict.fromkeys([*acls.rules.patterns, *named]):
        matching = []
        for number, wanted in enumerate(filters):
            if number % FILTERS_PER_SLICE == 0:
                await slices.point()
            if wanted.matches_pattern(pattern):
                matching.append(number)
        if matching:
            await _delete_of(acls, pattern, filters, matching, deletions)
    await context.replied(
        DeleteAclsResponse(
            filter_results=mapped(
                deletions, lambda found: DeleteAclsFilterResult(error_code=0, matching_acls=mapped(found, _matching))
            )
        )
    )


async def _delete_of(
    acls: AclStore,
    pattern: AclPattern,
    filters: list[AclFilter],
    matching: list[int],
    deletions: list[list[_Deletion]],
) -> None:
    """Delete the ACLs of a pattern that filters match; note them with the first of these."""
    first_of: dict[AclEntry, int] = {}

    def matched(present: frozenset[AclEntry]) -> dict[AclEntry, int]:
        found = {}
        for entry in sorted(present):
            number = next((each for each in matching if filters[each].matches_entry(entry)), None)
            if number is not None:
                found[entry] = number
        return found

    def rest(present: frozenset[AclEntry]) -> frozenset[AclEntry]:
        nonlocal first_of
        first_of = matched(present)
        return present - first_of.keys()

    if pattern in acls.rules.patterns and not matched(acls.rules.entries(pattern)):
        return
    refusal = await acls.change(pattern, rest)
    for entry, number in first_of.items():
        deletions[number].append(_Deletion(pattern, entry, refusal))


def _matching(deletion: _Deletion) -> DeleteAclsMatchingAcl:
    (resource_type, name, pattern_type), (principal, host, operation, permission), refusal = deletion
    return DeleteAclsMatchingAcl(
        **error_fields(refusal),
        resource_type=int(resource_type),
        resource_name=name,
        pattern_type=int(pattern_type),
        principal=principal,
        host=host,
        operation=int(operation),
        permission_type=int(permission),
    )
