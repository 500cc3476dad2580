"""SaslAuthenticate (key 36), versions 0-2: one token of a client, and the answer to it.

1 adds the session's lifetime (KIP-368); 2 is flexible. The answer to a failure waits for
`connection.failed.authentication.delay.ms`, and then the connection is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from ottla.broker.authentication import SaslSession
from ottla.broker.authorization import Accesses
from ottla.broker.context import RequestContext
from ottla.security.scram import SaslError
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


def accesses(context: RequestContext, request: SaslAuthenticateRequest) -> Accesses:
    """No access is needed."""
    return ()


def handle(context: RequestContext, request: SaslAuthenticateRequest) -> None:
    login = context.client_state.login
    if login is None or login.is_complete or login.is_raw:
        context.reply(
            SaslAuthenticateResponse(
                error_code=int(ErrorCode.ILLEGAL_SASL_STATE),
                error_message="SaslAuthenticate request received after successful authentication"
                if login is not None and login.is_complete
                else "SaslHandshake has to come before SaslAuthenticate",
            )
        )
        return
    token = bytes(request.auth_bytes)
    wanted = login.wanted(token)
    if wanted is None:
        failed = _take(context, login, token)
        if failed is not None:
            context.spawn(failed)
    else:
        context.spawn(_take_later(context, login, token, wanted))


async def _take_later(
    context: RequestContext, login: SaslSession, token: bytes, wanted: asyncio.Future[object]
) -> None:
    """Take a token when what it needs is there, or has failed."""
    await asyncio.wait((wanted,))
    if not context.is_gone:
        failed = _take(context, login, token)
        if failed is not None:
            await failed


def _take(context: RequestContext, login: SaslSession, token: bytes) -> Coroutine[object, object, None] | None:
    """Answer a token; where the login has failed, the late answer is what is returned."""
    try:
        answer, lifetime_ms = login.step(context.connection, token)
    except SaslError as error:
        return _fail(context, login.failed(context.connection, error), login.failure_delay_ms)
    context.reply(SaslAuthenticateResponse(error_code=0, auth_bytes=answer, session_lifetime_ms=lifetime_ms))
    return None


async def _fail(context: RequestContext, message: str, delay_ms: int) -> None:
    """Answer late, so that passwords cannot be tried quickly."""
    await asyncio.sleep(delay_ms / 1000)
    if not context.is_gone:
        error = int(ErrorCode.SASL_AUTHENTICATION_FAILED)
        context.reply(SaslAuthenticateResponse(error_code=error, error_message=message))
        context.connection.close_when_sent()
