"""DeleteGroups (key 42), versions 0 to 2: delete groups without members, their offsets included.

2: flexible.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.groups.events import DeleteGroup, ErrorResult
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext

MIN_VERSION = 0
MAX_VERSION = 2


class _Results:
    """The answers of all groups; the last one to come sends them."""

    __slots__ = ("_context", "_errors", "_missing")

    def __init__(self, context: RequestContext, group_ids: list[str]) -> None:
        self._context = context
        self._errors = dict.fromkeys(group_ids, ErrorCode.NONE)
        self._missing = len(group_ids)

    def add(self, group_id: str, result: ErrorResult) -> None:
        self._errors[group_id] = result.error
        self._missing -= 1
        if self._missing == 0:
            self.send()

    def send(self) -> None:
        results = [DeletableGroupResult(group_id=name, error_code=error) for name, error in self._errors.items()]
        self._context.reply(DeleteGroupsResponse(results=results))


def handle(context: RequestContext, request: DeleteGroupsRequest) -> None:
    """Delete each group; answer when all that were are so in the log."""
    group_ids = list(dict.fromkeys(request.groups_names))
    results = _Results(context, group_ids)
    if not group_ids:
        results.send()
    for group_id in group_ids:
        context.broker.groups.submit(DeleteGroup(partial(results.add, group_id), group_id), allow_empty_group_id=True)
