from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from ottla.broker.config_changes import change_levels, logger_levels
from ottla.cluster.configs import DELETE, SET, ConfigChange


@pytest.fixture
def name() -> Iterator[str]:
    one = logging.getLogger("ottla.test_loggers")
    yield one.name
    one.setLevel(logging.NOTSET)


def test_levels_are_reported_by_kafkas_names(name: str) -> None:
    for number, told in (
        (5, "TRACE"),
        (1, "TRACE"),
        (10, "DEBUG"),
        (25, "INFO"),
        (30, "WARN"),
        (40, "ERROR"),
        (60, "FATAL"),
    ):
        logging.getLogger(name).setLevel(number)
        assert logger_levels()[name] == told
    assert next(iter(logger_levels())) == "root"


def test_a_level_is_set_and_taken_away(name: str) -> None:
    inherited = logger_levels()[name]
    assert change_levels([ConfigChange(name, SET, "ERROR")], validate_only=True) is None
    assert logger_levels()[name] == inherited
    assert change_levels([ConfigChange(name, SET, "ERROR")], validate_only=False) is None
    assert not logging.getLogger(name).isEnabledFor(logging.WARNING)
    assert change_levels([ConfigChange(name, DELETE, None)], validate_only=False) is None
    assert logger_levels()[name] == inherited


def test_a_refusal_changes_nothing(name: str) -> None:
    inherited = logger_levels()[name]
    assert (
        change_levels([ConfigChange(name, SET, "ERROR"), ConfigChange("nobody", SET, "ERROR")], validate_only=False)
        is not None
    )
    assert logger_levels()[name] == inherited
    assert "nobody" not in logger_levels()
