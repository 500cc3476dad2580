"""The levels of this process's loggers, asked and changed as settings of a broker (KIP-412).

The names are those of Python's loggers here (`ottla.broker`), of Java's classes in Apache Kafka. Changes are not kept:
a restart brings back what `OTTLA_LOG_LEVEL` says.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.cluster.configs import DELETE, Change, logger_problem

if TYPE_CHECKING:
    from ottla.cluster.refusal import TopicRefusal

ROOT = "root"
#: Kafka's levels and Python's numbers for them. Python has none below DEBUG.
LEVELS = {
    "TRACE": logging.DEBUG // 2,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def logger_levels() -> dict[str, str]:
    """Every logger that there is, by name, and the level in force for it."""
    known = sorted(name for name, one in logging.root.manager.loggerDict.items() if isinstance(one, logging.Logger))
    return {ROOT: _told(logging.root)} | {name: _told(logging.getLogger(name)) for name in known}


def change_levels(changes: Sequence[Change], *, validate_only: bool) -> TopicRefusal | None:
    """Set levels, or take them away, so that the next logger upwards decides; says why where it cannot."""
    refusal = logger_problem(changes, logger_levels(), LEVELS)
    if refusal is not None or validate_only:
        return refusal
    for change in changes:
        one = logging.root if change.name == ROOT else logging.getLogger(change.name)
        one.setLevel(logging.NOTSET if change.operation == DELETE else LEVELS[str(change.value)])
    return None


def _told(one: logging.Logger) -> str:
    """The level in force, as Kafka names it: the next lower one where Python has others."""
    level = one.getEffectiveLevel()
    names = [name for name, number in LEVELS.items() if number <= level]
    return names[-1] if names else next(iter(LEVELS))
