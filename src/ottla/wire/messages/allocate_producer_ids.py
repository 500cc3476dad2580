"""AllocateProducerIds (key 67): a broker asks the controller for a block of producer ids (KIP-730)."""

from __future__ import annotations

from ottla.wire.schema import INT16, INT32, INT64, Message, field, message


@message(versions=(0, 0), flexible_since=0, api_key=67)
class AllocateProducerIdsRequest(Message):
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)  # The czxid of its registration.


@message(versions=(0, 0), flexible_since=0, api_key=67)
class AllocateProducerIdsResponse(Message):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    producer_id_start: int = field(INT64)
    producer_id_len: int = field(INT32)
