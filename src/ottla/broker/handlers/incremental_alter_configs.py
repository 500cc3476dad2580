"""IncrementalAlterConfigs (key 44), versions 0-1: change single settings of topics and brokers (KIP-339).

1 is flexible. Log levels can be changed, too (KIP-412).
"""

from __future__ import annotations

from functools import partial
from itertools import islice

from ottla.broker.authorization import Accesses
from ottla.broker.config_changes import CHANGES_LIMIT, RequestedChange, accesses_of, change_and_reply
from ottla.broker.context import RequestContext
from ottla.cluster.acls import Operation
from ottla.cluster.configs import TOPIC, ConfigChange, Resource, changed
from ottla.config.settings import BROKER_SETTINGS, TOPIC_SETTINGS
from ottla.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


def accesses(context: RequestContext, request: IncrementalAlterConfigsRequest) -> Accesses:
    return accesses_of(Operation.ALTER_CONFIGS, request.resources)


def handle(context: RequestContext, request: IncrementalAlterConfigsRequest) -> None:
    classes = IncrementalAlterConfigsResponse, AlterConfigsResourceResponse
    context.spawn(change_and_reply(context, request, _change, classes, loggers=True))


def _change(resource: AlterConfigsResource) -> RequestedChange:
    changes = [
        ConfigChange(each.name, each.config_operation, each.value)
        for each in islice(resource.configs, CHANGES_LIMIT + 1)
    ]
    known = TOPIC_SETTINGS if resource.resource_type == TOPIC else BROKER_SETTINGS
    settle = partial(changed, changes=changes, known=known)
    return RequestedChange(Resource(resource.resource_type, resource.resource_name), changes, settle)
