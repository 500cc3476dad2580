"""UnregisterBroker (key 64): forget a broker that will not come back (KIP-631). Version 0 is flexible."""

from __future__ import annotations

from ottla.wire.schema import INT16, INT32, STRING, Message, field, message


@message(versions=(0, 0), flexible_since=0, api_key=64)
class UnregisterBrokerRequest(Message):
    broker_id: int = field(INT32)


@message(versions=(0, 0), flexible_since=0, api_key=64)
class UnregisterBrokerResponse(Message):
    """Whether it is forgotten, or why not."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0, default=None)
