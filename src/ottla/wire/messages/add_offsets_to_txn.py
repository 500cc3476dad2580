"""AddOffsetsToTxn (key 25): add a group's partition of __consumer_offsets to a transaction (KIP-98).

Versions: 2 PRODUCER_FENCED; 3 flexible; 4 TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from ottla.wire.schema import INT16, INT32, INT64, STRING, Message, field, message


@message(versions=(0, 4), flexible_since=3, api_key=25)
class AddOffsetsToTxnRequest(Message):
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    group_id: str = field(STRING)


@message(versions=(0, 4), flexible_since=3, api_key=25)
class AddOffsetsToTxnResponse(Message):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
