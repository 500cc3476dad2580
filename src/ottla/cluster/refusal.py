"""What the cluster answers when it will not do something."""

from __future__ import annotations

from typing import NamedTuple

from ottla.wire.errors import ErrorCode

LONGEST_TOLD = 8_000
"""Characters of a message that fit into any string of the protocol (32,767 bytes)."""


class TopicRefusal(NamedTuple):
    """Why a topic was not created, changed or deleted: Kafka's error and its words."""

    error: ErrorCode
    message: str

    @property
    def told(self) -> str:
        """The message for a client: cut where it repeats a name as long as only a request can hold."""
        return self.message[:LONGEST_TOLD]
