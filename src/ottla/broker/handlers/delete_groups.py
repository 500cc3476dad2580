"""DeleteGroups (key 42), versions 0-2: delete groups without members, and their offsets.

2 is flexible.
"""

from __future__ import annotations

from functools import partial

from ottla.broker.authorization import Accesses, on_group
from ottla.broker.context import RequestContext
from ottla.cluster.acls import Operation, ResourceType
from ottla.groups.events import DeleteGroup, ErrorResult
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.wire.sliced import mapped


class _Results:
    """Collects the results of all groups; the last one sends the response."""

    __slots__ = ("_context", "_errors", "_missing")

    def __init__(self, context: RequestContext, errors: dict[str, ErrorCode]) -> None:
        self._context = context
        self._errors = errors
        self._missing = len(errors)

    def add(self, group_id: str, result: ErrorResult) -> None:
        self._errors[group_id] = result.error
        self._missing -= 1
        if self._missing == 0:
            self.send()

    def send(self) -> None:
        results = mapped(self._errors.items(), lambda item: DeletableGroupResult(group_id=item[0], error_code=item[1]))
        self._context.reply_in_slices(DeleteGroupsResponse(results=results))


def accesses(context: RequestContext, request: DeleteGroupsRequest) -> Accesses:
    return (on_group(Operation.DELETE, name) for name in request.groups_names)


def handle(context: RequestContext, request: DeleteGroupsRequest) -> None:
    """Delete each group; reply when all deletions are committed to the log."""
    context.run(_delete(context, request))


async def _delete(context: RequestContext, request: DeleteGroupsRequest) -> None:
    errors = await context.broker.slices.distinct(request.groups_names, ErrorCode.NONE)
    results = _Results(context, errors)
    if not errors:
        results.send()
    for group_id in errors:
        await context.broker.slices.point()
        if not context.permits(Operation.DELETE, ResourceType.GROUP, group_id):
            results.add(group_id, ErrorResult(ErrorCode.GROUP_AUTHORIZATION_FAILED))
            continue
        context.broker.groups.submit(DeleteGroup(partial(results.add, group_id), group_id), allow_empty_group_id=True)
