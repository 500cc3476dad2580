"""A hook that can change the handling of requests before their handlers run: for fault rules and quotas.

The dispatcher calls its `intercept`, if one is set, for every request, and carries out the verdict. Without one it
costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from ottla.broker.context import RequestContext
from ottla.wire.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class AnswerError:
    """Respond with this error, in every error field of the response; the request is not handled."""

    error: ErrorCode


@dataclass(frozen=True, slots=True)
class Delay:
    """Call the handler after a delay; the connection waits."""

    delay_ms: float


@dataclass(frozen=True, slots=True)
class Drop:
    """Drop the request without a response; the connection stays open.

    Requests behind it on its connection get no response either: responses keep the order of their requests.
    """


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Drop the request and close the connection."""


@dataclass(frozen=True, slots=True)
class Throttle:
    """Handle the request as usual, with this throttle time, and mute the connection for it (KIP-219)."""

    throttle_ms: int


@dataclass(frozen=True, slots=True)
class Cut:
    """Handle the request, send this many bytes of its response (its size field counts), and close the connection."""

    after_bytes: int


@dataclass(frozen=True, slots=True)
class ChangeResponse:
    """Handle the request, and let `change` alter its response in place before it is sent."""

    change: Callable[[Any], None]


Verdict: TypeAlias = AnswerError | Delay | Drop | Disconnect | Throttle | Cut | ChangeResponse
#: Called with a request and its message; None lets it pass.
Intercept: TypeAlias = "Callable[[RequestContext, Any], Verdict | None]"
