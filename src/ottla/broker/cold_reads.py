"""Requests that read logs at random positions, without blocking the event loop on the disk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ottla.broker.context import RequestContext
from ottla.env.warmth import Range, bring, without_waiting

log = logging.getLogger("ottla.broker")

#: Retries before the page cache is taken to be too small and the loop waits for the disk.
MOST_ROUNDS: Final = 8


def when_warm(context: RequestContext, work: Callable[[], None]) -> None:
    """Call `work` until all its reads are in the page cache; it must have no effect before it raises `ColdRange`."""
    _attempt(context, work, MOST_ROUNDS)


def _attempt(context: RequestContext, work: Callable[[], None], rounds_left: int) -> None:
    if rounds_left == 0:
        work()
        return
    cold = without_waiting(work)
    if not cold:
        return

    def brought(_result: None, _error: BaseException | None) -> None:
        if context.connection.closed:
            return
        try:
            _attempt(context, work, rounds_left - 1)
        except Exception:
            log.exception("a request of %s failed", context.client_host)
            context.disconnect()

    broker = context.broker
    broker.dispatcher.cold_reads += 1
    broker.executor.call(partial(bring, broker.disk, cold), brought)


async def bring_in(context: RequestContext, cold: Sequence[Range]) -> None:
    """Have a disk thread read ranges of files into the page cache, and wait for it.

    Errors are not reported here: they occur again when the range is read.
    """
    broker = context.broker
    broker.dispatcher.cold_reads += 1
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def brought(_result: None, _error: BaseException | None) -> None:
        if not done.done():
            done.set_result(None)

    broker.executor.call(partial(bring, broker.disk, cold), brought)
    await done
