"""Delegation tokens (KIP-48, KIP-373). A token is named by its HMAC, by which its holder logs in as its owner."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ottla.client.admin.model import DelegationToken
from ottla.client.admin.outcomes import AdminCalls
from ottla.client.errors import BrokerError, InvalidArgumentError
from ottla.peer.arguments import MAX_INT64, several, text, whole_number
from ottla.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ottla.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ottla.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.wire.messages.renew_delegation_token import RenewDelegationTokenRequest

#: The versions of requests for another owner.
FOR_OTHERS = (3, 3)
_BY_BROKER = -1


class TokenAdmin(AdminCalls):
    """Admin calls about delegation tokens; principals are texts as `User:alice`, times milliseconds.

    A client may make them where it logged in by SASL without a token, or showed a certificate.
    """

    async def create_delegation_token(
        self,
        *,
        owner: str | None = None,
        renewers: Iterable[str] = (),
        max_lifetime_ms: int = _BY_BROKER,
        timeout_ms: int | None = None,
    ) -> DelegationToken:
        """Make a token, of this client's principal or of another `owner`; -1 has it live as long as the broker allows.

        Raises BrokerError (DELEGATION_TOKEN_AUTH_DISABLED, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        DELEGATION_TOKEN_AUTHORIZATION_FAILED, INVALID_PRINCIPAL_TYPE).
        """
        renewing = [_principal("a renewer", each) for each in several("renewers", renewers)]
        request = CreateDelegationTokenRequest(
            renewers=[CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in renewing],
            max_lifetime_ms=whole_number("max_lifetime_ms", max_lifetime_ms, _BY_BROKER, MAX_INT64),
        )
        if owner is not None:
            request.owner_principal_type, request.owner_principal_name = _principal("the owner", owner)
        versions = None if owner is None else FOR_OTHERS

        async def attempt() -> DelegationToken:
            connection = await self._cluster.any_connection()
            answer: CreateDelegationTokenResponse = await connection.request(request, versions=versions)
            _check(answer, "the token is not created")
            return DelegationToken(
                answer.token_id,
                *_owner_and_requester(answer),
                tuple(map(":".join, renewing)),
                answer.issue_timestamp_ms,
                answer.expiry_timestamp_ms,
                answer.max_timestamp_ms,
                bytes(answer.hmac),
            )

        return await self._cluster.retry("creating a delegation token", attempt, timeout_ms)

    async def renew_delegation_token(
        self, hmac: bytes, *, renew_time_period_ms: int = _BY_BROKER, timeout_ms: int | None = None
    ) -> int:
        """Have a token live this long from now, -1 for as long as new ones; return when it expires, in milliseconds.

        Raises BrokerError (DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_OWNER_MISMATCH, DELEGATION_TOKEN_EXPIRED).
        """
        period_ms = whole_number("renew_time_period_ms", renew_time_period_ms, _BY_BROKER, MAX_INT64)
        request = RenewDelegationTokenRequest(hmac=_hmac(hmac), renew_period_ms=period_ms)
        return await self._change(request, "renewing a delegation token", "the token is not renewed", timeout_ms)

    async def expire_delegation_token(
        self, hmac: bytes, *, expiry_time_period_ms: int = _BY_BROKER, timeout_ms: int | None = None
    ) -> int:
        """Have a token expire in this time, -1 removes it at once; return when it expires, in milliseconds.

        Raises BrokerError as `renew_delegation_token`.
        """
        period_ms = whole_number("expiry_time_period_ms", expiry_time_period_ms, _BY_BROKER, MAX_INT64)
        request = ExpireDelegationTokenRequest(hmac=_hmac(hmac), expiry_time_period_ms=period_ms)
        return await self._change(request, "expiring a delegation token", "the token does not expire", timeout_ms)

    async def _change(
        self,
        request: RenewDelegationTokenRequest | ExpireDelegationTokenRequest,
        what: str,
        otherwise: str,
        timeout_ms: int | None,
    ) -> int:
        async def attempt() -> int:
            answer = await self._cluster.request_any(request)
            _check(answer, otherwise)
            return int(answer.expiry_timestamp_ms)

        return await self._cluster.retry(what, attempt, timeout_ms)

    async def describe_delegation_token(
        self, owners: Iterable[str] | None = None, *, timeout_ms: int | None = None
    ) -> list[DelegationToken]:
        """Return the tokens of these owners, or all (None), that this client may see, the oldest first.

        Raises BrokerError (DELEGATION_TOKEN_AUTH_DISABLED, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED).
        """
        wanted = None
        if owners is not None:
            pairs = [_principal("an owner", each) for each in several("owners", owners)]
            wanted = [DescribeDelegationTokenOwner(principal_type=kind, principal_name=name) for kind, name in pairs]

        async def attempt() -> list[DelegationToken]:
            answer: DescribeDelegationTokenResponse = await self._cluster.request_any(
                DescribeDelegationTokenRequest(owners=wanted)
            )
            _check(answer, "tokens cannot be described")
            return sorted(map(_described, answer.tokens), key=lambda each: (each.issue_timestamp_ms, each.token_id))

        return await self._cluster.retry("describing delegation tokens", attempt, timeout_ms)


def _check(answer: Any, otherwise: str) -> None:
    if answer.error_code:
        raise BrokerError(answer.error_code, otherwise)


def _described(token: DescribedDelegationToken) -> DelegationToken:
    return DelegationToken(
        token.token_id,
        *_owner_and_requester(token),
        tuple(f"{each.principal_type}:{each.principal_name}" for each in token.renewers),
        token.issue_timestamp,
        token.expiry_timestamp,
        token.max_timestamp,
        bytes(token.hmac),
    )


def _owner_and_requester(token: CreateDelegationTokenResponse | DescribedDelegationToken) -> tuple[str, str]:
    """Before version 3 brokers name no requester: it is the owner."""
    requester = token.token_requester_principal_type, token.token_requester_principal_name
    owner = token.principal_type, token.principal_name
    return ":".join(owner), ":".join(requester if any(requester) else owner)


def _principal(what: str, value: Any) -> tuple[str, str]:
    kind, _, name = text(what, value).partition(":")
    if not kind or not name:
        raise InvalidArgumentError(f"{what} is of the form TYPE:NAME, as User:alice, not {value!r:.80}")
    return kind, name


def _hmac(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview) or not value:
        raise InvalidArgumentError("a token is named by its HMAC, as bytes (DelegationToken.hmac)")
    return bytes(value)
