"""Futures whose waiter may be gone by the time their outcome is known."""

from __future__ import annotations

import asyncio
from typing import Any


def settle(future: asyncio.Future[Any], result: Any, error: BaseException | None = None) -> None:
    """Give a future its outcome, the error where there is one; nothing where it was cancelled or has its outcome."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
