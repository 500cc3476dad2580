"""The JSON of znodes, as Kafka writes it: no blanks, keys in a fixed order, UTF-8."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any


class ZnodeDataError(ValueError):
    """The data of a znode is not what Kafka writes there; the message names the path."""


@contextmanager
def expected(path: str, otherwise: str) -> Iterator[None]:
    """What goes wrong inside with a value out of a znode's JSON is a `ZnodeDataError`: "/path `otherwise`: …"."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ZnodeDataError(f"{path} {otherwise}: {error!r}") from error


def dump(value: Mapping[str, Any]) -> bytes:
    """The JSON of `value`, its keys in their order."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def load_any(path: str, data: bytes | None) -> Any:
    """The JSON in the data of the znode at `path`. Raises `ZnodeDataError`."""
    try:
        return json.loads(data or b"")
    except (ValueError, RecursionError) as error:
        raise ZnodeDataError(f"{path} holds no JSON: {error}") from error


def load(path: str, data: bytes | None) -> dict[str, Any]:
    """The JSON object in the data of the znode at `path`. Raises `ZnodeDataError`."""
    value = load_any(path, data)
    if not isinstance(value, dict):
        raise ZnodeDataError(f"{path} holds no JSON object")
    return value


def dump_partitions(partitions: Iterable[tuple[str, int]]) -> bytes:
    """A list of partitions, each a topic and a number (version 1)."""
    return dump({"version": 1, "partitions": [{"topic": topic, "partition": number} for topic, number in partitions]})


def load_partitions(path: str, data: bytes | None) -> tuple[tuple[str, int], ...]:
    """The partitions in the data of the znode at `path`. Raises `ZnodeDataError`."""
    value = load(path, data)
    with expected(path, "holds no list of partitions"):
        return tuple((str(one["topic"]), int(one["partition"])) for one in value["partitions"])


def load_settings(path: str, data: bytes | None) -> dict[str, str]:
    """The settings in the data of the znode at `path`, whatever they belong to. Raises `ZnodeDataError`."""
    config = load(path, data).get("config")
    if not isinstance(config, dict):
        raise ZnodeDataError(f"{path} holds no settings")
    return {str(name): str(value) for name, value in config.items()}
