"""RenewDelegationToken (key 39), versions 0-2: have a token live longer (KIP-48). 2 is flexible. Any broker does it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ottla.broker.authorization import Accesses
from ottla.broker.context import RequestContext
from ottla.broker.control.delegation_tokens import DelegationTokens
from ottla.broker.handlers.create_delegation_token import NO_TIME, allows_token_requests
from ottla.cluster.refusal import TopicRefusal
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

if TYPE_CHECKING:
    from ottla.wire.messages.expire_delegation_token import ExpireDelegationTokenResponse

    Response = type[RenewDelegationTokenResponse | ExpireDelegationTokenResponse]


def accesses(context: RequestContext, request: RenewDelegationTokenRequest) -> Accesses:
    """No access is needed: a token has its owner and renewers."""
    return ()


def handle(context: RequestContext, request: RenewDelegationTokenRequest) -> None:
    principal, hmac, period_ms = str(context.principal), bytes(request.hmac), request.renew_period_ms
    change_expiry(context, RenewDelegationTokenResponse, lambda tokens: tokens.renew(principal, hmac, period_ms))


def change_expiry(
    context: RequestContext,
    response: Response,
    change: Callable[[DelegationTokens], Awaitable[int | TopicRefusal]],
) -> None:
    """Answer with the time at which a token expires after `change`, or with why it does not change."""
    tokens = context.broker.delegation_tokens
    if not allows_token_requests(context):
        _reply(context, response, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    elif tokens is None:
        _reply(context, response, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    else:
        context.spawn(_answered(context, response, change(tokens)))


async def _answered(context: RequestContext, response: Response, changed: Awaitable[int | TopicRefusal]) -> None:
    expiry_ms = await changed
    if isinstance(expiry_ms, TopicRefusal):
        _reply(context, response, expiry_ms.error)
    else:
        _reply(context, response, ErrorCode.NONE, expiry_ms)


def _reply(context: RequestContext, response: Response, error: ErrorCode, expiry_ms: int = NO_TIME) -> None:
    context.reply(response(error_code=int(error), expiry_timestamp_ms=expiry_ms))
