"""Changes of settings while brokers run: what is asked, whether it may be, and what comes of it.

The checks, their order and their words are Apache Kafka 3.9's in ZooKeeper mode (`ConfigAdminManager.scala`,
`ZkAdminManager.scala`). Where it answers `UNKNOWN_SERVER_ERROR`, because it failed, the cause is told here instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.cluster.refusal import TopicRefusal
from ottla.config.broker import ConfigRefusal
from ottla.config.settings import Setting
from ottla.config.values import format_value, parse_value
from ottla.wire.errors import ErrorCode

TOPIC = 2
BROKER = 4
BROKER_LOGGER = 8
CLIENT_METRICS = 16
"""Kinds of resources that have settings (`ConfigResource.Type`)."""

SET, DELETE, APPEND, SUBTRACT = range(4)
"""Operations on a setting (`AlterConfigOp.OpType`)."""

_OPERATIONS = ("SET", "DELETE", "APPEND", "SUBTRACT")
_LIST_OPERATIONS = {APPEND: "append", SUBTRACT: "subtract"}


class Change(NamedTuple):
    """One setting and what is to be done with it."""

    name: str
    operation: int
    value: str | None


class Resource(NamedTuple):
    """A topic, broker or other thing by its kind and name. The broker without a name stands for all brokers."""

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


def request_problem(resource: Resource, changes: Sequence[Change], broker_id: int) -> TopicRefusal | None:
    """What is wrong with a resource and its changes whatever its settings are now."""
    names = [change.name for change in changes]
    if len(set(names)) < len(names):
        return _invalid("Error due to duplicate config keys")
    nulls = [change.name for change in changes if change.value is None and change.operation != DELETE]
    if nulls:
        return _invalid(f"Null value not supported for : {', '.join(nulls)}")
    if resource.kind == TOPIC:
        return None if resource.name else _invalid("Default topic resources are not allowed.")
    if resource.kind == BROKER:
        return None if not resource.name else _node_problem(resource.name, broker_id, "broker")
    if resource.kind == BROKER_LOGGER:
        return _node_problem(resource.name, broker_id, "node") or _logger_problem(changes)
    if resource.kind == CLIENT_METRICS:
        return _invalid("AlterConfigs is only supported for topics and brokers, but resource type is CLIENT_METRICS")
    return _invalid(f"Unknown resource type {resource.kind}")


def _node_problem(name: str, broker_id: int, what: str) -> TopicRefusal | None:
    if not name.isascii() or not name.removeprefix("-").isdigit():
        return _invalid(f"Node id must be an integer, but it is: {name}")
    if int(name) == broker_id:
        return None
    return _invalid(f"Unexpected {what} id, expected {broker_id}, but received {name}")


def _logger_problem(changes: Sequence[Change]) -> TopicRefusal:
    """The levels of Java's loggers cannot be changed where there are none."""
    for change in changes:
        if change.operation in _LIST_OPERATIONS:
            name = _OPERATIONS[change.operation]
            return _invalid(f"{name} operation is not allowed for the BROKER_LOGGER resource")
    name = changes[0].name if changes else "root"
    return TopicRefusal(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")


def changed(
    present: Mapping[str, str], changes: Sequence[Change], known: Mapping[str, Setting]
) -> dict[str, str] | TopicRefusal:
    """The settings that `changes` make of those at `present`; not checked yet for their values."""
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
            old = after.get(name, format_value(parse_value(setting, setting.default)) or "").split(",")
            after[name] = ",".join(_extended(old, value) if operation == APPEND else _without(old, value))
        else:
            return _invalid(f"Unknown operation type {operation} for config key: {name}")
    return after


def _extended(old: list[str], value: str) -> list[str]:
    """A list with elements added, each of them once: what is there already and empty words are left out (KIP-339)."""
    words = [word for word in old if word]
    for word in value.split(","):
        if word and word not in words:
            words.append(word)
    return words


def _without(old: list[str], value: str) -> list[str]:
    gone = value.split(",")
    return [word for word in old if word and word not in gone]


def topic_refusal(name: str, refusal: ConfigRefusal) -> TopicRefusal:
    """Settings that a topic cannot have, in the words of a change of settings."""
    problem = refusal.problems[0]
    if problem.startswith("Invalid value "):
        problem = f"Invalid config value for resource ConfigResource(type=TOPIC, name='{name}'): {problem}"
    return TopicRefusal(ErrorCode.INVALID_CONFIG, problem)


def unknown_topic(name: str) -> TopicRefusal:
    """The topic is not there."""
    return TopicRefusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def _invalid(message: str) -> TopicRefusal:
    return TopicRefusal(ErrorCode.INVALID_REQUEST, message)
