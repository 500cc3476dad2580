"""What the cluster answers when it will not do something."""

from __future__ import annotations

from typing import NamedTuple

from ottla.wire.errors import ErrorCode


class TopicRefusal(NamedTuple):
    """Why a topic was not created, changed or deleted: Kafka's error and its words."""

    error: ErrorCode
    message: str
