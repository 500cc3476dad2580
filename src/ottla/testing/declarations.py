"""Checks of a test broker's arguments, at its start and in calls, before anything is touched."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from typing import Any, Final

from ottla.env.platforms import has_disk
from ottla.testing.errors import TestBrokerError

#: Settings that say where the data are.
LOG_DIRS: Final = ("log.dirs", "log.dir")


def check_topics(topics: Any) -> None:
    """Raises `TestBrokerError` where topics are not declared by their names."""
    if topics is not None and not isinstance(topics, Mapping):
        raise TestBrokerError(f'topics={topics!r}: give numbers of partitions by name, as in {{"orders": 3}}')


def settings_as_text(settings: Any) -> dict[str, str]:
    """Settings as in a file. Raises `TestBrokerError` where they are not given by name."""
    if settings is not None and not isinstance(settings, Mapping):
        raise TestBrokerError(f'settings={settings!r}: give values by Kafka\'s names, as in {{"num.partitions": 3}}')
    return {name: _text(value) for name, value in (settings or {}).items()}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def log_directory(data: Any) -> str:
    """The directory that `data=` names, as `log.dirs` has it. Raises `TestBrokerError`."""
    path: Any = os.fspath(data)
    if not has_disk():
        raise TestBrokerError(
            f"data={path!r}: on this system ({sys.platform}) the broker keeps its data in memory only: leave data= out"
        )
    if not isinstance(path, str) or not path:
        raise TestBrokerError(f"data={path!r}: it must be the path of a directory, as text; leave it out for memory")
    # `log.dirs` is a list.
    if "," in path or path.strip() != path:
        raise TestBrokerError(
            f"data={path!r}: Kafka's log.dirs cannot name a directory with a comma, or with spaces at its ends: "
            "choose another one"
        )
    return str(path)


def check_settings(settings: Mapping[str, str], *, has_address: bool) -> None:
    """Raises `TestBrokerError` where settings contradict, or do in another way, what the broker takes by arguments."""
    for name in LOG_DIRS:
        if name in settings:
            raise TestBrokerError(f"{name} cannot be among the settings: give the directory as data=…")
    if has_address and "listeners" in settings:
        raise TestBrokerError(
            "listeners among the settings says where to listen: leave host=, port=, tls= and sasl= out"
        )


def check_number(name: str, value: Any) -> None:
    """Raises `TestBrokerError` where an amount of time is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise TestBrokerError(f"{name}={value!r}: it must be a number")
