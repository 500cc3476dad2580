"""Waiting for a condition in the broker's own loop.

A wait looks again after a few milliseconds of real time, so that `advance` in another thread does not end it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, TypeVar

from ottla.testing.declarations import check_number
from ottla.testing.errors import WaitedInVainError

T = TypeVar("T")

#: How long a wait lasts unless the test says otherwise, in seconds.
WAIT_TIMEOUT_S: Final = 30.0
#: Time between two looks, in seconds.
LOOK_AGAIN_S: Final = 0.002


async def until(look: Callable[[], T | None], what: Callable[[], str], timeout_s: float) -> T:
    """The first result of `look` that is not None. Raises `WaitedInVainError` with the text of `what`."""
    check_number("timeout_s", timeout_s)
    deadline = time.monotonic() + timeout_s
    while (found := look()) is None:
        if time.monotonic() >= deadline:
            raise WaitedInVainError(f"waited {timeout_s:g} s in vain for {what()}")
        await asyncio.sleep(LOOK_AGAIN_S)
    return found
