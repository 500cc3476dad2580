"""Changes of settings at run time: the requested operations, their validation, and the resulting settings.

The checks, their order and their words are Apache Kafka 3.9's in ZooKeeper mode (`ConfigAdminManager.scala`,
`ZkAdminManager.scala`). Where Kafka fails with `UNKNOWN_SERVER_ERROR`, the response names the cause here instead.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.cluster.refusal import TopicRefusal
from ottla.config.broker import ConfigRefusal
from ottla.config.settings import Setting
from ottla.config.topic import NO_TIERED_STORAGE
from ottla.config.values import format_value, parse_value
from ottla.wire.errors import ErrorCode

TOPIC = 2
BROKER = 4
BROKER_LOGGER = 8
CLIENT_METRICS = 16
"""Kinds of resources that have settings (`ConfigResource.Type`)."""

SET, DELETE, APPEND, SUBTRACT = range(4)
"""Operations on a setting (`AlterConfigOp.OpType`)."""

LARGEST_NODE = 1024 * 1024
"""Most bytes that the settings of a topic or broker may take, as for a ZooKeeper node."""
LONGEST_TEXT = 32_767
"""Longest name or value, in bytes, that every version of DescribeConfigs can encode."""
SHOWN = 100
"""Characters shown of a name that is too long."""

_OPERATIONS = ("SET", "DELETE", "APPEND", "SUBTRACT")
_LIST_OPERATIONS = {APPEND: "append", SUBTRACT: "subtract"}
_NODE_ID = re.compile(r"[+-]?[0-9]{1,20}\Z")


class ConfigChange(NamedTuple):
    """One setting and the operation on it."""

    name: str
    operation: int
    value: str | None


class Resource(NamedTuple):
    """A resource by its type and name. The broker without a name stands for all brokers."""

    kind: int
    name: str


def repeated(resources: Iterable[Resource]) -> frozenset[Resource]:
    """The resources that a request names more than once; each of its entries is refused."""
    seen: set[Resource] = set()
    twice: set[Resource] = set()
    for resource in resources:
        (twice if resource in seen else seen).add(resource)
    return frozenset(twice)


NAMED_TWICE = TopicRefusal(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")


def request_problem(
    resource: Resource, changes: Sequence[ConfigChange], broker_id: int, *, loggers: bool
) -> TopicRefusal | None:
    """Check a resource and its changes independently of its present settings; return the problem, if any.

    `loggers` says whether this request may change log levels.
    """
    names = [change.name for change in changes]
    if len(set(names)) < len(names):
        return _invalid("Error due to duplicate config keys")
    nulls = [change.name for change in changes if change.value is None and change.operation != DELETE]
    if nulls:
        return _invalid(f"Null value not supported for : {', '.join(nulls)}")
    if resource.kind == TOPIC:
        return None if resource.name else _invalid("Default topic resources are not allowed.")
    if resource.kind == BROKER:
        return _node_problem(resource.name, broker_id, "Unexpected broker id, expected {}, but received {}")
    if resource.kind == BROKER_LOGGER and loggers:
        return _node_problem(
            resource.name, broker_id, "Unexpected node id. Expected {}, but received {}", nameless=False
        )
    if resource.kind == CLIENT_METRICS:
        return _invalid("AlterConfigs is only supported for topics and brokers, but resource type is CLIENT_METRICS")
    return _invalid(f"Unknown resource type {resource.kind}")


def _node_problem(name: str, broker_id: int, other: str, *, nameless: bool = True) -> TopicRefusal | None:
    if not name and nameless:
        return None
    number = node_id(name)
    if number is None:
        return _invalid(f"Node id must be an integer, but it is: {name}")
    return None if number == broker_id else _invalid(other.format(broker_id, name))


def node_id(name: str) -> int | None:
    """The broker id in a resource name, a decimal number of 32 bits; None if it is not one."""
    if _NODE_ID.match(name) is None or not -(1 << 31) <= int(name) < 1 << 31:
        return None
    return int(name)


def logger_problem(
    changes: Sequence[ConfigChange], known: Collection[str], levels: Collection[str]
) -> TopicRefusal | None:
    """Check changes of log levels; `known` are the loggers' names."""
    for name, operation, value in changes:
        if operation in _LIST_OPERATIONS:
            return _invalid(f"{_OPERATIONS[operation]} operation is not allowed for the BROKER_LOGGER resource")
        if operation not in (SET, DELETE):
            return _invalid(f"Unknown operation type {operation} for logger: {name}")
        if name not in known:
            return TopicRefusal(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
        if operation == DELETE and name == "root":
            return _invalid("Removing the log level of the root logger is not allowed")
        if operation == SET and value not in levels:
            return TopicRefusal(
                ErrorCode.INVALID_CONFIG,
                f"Cannot set the log level of {name} to {value} as it is not a supported log level. Valid log levels "
                f"are {', '.join(sorted(levels))}",
            )
    return None


def changed(
    present: Mapping[str, str], changes: Sequence[ConfigChange], known: Mapping[str, Setting]
) -> dict[str, str] | TopicRefusal:
    """Apply `changes` to the `present` settings. The new values are not validated yet."""
    after = dict(present)
    for name, operation, value in changes:
        if operation == DELETE:
            after.pop(name, None)
        elif operation == SET:
            assert value is not None, "request_problem was asked first"
            after[name] = value
        elif operation in _LIST_OPERATIONS:
            assert value is not None, "request_problem was asked first"
            setting = known.get(name)
            if setting is None:
                return TopicRefusal(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
            if setting.type != "list":
                verb = _LIST_OPERATIONS[operation]
                return TopicRefusal(
                    ErrorCode.INVALID_CONFIG, f"Config value {verb} is not allowed for config key: {name}"
                )
            text = after.get(name, format_value(parse_value(setting, setting.default)) or "")
            old, elements = _elements(text) if text else [], _elements(value)
            after[name] = ",".join(old + _without(elements, old) if operation == APPEND else _without(old, elements))
        else:
            return _invalid(f"Unknown operation type {operation} for config key: {name}")
    return after


def _elements(text: str) -> list[str]:
    """The elements of a list as Java's `split` returns them, without trailing empty ones."""
    return text.rstrip(",").split(",") if text.strip(",") or not text else []


def _without(elements: Sequence[str], gone: Sequence[str]) -> list[str]:
    """The elements without those in `gone`, each of which removes one occurrence, as Scala's `diff` does."""
    counts = Counter(gone)
    remaining = []
    for element in elements:
        if counts[element]:
            counts[element] -= 1
        else:
            remaining.append(element)
    return remaining


def oversized(configs: Mapping[str, str], size: int) -> TopicRefusal | None:
    """Refuse settings that are too large for a znode (`size` bytes) or for a response."""
    for name, value in configs.items():
        if len(name.encode()) > LONGEST_TEXT or len(value.encode()) > LONGEST_TEXT:
            return _invalid(f"Name or value of {name[:SHOWN]} is longer than {LONGEST_TEXT} bytes")
    if size > LARGEST_NODE:
        return _invalid(f"The settings would take {size} bytes together, and {LARGEST_NODE} are the most")
    return None


def settings_bytes(configs: Mapping[str, str]) -> int:
    """Approximate size of these settings in a znode, in bytes."""
    return sum(len(name.encode()) + len(value.encode()) + len('"":"",') for name, value in configs.items())


def topic_refusal(name: str, refusal: ConfigRefusal) -> TopicRefusal:
    """The refusal of invalid topic settings, with the message that AlterConfigs gives."""
    problem = refusal.problems[0]
    if problem.startswith("Invalid value ") or problem == NO_TIERED_STORAGE:
        problem = f"Invalid config value for resource ConfigResource(type=TOPIC, name='{name}'): {problem}"
    return TopicRefusal(ErrorCode.INVALID_CONFIG, problem)


def unknown_topic(name: str) -> TopicRefusal:
    """The refusal for a topic that does not exist."""
    return TopicRefusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def _invalid(message: str) -> TopicRefusal:
    return TopicRefusal(ErrorCode.INVALID_REQUEST, message)
