"""ListGroups (key 16), versions 0 to 5: the groups that this broker looks after.

1: throttle time; 3: flexible; 4: states, and a filter by them (KIP-518); 5: types, and a filter by them (KIP-848).
Filters do not mind case; all groups here are of the type "classic".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext

MIN_VERSION = 0
MAX_VERSION = 5

CLASSIC = "classic"


def handle(context: RequestContext, request: ListGroupsRequest) -> None:
    """Answer at once."""
    states = {state.lower() for state in request.states_filter}
    types = {name.lower() for name in request.types_filter}
    error, groups = context.broker.groups.groups()
    if types and CLASSIC not in types:
        groups = []
    listed = [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=group.state.value,
            group_type=CLASSIC,
        )
        for group in groups
        if not states or group.state.value.lower() in states
    ]
    context.reply(ListGroupsResponse(error_code=error, groups=listed))
