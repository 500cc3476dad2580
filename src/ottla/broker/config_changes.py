"""The common part of AlterConfigs and IncrementalAlterConfigs: check each resource, change it, report its result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ottla.broker.authorization import CLUSTER_NAME, Access, Operation, ResourceType, on_cluster, on_topic
from ottla.broker.loggers import change_levels
from ottla.cluster.configs import BROKER_LOGGER, NAMED_TWICE, TOPIC, ConfigChange, Resource, request_problem
from ottla.cluster.refusal import TopicRefusal
from ottla.wire.errors import ErrorCode
from ottla.wire.stepwise import mapped

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.services import BrokerServices

Settle: TypeAlias = "Callable[[Mapping[str, str]], dict[str, str] | TopicRefusal]"
"""Computes the new settings from the present ones."""


#: Most settings of one resource in a request; topics and brokers have far fewer.
CHANGES_LIMIT = 1_000
TOO_MANY_CHANGES = TopicRefusal(
    ErrorCode.INVALID_REQUEST, f"A resource has at most {CHANGES_LIMIT} settings in one request."
)


class Asked(NamedTuple):
    """A resource, the changes requested, and the function that applies them to the present settings."""

    resource: Resource
    changes: Sequence[ConfigChange]
    settle: Settle


def accesses_of(operation: Operation, resources: Collection[Any]) -> Iterator[Access]:
    """The operation on each topic, or on the cluster for brokers."""
    for asked in resources:
        is_topic = asked.resource_type == TOPIC
        yield on_topic(operation, asked.resource_name) if is_topic else on_cluster(operation)


async def change_and_reply(
    context: RequestContext,
    request: Any,
    asked_of: Callable[[Any], Asked],
    classes: tuple[type[Any], type[Any]],
    *,
    loggers: bool = False,
) -> None:
    """Change the resources of a request one after the other; each has its own result.

    `asked_of` reads a resource of the request, `classes` are those of the response and of its results, and `loggers`
    says whether this request may change log levels.
    """
    refusals = await _change_all(context, mapped(request.resources, asked_of), request.validate_only, loggers)
    if refusals is None:
        return
    response_class, result_class = classes
    # The names are read from the request again: kept for very many resources, they would take much memory.
    following = iter(refusals)

    def result(resource: Any) -> Any:
        refusal = next(following)
        return result_class(
            error_code=int(refusal.error) if refusal is not None else 0,
            error_message=refusal.response_message if refusal is not None else None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )

    await context.replied(response_class(responses=mapped(request.resources, result)))
    await context.broker.slices.empty(refusals)


async def _change_all(
    context: RequestContext, asked: Collection[Asked], validate_only: bool, loggers: bool
) -> list[TopicRefusal | None] | None:
    """The refusal of each resource in their order, None for success.

    If the client disconnects, the remaining resources stay as they are, and the result is None.
    """
    broker = context.broker
    twice = await _named_twice(broker, asked)
    results: list[TopicRefusal | None] = []
    for one in asked:
        await broker.slices.point()
        if context.is_gone:
            return None
        refusal: TopicRefusal | None = NAMED_TWICE
        if len(one.changes) > CHANGES_LIMIT:
            refusal = TOO_MANY_CHANGES
        elif one.resource not in twice:
            refusal = _refused_access(context, one.resource) or request_problem(
                one.resource, one.changes, broker.id, loggers=loggers
            )
        if refusal is None:
            refusal = await _change(broker, one, validate_only)
        results.append(refusal)
    return results


async def _named_twice(broker: BrokerServices, asked: Collection[Asked]) -> set[Resource]:
    """The resources that are named repeatedly."""
    seen: set[Resource] = set()
    twice: set[Resource] = set()
    for one in asked:
        await broker.slices.point()
        (twice if one.resource in seen else seen).add(one.resource)
    await broker.slices.empty(seen)
    return twice


def _refused_access(context: RequestContext, resource: Resource) -> TopicRefusal | None:
    if resource.kind == TOPIC:
        if not context.permits(Operation.ALTER_CONFIGS, ResourceType.TOPIC, resource.name):
            return TopicRefusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    elif not context.permits(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        return TopicRefusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    return None


async def _change(broker: BrokerServices, one: Asked, validate_only: bool) -> TopicRefusal | None:
    if one.resource.kind == TOPIC:
        return await broker.control.topic_configs.change(one.resource.name, one.settle, validate_only=validate_only)
    if one.resource.kind == BROKER_LOGGER:
        return change_levels(one.changes, validate_only=validate_only)
    per_broker = bool(one.resource.name)
    return await broker.dynamic_settings.change(one.settle, per_broker=per_broker, validate_only=validate_only)
