"""From the name of a host to its addresses, and to a connection with one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from ottla.env.outgoing import SYSTEM_BUFFER_BYTES, Network, Receiver

R = TypeVar("R", bound=Receiver)


async def connect_to_host(
    network: Network,
    host: str,
    port: int,
    make: Callable[[], R],
    timeout_s: float,
    *,
    send_buffer_bytes: int = SYSTEM_BUFFER_BYTES,
    receive_buffer_bytes: int = SYSTEM_BUFFER_BYTES,
) -> R:
    """Connect to the first address of the host that accepts, each tried for its share of the time.

    Each attempt gets a receiver of its own from `make`; that of the connection is returned. Raises the last one's
    OSError (TimeoutError) where none does.
    """
    addresses = await network.addresses(host, port)
    share_s = timeout_s / max(1, len(addresses))
    for index, address in enumerate(addresses):
        receiver = make()
        try:
            async with asyncio.timeout(share_s):
                await network.connect(
                    address,
                    port,
                    receiver,
                    send_buffer_bytes=send_buffer_bytes,
                    receive_buffer_bytes=receive_buffer_bytes,
                )
        except OSError:  # a TimeoutError is one
            if index == len(addresses) - 1:
                raise
        else:
            return receiver
    raise OSError("the host has no addresses")


async def canonical_servers(network: Network, servers: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """The canonical names of all addresses of these hosts, with the same ports; a host that has none stays."""
    found: list[tuple[str, int]] = []
    for host, port in servers:
        try:
            names = await network.canonical_names(host, port)
        except OSError:
            names = [host]
        found.extend((name, port) for name in names)
    return list(dict.fromkeys(found))
