"""AlterConfigs (key 33), versions 0-2: replace all settings of topics and brokers (KIP-133).

Settings not in the request return to their defaults, which is why IncrementalAlterConfigs was added. 1 mutes throttled
clients after the response; 2 is flexible.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import islice

from ottla.broker.authorization import Accesses
from ottla.broker.config_changes import CHANGES_LIMIT, RequestedChange, accesses_of, change_and_reply
from ottla.broker.context import RequestContext
from ottla.cluster.acls import Operation
from ottla.cluster.configs import SET, ConfigChange, Resource, changed
from ottla.cluster.refusal import TopicRefusal
from ottla.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


def accesses(context: RequestContext, request: AlterConfigsRequest) -> Accesses:
    return accesses_of(Operation.ALTER_CONFIGS, request.resources)


def handle(context: RequestContext, request: AlterConfigsRequest) -> None:
    """Replace the settings of the resources one after the other; each has its own result."""
    classes = AlterConfigsResponse, AlterConfigsResourceResponse
    context.spawn(change_and_reply(context, request, _change, classes))


def _change(resource: AlterConfigsResource) -> RequestedChange:
    changes = [ConfigChange(each.name, SET, each.value) for each in islice(resource.configs, CHANGES_LIMIT + 1)]
    settle = partial(_replaced, changes=changes)
    return RequestedChange(Resource(resource.resource_type, resource.resource_name), changes, settle)


def _replaced(_: Mapping[str, str], changes: list[ConfigChange]) -> dict[str, str] | TopicRefusal:
    return changed({}, changes, {})
