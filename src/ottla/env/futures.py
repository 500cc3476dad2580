"""Futures that may be cancelled before their result is known."""

from __future__ import annotations

import asyncio
from typing import Any


def settle(future: asyncio.Future[Any], result: Any, error: BaseException | None = None) -> None:
    """Set a future's result, or its exception where there is one; do nothing if it is done or cancelled."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
