"""Log levels of this process, described and changed as settings of a broker (KIP-412).

Names are those of Python's loggers (`ottla.broker`), where Apache Kafka has Java classes. Changes are not persistent:
a restart restores the level in `OTTLA_LOG_LEVEL`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ottla.cluster.configs import DELETE, ConfigChange, logger_problem
from ottla.cluster.refusal import TopicRefusal

ROOT = "root"
#: Kafka's levels and their Python numbers. Python has none below DEBUG.
LEVELS = {
    "TRACE": logging.DEBUG // 2,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def logger_levels() -> dict[str, str]:
    """All loggers by name, with their effective levels."""
    known = sorted(name for name, one in logging.root.manager.loggerDict.items() if isinstance(one, logging.Logger))
    return {ROOT: _level_name(logging.root)} | {name: _level_name(logging.getLogger(name)) for name in known}


def change_levels(changes: Sequence[ConfigChange], *, validate_only: bool) -> TopicRefusal | None:
    """Set or unset levels (an unset one is inherited); return the refusal if a change is invalid."""
    refusal = logger_problem(changes, logger_levels(), LEVELS)
    if refusal is not None or validate_only:
        return refusal
    for change in changes:
        one = logging.root if change.name == ROOT else logging.getLogger(change.name)
        one.setLevel(logging.NOTSET if change.operation == DELETE else LEVELS[str(change.value)])
    return None


def _level_name(one: logging.Logger) -> str:
    """The effective level under Kafka's name; a level between two of them is shown as the lower one."""
    level = one.getEffectiveLevel()
    names = [name for name, number in LEVELS.items() if number <= level]
    return names[-1] if names else next(iter(LEVELS))
