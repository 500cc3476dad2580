"""CreateDelegationToken (key 38): a token by which its holder logs in as its owner (KIP-48).

Versions: 2 flexible; 3 tokens for another owner (KIP-373).
"""

from __future__ import annotations

from ottla.wire.schema import BYTES, INT16, INT32, INT64, STRING, Message, Struct, array, field, message, struct


@struct
class CreatableRenewers(Struct):
    principal_type: str = field(STRING)
    principal_name: str = field(STRING)


@message(versions=(0, 3), flexible_since=2, api_key=38)
class CreateDelegationTokenRequest(Message):
    owner_principal_type: str | None = field(STRING, since=3, nullable_since=3, default=None)  # Null: the requester.
    owner_principal_name: str | None = field(STRING, since=3, nullable_since=3, default=None)
    renewers: list[CreatableRenewers] = field(array(CreatableRenewers))
    max_lifetime_ms: int = field(INT64)  # -1 for the broker's.


@message(versions=(0, 3), flexible_since=2, api_key=38)
class CreateDelegationTokenResponse(Message):
    error_code: int = field(INT16)
    principal_type: str = field(STRING)
    principal_name: str = field(STRING)
    token_requester_principal_type: str = field(STRING, since=3)
    token_requester_principal_name: str = field(STRING, since=3)
    issue_timestamp_ms: int = field(INT64)
    expiry_timestamp_ms: int = field(INT64)
    max_timestamp_ms: int = field(INT64)
    token_id: str = field(STRING)
    hmac: bytes = field(BYTES)
    throttle_time_ms: int = field(INT32)
