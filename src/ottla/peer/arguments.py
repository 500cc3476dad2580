"""Checks of what callers give: an InvalidArgumentError names the argument, the value and what is wanted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isnan
from operator import index
from typing import Any, TypeVar

from ottla.peer.errors import InvalidArgumentError
from ottla.peer.model import TopicPartition
from ottla.wire.strings import too_long

T = TypeVar("T")

MAX_INT16 = 0x7FFF
MAX_INT32 = 0x7FFFFFFF
MAX_INT64 = 0x7FFFFFFFFFFFFFFF


def whole_number(what: str, value: Any, least: int = 0, most: int = MAX_INT64) -> int:
    """A whole number within bounds, as an int; those of numpy will do. InvalidArgumentError."""
    try:
        number = index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or not least <= number <= most:
        raise InvalidArgumentError(f"{what} is a whole number from {least} to {most}, not {value!r:.80}")
    return number


def milliseconds(what: str, value: Any) -> float:
    """A time in milliseconds, which may have a fraction, from 0 on. InvalidArgumentError."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number:
        is_number = hasattr(value, "__index__") and not isinstance(value, bool)
    if not is_number or isnan(value) or value < 0:
        raise InvalidArgumentError(f"{what} is a number of milliseconds from 0 on, not {value!r:.80}")
    return float(value)


def milliseconds_or_none(what: str, value: Any) -> float | None:
    """As `milliseconds`; None stays."""
    return None if value is None else milliseconds(what, value)


def one_of(what: str, value: Any, choices: Iterable[str]) -> str:
    """One of some words. InvalidArgumentError."""
    if not isinstance(value, str) or value not in choices:
        raise InvalidArgumentError(f"{what} {value!r:.80} cannot be; there are {', '.join(choices)}")
    return value


def text(what: str, value: Any) -> str:
    """A text that is not empty. InvalidArgumentError."""
    if not isinstance(value, str) or not value.strip():
        raise InvalidArgumentError(f"{what} is a text that is not empty, not {value!r:.80}")
    return fitting(what, value)


def fitting(what: str, value: str) -> str:
    """A text that can be sent: InvalidArgumentError for one that is longer than strings of Kafka's protocol are."""
    if (problem := too_long(value)) is not None:
        raise InvalidArgumentError(f"{what} {problem}: {value[:30]!r}…")
    return value


def partition(value: Any, what: str = "a partition") -> TopicPartition:
    """A partition, given as TopicPartition or as a pair of topic and number. InvalidArgumentError."""
    if isinstance(value, tuple | list) and len(value) == len(TopicPartition._fields):
        topic, number = value
        if isinstance(topic, str) and topic:
            fitting("the name of a topic", topic)
            return TopicPartition(topic, whole_number(f"the number of {what} of topic {topic}", number, 0, MAX_INT32))
    raise InvalidArgumentError(f"{what} is a TopicPartition(topic, number), not {value!r:.80}")


def partitions(value: Any) -> list[TopicPartition]:
    """Partitions in a list. InvalidArgumentError."""
    return [partition(each) for each in several("partitions", value)]


def mapping(what: str, value: Any) -> Mapping[Any, Any]:
    """A dict, or what is like one. InvalidArgumentError."""
    if not isinstance(value, Mapping):
        raise InvalidArgumentError(f"{what} are given as a dict, not as {value!r:.80}")
    return value


def by_partition(what: str, value: Any) -> dict[TopicPartition, Any]:
    """A dict whose keys are partitions. InvalidArgumentError."""
    return {partition(each): value for each, value in mapping(what, value).items()}


def function(what: str, value: Any) -> Any:
    """Something that can be called, or None. InvalidArgumentError."""
    if value is not None and not callable(value):
        raise InvalidArgumentError(f"{what} is a function or None, not {value!r:.80}")
    return value


def several(what: str, value: Iterable[T]) -> list[T]:
    """The things that a call is about, as a list; `what` they are, in the plural.

    InvalidArgumentError for one thing alone: the letters of a text would be taken for names, those of topics to delete.
    """
    is_alone = isinstance(value, str | bytes) or hasattr(value, "_fields")
    if is_alone or not isinstance(value, Iterable):
        raise InvalidArgumentError(
            f"{what} are given as a list, also where there is one: [{value!r:.80}], not {value!r:.80}"
        )
    return list(value)


def several_names(what: str, value: Iterable[str]) -> list[str]:
    """As `several`, of texts; InvalidArgumentError for what is none."""
    names = several(what, value)
    for name in names:
        if not isinstance(name, str):
            raise InvalidArgumentError(f"{what} are texts, not {name!r:.80}")
        fitting(f"one of the {what}", name)
    return names


def check_values(whose: str, values: Mapping[str, Any]) -> None:
    """InvalidArgumentError if the value of a setting is not text."""
    for name, value in mapping(f"the settings of {whose}", values).items():
        if not isinstance(name, str):
            raise InvalidArgumentError(f"{whose}: the name of a setting is a text, not {name!r:.80}")
        if value is not None and not isinstance(value, str):
            written = str(value).lower() if isinstance(value, bool) else str(value)
            raise InvalidArgumentError(f"{whose}: the value of {name} is given as text, {written!r}, not as {value!r}")
        fitting(f"{whose}: the name of a setting", name)
        if value is not None:
            fitting(f"{whose}: the value of {name}", value)
