"""DescribeDelegationToken (key 41): the tokens of owners, requesters and renewers (KIP-48).

Versions: 2 flexible; 3 requesters (KIP-373).
"""

from __future__ import annotations

from ottla.wire.schema import BYTES, INT16, INT32, INT64, STRING, Message, Struct, array, field, message, struct


@struct
class DescribeDelegationTokenOwner(Struct):
    principal_type: str = field(STRING)
    principal_name: str = field(STRING)


@message(versions=(0, 3), flexible_since=2, api_key=41)
class DescribeDelegationTokenRequest(Message):
    owners: list[DescribeDelegationTokenOwner] | None = field(
        array(DescribeDelegationTokenOwner), nullable_since=0
    )  # Null: all.


@struct
class DescribedDelegationTokenRenewer(Struct):
    principal_type: str = field(STRING)
    principal_name: str = field(STRING)


@struct
class DescribedDelegationToken(Struct):
    principal_type: str = field(STRING)
    principal_name: str = field(STRING)
    token_requester_principal_type: str = field(STRING, since=3)
    token_requester_principal_name: str = field(STRING, since=3)
    issue_timestamp: int = field(INT64)
    expiry_timestamp: int = field(INT64)
    max_timestamp: int = field(INT64)
    token_id: str = field(STRING)
    hmac: bytes = field(BYTES)
    renewers: list[DescribedDelegationTokenRenewer] = field(array(DescribedDelegationTokenRenewer))


@message(versions=(0, 3), flexible_since=2, api_key=41)
class DescribeDelegationTokenResponse(Message):
    error_code: int = field(INT16)
    tokens: list[DescribedDelegationToken] = field(array(DescribedDelegationToken))
    throttle_time_ms: int = field(INT32)
