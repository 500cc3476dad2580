"""Checks of the application's arguments, before ZooKeeper or a broker is asked for anything. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import iscoroutinefunction
from typing import Any

from ottla.client.errors import InvalidArgumentError
from ottla.client.model import OffsetAndMetadata, TopicPartition
from ottla.cluster.topics import topic_name_problem

MOST_THREADS = 10_000
"""Limit on the streams of one topic; a larger number is most likely a mistake."""
LARGEST_OFFSET = (1 << 63) - 1
LARGEST_PARTITION = (1 << 31) - 1

LISTENER_METHODS = ("before_releasing_partitions", "before_starting_fetchers")


def checked_streams(topics: object) -> dict[str, int]:
    """The number of streams of each topic. InvalidArgumentError."""
    if not isinstance(topics, Mapping) or not topics:
        example = topics if isinstance(topics, str) else "clicks"
        if isinstance(topics, list) and topics and isinstance(topics[0], str):
            example = topics[0]
        raise InvalidArgumentError(
            f"name at least one topic, with the number of threads of each: {{{example!r}: 1}}, not {topics!r}"
        )
    for topic, count in topics.items():
        check_topic(topic)
        check_threads(f"topic {topic}: ", count)
    return dict(topics)


def check_topic(topic: object) -> None:
    """Raises InvalidArgumentError for an invalid topic name."""
    if not isinstance(topic, str):
        raise InvalidArgumentError(f"the name of a topic is a text, not {topic!r}")
    if (problem := topic_name_problem(topic)) is not None:
        raise InvalidArgumentError(f"no topic can be called {topic!r}: {problem}")


def check_threads(prefix: str, count: object) -> None:
    """Raises InvalidArgumentError for an invalid number of threads."""
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise InvalidArgumentError(f"{prefix}the number of threads is 1 or more, not {count!r}")
    if count > MOST_THREADS:
        raise InvalidArgumentError(f"{prefix}the number of threads is {MOST_THREADS} at most, not {count}")


def check_listener(listener: object) -> None:
    """InvalidArgumentError for a rebalance listener that would never be called."""
    methods = [method for name in LISTENER_METHODS if callable(method := getattr(listener, name, None))]
    names = " or ".join(LISTENER_METHODS)
    if not methods:
        raise InvalidArgumentError(f"a rebalance listener has a method {names}; {listener!r} has none of them")
    if any(map(iscoroutinefunction, methods)):
        raise InvalidArgumentError(
            f"the methods of a rebalance listener ({names}) are called in a thread, and may block there: define them "
            f"with def, not async def ({type(listener).__name__})"
        )


def checked_offsets(offsets: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets to commit, by partition. InvalidArgumentError."""
    if not isinstance(offsets, Mapping):
        raise InvalidArgumentError(
            f"offsets are given by partition, {{TopicPartition('clicks', 0): 42}}, not as {offsets!r}"
        )
    return {_checked_partition(partition): _checked_offset(partition, offset) for partition, offset in offsets.items()}


def _checked_partition(value: Any) -> TopicPartition:
    if not isinstance(value, tuple) or len(value) != 2:
        raise InvalidArgumentError(f"a partition is given as TopicPartition('clicks', 0), not as {value!r}")
    topic, number = value
    check_topic(topic)
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= LARGEST_PARTITION:
        raise InvalidArgumentError(f"partition {number!r} of {topic}: partitions are numbers from 0 on")
    return TopicPartition(topic, number)


def _checked_offset(partition: object, value: Any) -> OffsetAndMetadata:
    committed = value if isinstance(value, OffsetAndMetadata) else OffsetAndMetadata(value)
    offset: object = committed.offset
    if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset <= LARGEST_OFFSET:
        raise InvalidArgumentError(f"offset {offset!r} of {partition}: offsets are numbers from 0 on, below 2**63")
    metadata: object = committed.metadata
    if not isinstance(metadata, str):
        raise InvalidArgumentError(f"the metadata of {partition} is a text, not {metadata!r}")
    return committed
