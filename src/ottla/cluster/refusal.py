"""Refusals: error values of requests that change the cluster."""

from __future__ import annotations

from typing import NamedTuple

from ottla.wire.errors import ErrorCode

LONGEST_RESPONSE_MESSAGE = 8_000
"""Longest message in characters; it fits into any string of the protocol (32,767 bytes)."""


class TopicRefusal(NamedTuple):
    """Why a topic was not created, changed or deleted: Kafka's error code and message."""

    error: ErrorCode
    message: str

    @property
    def response_message(self) -> str:
        """The message for a client, truncated if it repeats a very long name from the request."""
        return self.message[:LONGEST_RESPONSE_MESSAGE]
