"""RenewDelegationToken (key 39): have a token live longer (KIP-48). Version 2 is flexible."""

from __future__ import annotations

from ottla.wire.schema import BYTES, INT16, INT32, INT64, Message, field, message


@message(versions=(0, 2), flexible_since=2, api_key=39)
class RenewDelegationTokenRequest(Message):
    hmac: bytes = field(BYTES)
    renew_period_ms: int = field(INT64)


@message(versions=(0, 2), flexible_since=2, api_key=39)
class RenewDelegationTokenResponse(Message):
    error_code: int = field(INT16)
    expiry_timestamp_ms: int = field(INT64)
    throttle_time_ms: int = field(INT32)
