"""SaslAuthenticate (key 36): one token of a SASL exchange, and the answer to it (KIP-152).

Versions: 1 the session's lifetime (KIP-368); 2 flexible.
"""

from __future__ import annotations

from ottla.wire.schema import BYTES, INT16, INT64, STRING, Message, field, message


@message(versions=(0, 2), flexible_since=2, api_key=36)
class SaslAuthenticateRequest(Message):
    auth_bytes: bytes = field(BYTES)


@message(versions=(0, 2), flexible_since=2, api_key=36)
class SaslAuthenticateResponse(Message):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0, default=None)
    auth_bytes: bytes = field(BYTES)
    session_lifetime_ms: int = field(INT64, since=1, ignorable=True)  # 0 without a limit.
