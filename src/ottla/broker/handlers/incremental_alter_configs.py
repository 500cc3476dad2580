"""IncrementalAlterConfigs (key 44), versions 0-1: change single settings of topics and brokers (KIP-339).

1 is flexible. Log levels can be changed, too (KIP-412).
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from ottla.broker.authorization import Operation, on_cluster, on_topic
from ottla.broker.config_changes import CHANGES_LIMIT, Asked, change_all
from ottla.cluster.configs import TOPIC, ConfigChange, Resource, changed
from ottla.config.settings import BROKER_SETTINGS, TOPIC_SETTINGS
from ottla.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.wire.stepwise import mapped

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.broker.authorization import Access
    from ottla.broker.context import RequestContext
    from ottla.cluster.refusal import TopicRefusal

MIN_VERSION = 0
MAX_VERSION = 1


def accesses(context: RequestContext, request: IncrementalAlterConfigsRequest) -> Iterable[Access]:
    """ALTER_CONFIGS of each topic, or of the cluster for brokers."""
    for asked in request.resources:
        is_topic = asked.resource_type == TOPIC
        name = asked.resource_name
        yield on_topic(Operation.ALTER_CONFIGS, name) if is_topic else on_cluster(Operation.ALTER_CONFIGS)


def handle(context: RequestContext, request: IncrementalAlterConfigsRequest) -> None:
    """Change the resources one after the other; each has its own result."""
    context.spawn(_change(context, request))


async def _change(context: RequestContext, request: IncrementalAlterConfigsRequest) -> None:
    refusals = await change_all(context, mapped(request.resources, _asked), request.validate_only, loggers=True)
    if refusals is not None:
        # The names are read from the request again: kept for very many resources, they would take much memory.
        following = iter(refusals)
        results = mapped(request.resources, lambda resource: _result(resource, next(following)))
        await context.replied(IncrementalAlterConfigsResponse(responses=results))
        await context.broker.slices.empty(refusals)


def _result(resource: AlterConfigsResource, refusal: TopicRefusal | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=int(refusal.error) if refusal is not None else 0,
        error_message=refusal.response_message if refusal is not None else None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _asked(resource: AlterConfigsResource) -> Asked:
    changes = [
        ConfigChange(each.name, each.config_operation, each.value)
        for each in islice(resource.configs, CHANGES_LIMIT + 1)
    ]
    known = TOPIC_SETTINGS if resource.resource_type == TOPIC else BROKER_SETTINGS
    settle = partial(changed, changes=changes, known=known)
    return Asked(Resource(resource.resource_type, resource.resource_name), changes, settle)
