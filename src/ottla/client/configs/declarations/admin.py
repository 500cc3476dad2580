"""Settings of admin clients only."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.client.configs.settings import ClientRow

# fmt: off
ROWS: tuple[ClientRow, ...] = (
    (
        "bootstrap.controllers", "list", "", "", "high", "refused",
        "Controllers of a KRaft quorum to ask instead of brokers; give `bootstrap.servers`.",
    ),
    (
        "connections.max.idle.ms", "long", "300000", "", "medium", "honoured",
        "A connection that was not used for so long is closed; negative: never.",
    ),
    (
        "default.api.timeout.ms", "int", "60000", "[0,...]", "medium", "honoured",
        "How long a call without a timeout of its own may take, with all retries. At least `request.timeout.ms`.",
    ),
    (
        "receive.buffer.bytes", "int", "65536", "[-1,...]", "medium", "honoured",
        "Size of the socket's receive buffer (SO_RCVBUF). -1 leaves it to the operating system, which adapts it.",
    ),
    (
        "retries", "int", "2147483647", "[0,...,2147483647]", "low", "honoured",
        "How often a request is sent again; `default.api.timeout.ms` is the limit that matters.",
    ),
)
