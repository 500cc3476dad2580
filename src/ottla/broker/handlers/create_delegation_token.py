"""CreateDelegationToken (key 38), versions 0-3: a token by which its holder logs in as its owner (KIP-48).

2 is flexible; 3 adds tokens for another owner (KIP-373). Any broker makes it.
"""

from __future__ import annotations

from ottla.broker.authorization import Access, Accesses
from ottla.broker.context import RequestContext
from ottla.broker.control.delegation_tokens import DelegationTokens
from ottla.cluster.acls import Operation, ResourceType
from ottla.cluster.refusal import TopicRefusal
from ottla.net.connection import ANONYMOUS
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse

USER = "User"
#: The first version of answers that names who requested a token.
VERSION_WITH_REQUESTER = 3
#: In place of times where there is an error.
NO_TIME = -1


def allows_token_requests(context: RequestContext) -> bool:
    """Whether the connection is secure enough for requests about tokens, and the client did not log in by one."""
    name = context.listener_name
    endpoint = next(each for each in context.broker.config.listeners if each.listener_name == name)
    login = context.client_state.login
    if endpoint.uses_sasl:
        return login is not None and login.token is None
    return endpoint.uses_tls and context.principal != ANONYMOUS


def accesses(context: RequestContext, request: CreateDelegationTokenRequest) -> Accesses:
    """For another owner, to make tokens of that user."""
    owner = _owner(context, request)
    if owner == str(context.principal) or not allows_token_requests(context):
        return ()
    return (Access(Operation.CREATE_TOKENS, ResourceType.USER, owner),)


def handle(context: RequestContext, request: CreateDelegationTokenRequest) -> None:
    owner, tokens, refusal = _owner(context, request), context.broker.delegation_tokens, None
    is_own = owner == str(context.principal)
    if not allows_token_requests(context):
        refusal = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    elif not is_own and not context.permits(Operation.CREATE_TOKENS, ResourceType.USER, owner):
        refusal = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    elif len(request.renewers) > DelegationTokens.MOST_PRINCIPALS:
        refusal = ErrorCode.INVALID_REQUEST
    elif any(each.principal_type != USER for each in request.renewers):
        refusal = ErrorCode.INVALID_PRINCIPAL_TYPE
    elif tokens is None:
        refusal = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    if refusal is not None or tokens is None:
        _refuse(context, owner, refusal or ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        return
    renewers = [f"{each.principal_type}:{each.principal_name}" for each in request.renewers]
    context.spawn(_create(context, tokens, owner, renewers, request.max_lifetime_ms))


def _owner(context: RequestContext, request: CreateDelegationTokenRequest) -> str:
    if not request.owner_principal_name:
        return str(context.principal)
    return f"{request.owner_principal_type or ''}:{request.owner_principal_name}"


async def _create(
    context: RequestContext, tokens: DelegationTokens, owner: str, renewers: list[str], max_lifetime_ms: int
) -> None:
    token = await tokens.create(owner, str(context.principal), renewers, max_lifetime_ms)
    if isinstance(token, TopicRefusal):
        _refuse(context, owner, token.error)
        return
    response = _response(context, owner, ErrorCode.NONE)
    response.issue_timestamp_ms = token.issue_ms
    response.expiry_timestamp_ms = token.expiry_ms
    response.max_timestamp_ms = token.max_ms
    response.token_id = token.token_id
    response.hmac = tokens.hmac(token)
    context.reply(response)


def _refuse(context: RequestContext, owner: str, error: ErrorCode) -> None:
    response = _response(context, owner, error)
    response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = NO_TIME
    context.reply(response)


def _response(context: RequestContext, owner: str, error: ErrorCode) -> CreateDelegationTokenResponse:
    kind, _, name = owner.partition(":")
    response = CreateDelegationTokenResponse(error_code=int(error), principal_type=kind, principal_name=name)
    if context.api_version >= VERSION_WITH_REQUESTER:
        response.token_requester_principal_type = context.principal.type
        response.token_requester_principal_name = context.principal.name
    return response
