"""Silence where py4j would speak, and only there."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator

import pytest

from ottla.spark.noise import _not_of_py4j, silence_spark


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    level = logging.getLogger("py4j").level
    with warnings.catch_warnings():
        yield
    logging.getLogger("py4j").setLevel(level)
    logging.getLogger().removeFilter(_not_of_py4j)


def said(path: str, logger: str = "root") -> bool:
    """Whether a record that code at `path` gives to a logger gets past it."""
    record = logging.LogRecord(logger, logging.ERROR, path, 1, "KeyboardInterrupt while sending command.", (), None)
    chosen = logging.getLogger(None if logger == "root" else logger)
    return chosen.isEnabledFor(record.levelno) and bool(chosen.filter(record))


def test_py4j_is_silent_whichever_logger_it_uses() -> None:
    gateway = "/usr/lib/python3/site-packages/py4j/java_gateway.py"
    assert said(gateway)
    silence_spark()
    assert not said(gateway)
    assert not said(gateway, "py4j.clientserver")


def test_others_are_heard() -> None:
    silence_spark()
    assert said("/usr/lib/python3/site-packages/ottla/cli/serve.py")
    assert said("/usr/lib/python3/site-packages/ottla/broker/server.py", "ottla.broker")


def test_twice_is_once() -> None:
    silence_spark()
    silence_spark()
    assert logging.getLogger().filters.count(_not_of_py4j) == 1
