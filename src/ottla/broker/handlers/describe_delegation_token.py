"""DescribeDelegationToken (key 41), versions 0-3: the tokens that a client may see (KIP-48).

2 is flexible; 3 adds requesters (KIP-373). A client sees the tokens that it owns, requested or may renew, and others by
an ACL.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.broker.authorization import Access, Accesses, or_else
from ottla.broker.context import RequestContext
from ottla.broker.control.delegation_tokens import DelegationTokens
from ottla.broker.handlers.create_delegation_token import VERSION_WITH_REQUESTER, allows_token_requests
from ottla.cluster.acls import Operation, ResourceType
from ottla.cluster.delegation_tokens import TokenInformation
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ottla.wire.sliced import mapped


def accesses(context: RequestContext, request: DescribeDelegationTokenRequest) -> Accesses:
    """To describe each token of others, or the tokens of its owner."""
    tokens = context.broker.delegation_tokens
    if tokens is None or not allows_token_requests(context) or _is_too_large(request):
        return
    principal = str(context.principal)
    for token in _requested(tokens, request):
        if not token.is_of(principal):
            described, of_owner = _accesses(token)
            yield from or_else(described, [of_owner])


def handle(context: RequestContext, request: DescribeDelegationTokenRequest) -> None:
    tokens = context.broker.delegation_tokens
    if not allows_token_requests(context):
        _refuse(context, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    elif tokens is None:
        _refuse(context, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    elif _is_too_large(request):
        _refuse(context, ErrorCode.INVALID_REQUEST)
    else:
        context.run(_describe(context, tokens, request))


def _is_too_large(request: DescribeDelegationTokenRequest) -> bool:
    return request.owners is not None and len(request.owners) > DelegationTokens.MOST_PRINCIPALS


def _refuse(context: RequestContext, error: ErrorCode) -> None:
    context.reply(DescribeDelegationTokenResponse(error_code=int(error)))


async def _describe(context: RequestContext, tokens: DelegationTokens, request: DescribeDelegationTokenRequest) -> None:
    principal, found = str(context.principal), []
    for token in _requested(tokens, request):
        await context.broker.slices.point()
        if token.is_of(principal) or any(context.permits(*access) for access in _accesses(token)):
            found.append(token)
    response = DescribeDelegationTokenResponse(
        tokens=mapped(found, lambda token: _described(tokens, token, context.api_version))
    )
    await context.replied(response)


def _requested(tokens: DelegationTokens, request: DescribeDelegationTokenRequest) -> Iterator[TokenInformation]:
    """The tokens of these owners, requesters and renewers, or all."""
    owners = None
    if request.owners is not None:
        owners = {f"{each.principal_type}:{each.principal_name}" for each in request.owners}
    return (
        token
        for token in list(tokens.tokens)
        if owners is None or not owners.isdisjoint((token.owner, token.requester, *token.renewers))
    )


def _accesses(token: TokenInformation) -> tuple[Access, Access]:
    return (
        Access(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id),
        Access(Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner),
    )


def _described(tokens: DelegationTokens, token: TokenInformation, version: int) -> DescribedDelegationToken:
    owner_type, _, owner = token.owner.partition(":")
    requester_type, _, requester = token.requester.partition(":") if version >= VERSION_WITH_REQUESTER else ("",) * 3
    return DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester,
        issue_timestamp=token.issue_ms,
        expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=tokens.hmac(token),
        renewers=[_renewer(each) for each in token.renewers],
    )


def _renewer(principal: str) -> DescribedDelegationTokenRenewer:
    kind, _, name = principal.partition(":")
    return DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
