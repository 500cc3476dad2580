"""A place to change what happens to requests before their handlers see them: for fault rules and quotas.

The dispatcher asks its `intercept`, where one is set, about every request, and carries out what it says. Nothing is
paid where none is set.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.wire.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class AnswerError:
    """Answer with this error, in every place of the response that has one; nothing is done."""

    error: ErrorCode


@dataclass(frozen=True, slots=True)
class Delay:
    """Hand the request to its handler later; the connection waits."""

    delay_ms: float


@dataclass(frozen=True, slots=True)
class Drop:
    """Do nothing and do not answer; the connection goes on with its next request."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Do nothing and close the connection."""


@dataclass(frozen=True, slots=True)
class Throttle:
    """Answer as ever, with this throttle time, and mute the connection for it (KIP-219)."""

    throttle_ms: int


Verdict: TypeAlias = AnswerError | Delay | Drop | Disconnect | Throttle
#: Gets a request in work and its message; None lets it pass.
Intercept: TypeAlias = "Callable[[RequestContext, Any], Verdict | None]"
