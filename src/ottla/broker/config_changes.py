"""The common half of AlterConfigs and IncrementalAlterConfigs: each resource checked, changed and answered for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ottla.broker.loggers import change_levels
from ottla.cluster.configs import BROKER_LOGGER, NAMED_TWICE, TOPIC, Change, Resource, repeated, request_problem

if TYPE_CHECKING:
    from ottla.broker.server import Broker
    from ottla.cluster.refusal import TopicRefusal

Settle: TypeAlias = "Callable[[Mapping[str, str]], dict[str, str] | TopicRefusal]"
"""Makes the settings wanted of the present ones."""


class Asked(NamedTuple):
    """A resource, what is asked of its settings, and how to make the new ones of the present ones."""

    resource: Resource
    changes: Sequence[Change]
    settle: Settle


async def change_all(
    broker: Broker, asked: Sequence[Asked], validate_only: bool, *, loggers: bool = False
) -> Iterable[tuple[Resource, TopicRefusal | None]]:
    """Change each resource, one after the other, and tell what became of it: None where it was done.

    `loggers` says whether levels of loggers can be changed by this request.
    """
    twice = repeated(one.resource for one in asked)
    results: list[tuple[Resource, TopicRefusal | None]] = []
    for one in asked:
        refusal: TopicRefusal | None = NAMED_TWICE
        if one.resource not in twice:
            refusal = request_problem(one.resource, one.changes, broker.id, loggers=loggers)
        if refusal is None:
            refusal = await _change(broker, one, validate_only)
        results.append((one.resource, refusal))
        # Where nothing had to be waited for, the others' requests get their turn.
        await asyncio.sleep(0)
    return results


async def _change(broker: Broker, one: Asked, validate_only: bool) -> TopicRefusal | None:
    if one.resource.kind == TOPIC:
        return await broker.control.change_configs(one.resource.name, one.settle, validate_only=validate_only)
    if one.resource.kind == BROKER_LOGGER:
        return change_levels(one.changes, validate_only=validate_only)
    per_broker = bool(one.resource.name)
    return await broker.dynamic_settings.change(one.settle, per_broker=per_broker, validate_only=validate_only)
