"""Requests from one broker to another, as values: what a state machine asks its shell to send, and what came of it.

Transaction markers and verifications are of this kind (KIP-98, KIP-890).
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.wire.errors import ErrorCode
from ottla.wire.schema import Message

Destination = int | tuple[str, int]
"""A broker by its id, or whichever broker leads a partition (topic, index) at the time of sending."""


@dataclass(frozen=True, slots=True)
class BrokerRequest:
    """A request to another broker. `token` is the sender's own; it comes back with the outcome."""

    api_key: int
    destination: Destination
    payload: Message
    token: object
    versions: tuple[int, int] | None = None
    """The oldest and the newest version that can express the payload, if not all can that are used."""


@dataclass(frozen=True, slots=True)
class BrokerOutcome:
    """The outcome of a `BrokerRequest`: the response, or the reason for its lack where `error` is not NONE."""

    token: object
    error: ErrorCode
    response: Message | None = None
