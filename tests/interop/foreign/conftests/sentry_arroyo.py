"""sentry-arroyo: its tests take the broker's address from an environment variable.

The source distribution lacks two modules of helpers that its tests import; these stand in for them.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest

from ottla.testing import Broker


@pytest.fixture(scope="session", autouse=True)
def kafka() -> Iterator[None]:
    with Broker() as broker:
        os.environ["DEFAULT_BROKERS"] = broker.bootstrap_servers
        yield


@contextmanager
def _assert_changes(value: Callable[[], Any], before: Any, after: Any) -> Iterator[None]:
    assert value() == before
    yield
    assert value() == after


@contextmanager
def _assert_does_not_change(value: Callable[[], Any], expected: Any) -> Iterator[None]:
    with _assert_changes(value, expected, expected):
        yield


def _stand_in(name: str, **contents: Any) -> None:
    module = sys.modules[name] = ModuleType(name)
    vars(module).update(contents)


_stand_in("tests.assertions", assert_changes=_assert_changes, assert_does_not_change=_assert_does_not_change)
