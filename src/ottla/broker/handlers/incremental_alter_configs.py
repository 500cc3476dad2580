"""IncrementalAlterConfigs (key 44), versions 0-1: changes of single settings of topics and brokers (KIP-339).

1 is flexible. Levels of loggers can be changed, too (KIP-412).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.config_changes import Asked, change_all
from ottla.cluster.configs import TOPIC, Change, Resource, changed
from ottla.config.settings import BROKER_SETTINGS, TOPIC_SETTINGS
from ottla.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext

MIN_VERSION = 0
MAX_VERSION = 1


def handle(context: RequestContext, request: IncrementalAlterConfigsRequest) -> None:
    """Change one resource after the other; each has its own result."""
    context.spawn(_change(context, request))


async def _change(context: RequestContext, request: IncrementalAlterConfigsRequest) -> None:
    asked = [_asked(resource) for resource in request.resources]
    done = await change_all(context.broker, asked, request.validate_only, loggers=True)
    responses = [
        AlterConfigsResourceResponse(
            error_code=int(refusal.error) if refusal is not None else 0,
            error_message=refusal.told if refusal is not None else None,
            resource_type=resource.kind,
            resource_name=resource.name,
        )
        for resource, refusal in done
    ]
    context.reply(IncrementalAlterConfigsResponse(responses=responses))


def _asked(resource: AlterConfigsResource) -> Asked:
    changes = [Change(each.name, each.config_operation, each.value) for each in resource.configs]
    known = TOPIC_SETTINGS if resource.resource_type == TOPIC else BROKER_SETTINGS
    settle = partial(changed, changes=changes, known=known)
    return Asked(Resource(resource.resource_type, resource.resource_name), changes, settle)
