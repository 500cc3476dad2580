"""The first connection to a cluster: addresses are tried in order, with a head start each (as in RFC 8305)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from ottla.peer.connection import PeerConnection
from ottla.peer.errors import ConnectError

HEAD_START_S = 0.25
"""Head start of an address before the next one is tried in parallel."""

Address = tuple[str, int]


async def connect_to_any(
    addresses: Sequence[Address], connect: Callable[[str, int], Awaitable[PeerConnection]]
) -> tuple[PeerConnection | None, dict[Address, ConnectError]]:
    """The first connection that succeeds, None if none does, and the errors of the addresses that failed before.

    An address that refuses makes room for the next at once, one that does not answer after its head start.
    """
    waiting = list(addresses)
    attempts: dict[asyncio.Future[PeerConnection], Address] = {}
    problems: dict[Address, ConnectError] = {}
    found: PeerConnection | None = None
    try:
        while waiting or attempts:
            if waiting:
                address = waiting.pop(0)
                attempts[asyncio.ensure_future(connect(*address))] = address
            done, _ = await asyncio.wait(
                attempts, timeout=HEAD_START_S if waiting else None, return_when=asyncio.FIRST_COMPLETED
            )
            for attempt in [each for each in attempts if each in done]:
                address = attempts.pop(attempt)
                try:
                    found = attempt.result()
                except ConnectError as error:
                    problems[address] = error
                else:
                    return found, problems
        return None, problems
    finally:
        try:
            await _give_up(list(attempts))
        except asyncio.CancelledError:
            if found is not None:
                found.close()  # the caller does not get it
            raise


async def _give_up(attempts: list[asyncio.Future[PeerConnection]]) -> None:
    for attempt in attempts:
        attempt.cancel()
    try:
        await asyncio.gather(*attempts, return_exceptions=True)
    finally:
        for attempt in attempts:  # one may have come about while another did
            if attempt.done() and not attempt.cancelled() and attempt.exception() is None:
                attempt.result().close()
