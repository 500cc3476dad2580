from __future__ import annotations

import pytest

from ottla.cluster.configs import (
    APPEND,
    BROKER,
    BROKER_LOGGER,
    DELETE,
    SET,
    SUBTRACT,
    TOPIC,
    ConfigChange,
    Resource,
    changed,
    logger_problem,
    repeated,
    request_problem,
)
from ottla.cluster.refusal import TopicRefusal
from ottla.config.settings import TOPIC_SETTINGS
from ottla.wire.errors import ErrorCode

PRESENT = {"retention.ms": "1000", "cleanup.policy": "compact"}


def after(*changes: ConfigChange) -> dict[str, str] | TopicRefusal:
    return changed(PRESENT, changes, TOPIC_SETTINGS)


def test_single_settings_are_set_and_removed() -> None:
    assert after(ConfigChange("retention.ms", SET, "5"), ConfigChange("segment.ms", SET, "6")) == {
        "retention.ms": "5",
        "cleanup.policy": "compact",
        "segment.ms": "6",
    }
    assert after(ConfigChange("retention.ms", DELETE, None), ConfigChange("flush.ms", DELETE, "x")) == {
        "cleanup.policy": "compact"
    }
    assert PRESENT == {"retention.ms": "1000", "cleanup.policy": "compact"}


@pytest.mark.parametrize(
    ("operation", "value", "expected"),
    [
        (APPEND, "delete", "compact,delete"),
        (APPEND, "compact", "compact"),
        (APPEND, "delete,", "compact,delete"),
        (APPEND, ",", "compact"),
        (APPEND, "", "compact,"),
        (APPEND, "compact,compact", "compact,compact"),
        (SUBTRACT, "compact", ""),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "delete,compact", ""),
        (SUBTRACT, "", "compact"),
    ],
)
def test_lists_grow_and_shrink(operation: int, value: str, expected: str) -> None:
    found = after(ConfigChange("cleanup.policy", operation, value))
    assert isinstance(found, dict)
    assert found["cleanup.policy"] == expected


def test_a_list_that_was_not_set_grows_from_its_default() -> None:
    assert changed({}, [ConfigChange("cleanup.policy", APPEND, "compact")], TOPIC_SETTINGS) == {
        "cleanup.policy": "delete,compact"
    }


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (ConfigChange("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (ConfigChange("nonsense", SUBTRACT, "1"), ErrorCode.INVALID_CONFIG),
        (ConfigChange("retention.ms", 4, "1"), ErrorCode.INVALID_REQUEST),
        (ConfigChange("retention.ms", -1, "1"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_done_to_a_setting(change: ConfigChange, error: ErrorCode) -> None:
    found = after(change)
    assert isinstance(found, TopicRefusal)
    assert found.error == error
    assert change.name in found.message


def test_an_empty_list_grows() -> None:
    present = {"follower.replication.throttled.replicas": ""}
    grown = changed(present, [ConfigChange("follower.replication.throttled.replicas", APPEND, "0:1")], TOPIC_SETTINGS)
    assert grown == {"follower.replication.throttled.replicas": "0:1"}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ([], None),
        ([ConfigChange("root", SET, "DEBUG"), ConfigChange("ottla.broker", DELETE, None)], None),
        ([ConfigChange("root", DELETE, None)], "Removing the log level of the root logger is not allowed"),
        ([ConfigChange("root", APPEND, "INFO")], "APPEND operation is not allowed for the BROKER_LOGGER resource"),
        ([ConfigChange("root", 4, "INFO")], "Unknown operation type 4 for logger: root"),
        ([ConfigChange("other", SET, "INFO")], "Logger other does not exist!"),
        ([ConfigChange("root", SET, "info")],
         "Cannot set the log level of root to info as it is not a supported log level. "
         "Valid log levels are DEBUG, WARN"),
    ],
)  # fmt: skip
def test_levels_of_loggers(changes: list[ConfigChange], told: str | None) -> None:
    refusal = logger_problem(changes, ("root", "ottla.broker"), ("WARN", "DEBUG"))
    assert (refusal.message if refusal is not None else None) == told


def test_resources_named_more_than_once() -> None:
    one, other = Resource(TOPIC, "t"), Resource(BROKER, "t")
    assert repeated([one, other]) == frozenset()
    assert repeated([one, other, one, one]) == {one}


@pytest.mark.parametrize(
    ("resource", "told"),
    [
        (Resource(TOPIC, "t"), None),
        (Resource(BROKER, ""), None),
        (Resource(BROKER, "7"), None),
        (Resource(BROKER, "8"), "Unexpected broker id, expected 7, but received 8"),
        (Resource(BROKER, "²"), "Node id must be an integer, but it is: ²"),
        (Resource(BROKER, "+007"), None),
        (Resource(BROKER, "4294967303"), "Node id must be an integer, but it is: 4294967303"),
        (Resource(BROKER_LOGGER, "7"), None),
        (Resource(BROKER_LOGGER, "8"), "Unexpected node id. Expected 7, but received 8"),
        (Resource(BROKER_LOGGER, ""), "Node id must be an integer, but it is: "),
        (Resource(99, "x"), "Unknown resource type 99"),
    ],
)
def test_resources_that_have_settings(resource: Resource, told: str | None) -> None:
    problem = request_problem(resource, [ConfigChange("retention.ms", SET, "5")], 7, loggers=True)
    assert (problem.message if problem is not None else None) == told


def test_levels_of_loggers_came_with_the_newer_request() -> None:
    problem = request_problem(Resource(BROKER_LOGGER, "7"), [], 7, loggers=False)
    assert problem is not None
    assert problem.message == "Unknown resource type 8"
