"""The common part of AlterConfigs and IncrementalAlterConfigs: check each resource, change it, report its result."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ottla.broker.authorization import Access, on_cluster, on_topic
from ottla.broker.error_answers import CLUSTER_DENIED, error_fields
from ottla.cluster.acls import CLUSTER_NAME, Operation, ResourceType
from ottla.cluster.configs import (
    BROKER_LOGGER,
    DELETE,
    NAMED_TWICE,
    TOPIC,
    ConfigChange,
    Resource,
    logger_problem,
    request_problem,
)
from ottla.cluster.refusal import TopicRefusal
from ottla.wire.errors import ErrorCode
from ottla.wire.sliced import mapped

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


class RequestedChange(NamedTuple):
    """A resource, the changes requested, and the function that applies them to the present settings."""

    resource: Resource
    changes: Sequence[ConfigChange]
    settle: Settle


def accesses_of(operation: Operation, resources: Collection[Any]) -> Iterator[Access]:
    """The operation on each topic, or on the cluster for brokers."""
    for resource in resources:
        is_topic = resource.resource_type == TOPIC
        yield on_topic(operation, resource.resource_name) if is_topic else on_cluster(operation)


async def change_and_reply(
    context: RequestContext,
    request: Any,
    change_of: Callable[[Any], RequestedChange],
    classes: tuple[type[Any], type[Any]],
    *,
    loggers: bool = False,
) -> None:
    """Change the resources of a request one after the other; each has its own result.

    `change_of` reads a resource of the request, `classes` are those of the response and of its results, and `loggers`
    says whether this request may change log levels.
    """
    refusals = await _change_all(context, mapped(request.resources, change_of), request.validate_only, loggers)
    if refusals is None:
        return
    response_class, result_class = classes
    # The names are read from the request again: kept for very many resources, they would take much memory.
    following = iter(refusals)

    def result(resource: Any) -> Any:
        fields = error_fields(next(following))
        return result_class(resource_type=resource.resource_type, resource_name=resource.resource_name, **fields)

    await context.replied(response_class(responses=mapped(request.resources, result)))
    await context.broker.slices.empty(refusals)


async def _change_all(
    context: RequestContext, requested: Collection[RequestedChange], validate_only: bool, loggers: bool
) -> list[TopicRefusal | None] | None:
    """The refusal of each resource in their order, None for success.

    If the client disconnects, the remaining resources stay as they are, and the result is None.
    """
    broker = context.broker
    twice = await _named_twice(broker, requested)
    results: list[TopicRefusal | None] = []
    for one in requested:
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


async def _named_twice(broker: BrokerServices, requested: Collection[RequestedChange]) -> set[Resource]:
    seen: set[Resource] = set()
    twice: set[Resource] = set()
    for one in requested:
        await broker.slices.point()
        (twice if one.resource in seen else seen).add(one.resource)
    await broker.slices.empty(seen)
    return twice


def _refused_access(context: RequestContext, resource: Resource) -> TopicRefusal | None:
    if resource.kind == TOPIC:
        if not context.permits(Operation.ALTER_CONFIGS, ResourceType.TOPIC, resource.name):
            return TopicRefusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    elif not context.permits(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        return CLUSTER_DENIED
    return None


async def _change(broker: BrokerServices, one: RequestedChange, validate_only: bool) -> TopicRefusal | None:
    if one.resource.kind == TOPIC:
        return await broker.control.topic_configs.change(one.resource.name, one.settle, validate_only=validate_only)
    if one.resource.kind == BROKER_LOGGER:
        return change_levels(one.changes, validate_only=validate_only)
    per_broker = bool(one.resource.name)
    return await broker.dynamic_settings.change(one.settle, per_broker=per_broker, validate_only=validate_only)


# Log levels of this process, as settings of a broker (KIP-412). Names are those of Python's loggers (`ottla.broker`),
# where Apache Kafka has Java classes. Changes are not persistent: a restart restores the level in `OTTLA_LOG_LEVEL`.

ROOT = "root"
#: Kafka's levels and their Python numbers. Python has none below DEBUG.
LEVELS = {
    "TRACE": logging.DEBUG // 2,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def logger_levels() -> dict[str, str]:
    """All loggers by name, with their effective levels."""
    known = sorted(name for name, one in logging.root.manager.loggerDict.items() if isinstance(one, logging.Logger))
    return {ROOT: _level_name(logging.root)} | {name: _level_name(logging.getLogger(name)) for name in known}


def change_levels(changes: Sequence[ConfigChange], *, validate_only: bool) -> TopicRefusal | None:
    """Set or unset levels (an unset one is inherited); return the refusal if a change is invalid."""
    refusal = logger_problem(changes, logger_levels(), LEVELS)
    if refusal is not None or validate_only:
        return refusal
    for change in changes:
        one = logging.root if change.name == ROOT else logging.getLogger(change.name)
        one.setLevel(logging.NOTSET if change.operation == DELETE else LEVELS[str(change.value)])
    return None


def _level_name(one: logging.Logger) -> str:
    """The effective level under Kafka's name; a level between two of them is shown as the lower one."""
    level = one.getEffectiveLevel()
    names = [name for name, number in LEVELS.items() if number <= level]
    return names[-1] if names else next(iter(LEVELS))
