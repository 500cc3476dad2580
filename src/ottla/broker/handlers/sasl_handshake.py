"""SaslHandshake (key 17), versions 0-1: a client chooses its mechanism.

1: tokens follow in SaslAuthenticate requests; after 0 they follow as bare frames. A client that is authenticated begins
again with it (KIP-368). On a listener without SASL it is refused.
"""

from __future__ import annotations

from ottla.broker.authentication import MIN_REAUTHENTICATION_MS, SaslSession
from ottla.broker.authorization import Accesses
from ottla.broker.context import RequestContext
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def accesses(context: RequestContext, request: SaslHandshakeRequest) -> Accesses:
    """No access is needed."""
    return ()


def handle(context: RequestContext, request: SaslHandshakeRequest) -> None:
    authentication = context.broker.authentication
    mechanisms = None if authentication is None else authentication.listeners.get(context.listener_name)
    connection, state = context.connection, context.client_state
    session = state.login
    if authentication is None or mechanisms is None or (session is not None and not _may_begin_again(context, session)):
        context.reply(SaslHandshakeResponse(error_code=int(ErrorCode.ILLEGAL_SASL_STATE), mechanisms=[]))
        return
    offered = [name for name in mechanisms if session is None or name == session.mechanism]
    if request.mechanism not in offered:
        error = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        context.reply(SaslHandshakeResponse(error_code=int(error), mechanisms=offered))
        connection.close_when_sent()
        return
    state.login = login = authentication.begin(context.listener_name, request.mechanism)
    if session is not None:
        login.session, login.former = session, connection.principal or state.expired
    login.is_raw = context.api_version == 0
    context.reply(SaslHandshakeResponse(error_code=0, mechanisms=list(mechanisms)))


def _may_begin_again(context: RequestContext, session: SaslSession) -> bool:
    """Whether a session may be continued: once in a while, and not in the midst of an exchange."""
    lasted_ms = context.broker.clock.monotonic_ms() - session.begun_ms
    return session.is_complete and lasted_ms >= MIN_REAUTHENTICATION_MS and context.api_version > 0
