"""The JSON of znodes, as Kafka writes it: no blanks, keys in a fixed order, UTF-8."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

#: What Java's JSON writes differently from Python's: control characters, and characters beyond U+FFFF as surrogate
#: pairs. An escaped backslash begins neither.
_WRITTEN_OTHERWISE = re.compile(r"\\\\|\\u00[01][0-9a-f]|[\ud800-\udfff\U00010000-\U0010ffff]")


class ZnodeDataError(ValueError):
    """Invalid znode data; the message names the path."""


class KraftMigrationError(ZnodeDataError):
    """The cluster is being moved to KRaft: its controller is none of the brokers with ZooKeeper."""


@contextmanager
def expected(path: str, otherwise: str) -> Iterator[None]:
    """Turn an error about a value in a znode's JSON into a `ZnodeDataError`: "/path `otherwise`: …"."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ZnodeDataError(f"{path} {otherwise}: {error!r}") from error


def dump(value: Mapping[str, Any]) -> bytes:
    """The JSON of `value`, its keys in their order."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return _WRITTEN_OTHERWISE.sub(_as_java, text).encode()


def _as_java(found: re.Match[str]) -> str:
    text = found[0]
    if text.startswith("\\"):
        return text if text == "\\\\" else f"{text[:2]}{text[2:].upper()}"
    units = text.encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


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
    """The settings in the data of the znode at `path`, of any entity type. Raises `ZnodeDataError`."""
    config = load(path, data).get("config")
    if not isinstance(config, dict):
        raise ZnodeDataError(f"{path} holds no settings")
    return {str(name): str(value) for name, value in config.items()}
