"""The JSON files of kafka-reassign-partitions and kafka-leader-election. Source: KIP-113, KIP-460, Kafka's tools."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ottla.client.errors import InvalidArgumentError
from ottla.client.model import TopicPartition

T = TypeVar("T")

VERSION = 1
ANY_LOG_DIR = "any"
"""In place of a log directory: the broker chooses, or leaves the replica where it is."""


class WantedMove(NamedTuple):
    """The replicas wanted of a partition: brokers, the preferred leader first, and a log directory of each."""

    partition: TopicPartition
    replicas: tuple[int, ...]
    log_dirs: tuple[str, ...]


class ReplicaDirectory(NamedTuple):
    """A replica, and the log directory wanted for it."""

    partition: TopicPartition
    broker: int
    log_dir: str


def replica_directories(moves: Iterable[WantedMove]) -> list[ReplicaDirectory]:
    """The replicas for which a log directory is named."""
    return [
        ReplicaDirectory(move.partition, broker, log_dir)
        for move in moves
        for broker, log_dir in zip(move.replicas, move.log_dirs, strict=True)
        if log_dir != ANY_LOG_DIR
    ]


def parse_moves(text: str) -> list[WantedMove]:
    """The moves in a file. Raises InvalidArgumentError, in Kafka's words where it has some."""
    moves = [_each(index, one, _move) for index, one in enumerate(_listed(text, "partitions"))]
    if not moves:
        raise InvalidArgumentError("Partition reassignment list cannot be empty; name at least one partition")
    twice = _twice(str(move.partition) for move in moves)
    if twice:
        raise InvalidArgumentError(f"Partition reassignment contains duplicate topic partitions: {', '.join(twice)}")
    for move in moves:
        named = _twice(map(str, move.replicas))
        if named:
            raise InvalidArgumentError(
                "Partition replica lists may not contain duplicate entries: "
                f"{move.partition} contains multiple entries for {', '.join(named)}"
            )
        if not move.replicas:
            raise InvalidArgumentError(f"partition {move.partition}: name at least one broker in its replicas")
        if len(move.log_dirs) != len(move.replicas):
            raise InvalidArgumentError(
                f"Size of replicas list {list(move.replicas)} is different from size of log dirs list "
                f"{list(move.log_dirs)} for partition {move.partition}; name one for each, or leave them out"
            )
    return moves


def parse_topics(text: str) -> list[str]:
    """The topics in a file `{"topics": [{"topic": …}], "version": 1}`. Raises InvalidArgumentError."""
    names = [_each(index, one, lambda one: _name(one["topic"])) for index, one in enumerate(_listed(text, "topics"))]
    twice = _twice(names)
    if twice:
        raise InvalidArgumentError(f"List of topics to reassign contains duplicate entries: {', '.join(twice)}")
    return names


def parse_partitions(text: str) -> list[TopicPartition]:
    """The partitions in a file of kafka-leader-election. Raises InvalidArgumentError."""
    found = [_each(index, one, _partition) for index, one in enumerate(_listed(text, "partitions"))]
    twice = _twice(map(str, found))
    if twice:
        raise InvalidArgumentError(f"Replica election data contains duplicate partitions: {', '.join(twice)}")
    return found


def moves_json(replicas: Mapping[TopicPartition, Sequence[int]]) -> str:
    """The file for these replicas, in one line as Kafka's tool prints it."""
    partitions = [
        {"topic": topic, "partition": index, "replicas": list(ids), "log_dirs": [ANY_LOG_DIR] * len(ids)}
        for (topic, index), ids in sorted(replicas.items())
    ]
    return json.dumps({"version": VERSION, "partitions": partitions}, separators=(",", ":"))


def _listed(text: str, key: str) -> list[Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidArgumentError(f"it is not JSON: {error}") from error
    except RecursionError as error:
        raise InvalidArgumentError("it is nested too deeply") from error
    if not isinstance(value, dict) or not isinstance(value.get(key), list):
        raise InvalidArgumentError(f'it has no list "{key}"')
    if value.get("version", VERSION) != VERSION:
        raise InvalidArgumentError(f"Not supported version field value {value['version']!r:.80}; it must be {VERSION}")
    return list(value[key])


def _each(index: int, one: Any, take: Callable[[Any], T]) -> T:
    try:
        return take(one)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgumentError(f"entry {index + 1} of the list cannot be read: {one!r:.200}") from error


def _move(one: Any) -> WantedMove:
    replicas = tuple(_number(each) for each in one["replicas"])
    log_dirs = one.get("log_dirs")
    named = (ANY_LOG_DIR,) * len(replicas) if log_dirs is None else tuple(_name(each) for each in log_dirs)
    return WantedMove(_partition(one), replicas, named)


def _partition(one: Any) -> TopicPartition:
    return TopicPartition(_name(one["topic"]), _number(one["partition"]))


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError
    return value


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError
    return value


def _twice(values: Iterable[str]) -> list[str]:
    return [value for value, times in Counter(values).items() if times > 1]
