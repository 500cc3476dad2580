"""Waiting for a condition, never for luck."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL_INTERVAL_S = 0.01


def wait_until(
    condition: Callable[[], T],
    what: str | Callable[[], str],
    timeout_s: float = 30.0,
    interval_s: float = POLL_INTERVAL_S,
) -> T:
    """The first true value of `condition`; an AssertionError naming `what` was waited for after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            name = what if isinstance(what, str) else what()
            raise AssertionError(f"waited {timeout_s:g} s in vain for {name}")
        time.sleep(interval_s)
