"""What an administrator gives by mistake, told before anything is asked of a broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from ottla.client.errors import InvalidArgumentError

T = TypeVar("T")


def several(what: str, given: Iterable[T]) -> list[T]:
    """The things that a call is about, as a list; `what` they are, in the plural.

    InvalidArgumentError for one thing alone: the letters of a text would be taken for names, those of topics to delete.
    """
    is_alone = isinstance(given, str | bytes) or hasattr(given, "_fields")
    if is_alone or not isinstance(given, Iterable):
        raise InvalidArgumentError(f"{what} are given as a list, also where there is one: [{given!r}], not {given!r}")
    return list(given)


def several_names(what: str, given: Iterable[str]) -> list[str]:
    """As `several`, of texts; InvalidArgumentError for what is none."""
    names = several(what, given)
    for name in names:
        if not isinstance(name, str):
            raise InvalidArgumentError(f"{what} are texts, not {name!r}")
    return names


def check_values(whose: str, values: Mapping[str, Any]) -> None:
    """InvalidArgumentError where the value of a setting is no text."""
    for name, value in values.items():
        if value is not None and not isinstance(value, str):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            raise InvalidArgumentError(f"{whose}: the value of {name} is given as text, {text!r}, not as {value!r}")
