"""InitProducerId (key 22): an id and epoch for an idempotent or transactional producer.

Versions: 2 flexible; 3 a producer asks to keep its id (KIP-360); 4 PRODUCER_FENCED; 5 TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from ottla.wire.schema import INT16, INT32, INT64, STRING, Message, field, message


@message(versions=(0, 5), flexible_since=2, api_key=22)
class InitProducerIdRequest(Message):
    transactional_id: str | None = field(STRING, nullable_since=0, default=None)
    transaction_timeout_ms: int = field(INT32)
    producer_id: int = field(INT64, since=3, default=-1)
    producer_epoch: int = field(INT16, since=3, default=-1)


@message(versions=(0, 5), flexible_since=2, api_key=22)
class InitProducerIdResponse(Message):
    throttle_time_ms: int = field(INT32, ignorable=True)
    error_code: int = field(INT16)
    producer_id: int = field(INT64, default=-1)
    producer_epoch: int = field(INT16)
