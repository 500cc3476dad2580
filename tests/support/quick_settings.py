"""Settings of clients in unit tests: short pauses, and timeouts that a busy machine does not reach."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PAUSES: Mapping[str, Any] = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 20}

QUICK_CLIENT: Mapping[str, Any] = {
    **_PAUSES,
    "request_timeout_ms": 15_000,
    "default_api_timeout_ms": 30_000,
    "socket_connection_setup_timeout_ms": 10_000,
    "unknown_topic_timeout_ms": 50,
}
QUICK_PRODUCER: Mapping[str, Any] = {
    **_PAUSES,
    "request_timeout_ms": 15_000,
    "delivery_timeout_ms": 60_000,
    "max_block_ms": 30_000,
}
