"""ExpireDelegationToken (key 40), versions 0-2: have a token end sooner, or remove it (KIP-48). 2 is flexible.

Any broker does it.
"""

from __future__ import annotations

from ottla.broker.authorization import Accesses
from ottla.broker.context import RequestContext
from ottla.broker.handlers.renew_delegation_token import change_expiry
from ottla.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse


def accesses(context: RequestContext, request: ExpireDelegationTokenRequest) -> Accesses:
    """No access is needed: a token has its owner and renewers."""
    return ()


def handle(context: RequestContext, request: ExpireDelegationTokenRequest) -> None:
    principal, hmac, period_ms = str(context.principal), bytes(request.hmac), request.expiry_time_period_ms
    change_expiry(context, ExpireDelegationTokenResponse, lambda tokens: tokens.expire(principal, hmac, period_ms))
