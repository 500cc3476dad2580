"""ListGroups (key 16), versions 0-5: the groups that this broker coordinates.

1 adds the throttle time; 3 is flexible; 4 adds states, and a filter by them (KIP-518); 5 types, and a filter by them
(KIP-848). Filters ignore case; all groups here are of the type "classic".
"""

from __future__ import annotations

from ottla.broker.authorization import Accesses, Unlogged, on_cluster, on_group
from ottla.broker.context import RequestContext
from ottla.cluster.acls import CLUSTER_NAME, Operation, ResourceType
from ottla.groups.view import GroupView
from ottla.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.wire.sliced import mapped

CLASSIC = "classic"
#: Groups processed between two slices.
GROUPS_PER_SLICE = 256


def accesses(context: RequestContext, request: ListGroupsRequest) -> Accesses:
    """DESCRIBE of the cluster, or of single groups."""
    yield Unlogged(*on_cluster(Operation.DESCRIBE))
    for group in context.broker.groups.groups()[1]:
        yield Unlogged(*on_group(Operation.DESCRIBE, group.group_id))


def handle(context: RequestContext, request: ListGroupsRequest) -> None:
    """List the groups that pass the filters and may be described by the client."""
    context.run(_list(context, request))


async def _list(context: RequestContext, request: ListGroupsRequest) -> None:
    states = await _lower_case(context, request.states_filter)
    types = await _lower_case(context, request.types_filter)
    error, groups = context.broker.groups.groups()
    if types and CLASSIC not in types:
        groups = []
    sees_all = context.permits(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    listed: list[GroupView] = []
    for number, group in enumerate(groups):
        if number % GROUPS_PER_SLICE == 0:
            await context.broker.slices.point()
        if states and group.state.value.lower() not in states:
            continue
        if sees_all or context.permits(Operation.DESCRIBE, ResourceType.GROUP, group.group_id):
            listed.append(group)
    await context.replied(ListGroupsResponse(error_code=error, groups=mapped(listed, _listed)))


async def _lower_case(context: RequestContext, names: list[str]) -> set[str]:
    """The names of a filter in lower case; a client may send very many."""
    found: set[str] = set()
    for name in names:
        await context.broker.slices.point()
        found.add(name.lower())
    return found


def _listed(group: GroupView) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=CLASSIC,
    )
