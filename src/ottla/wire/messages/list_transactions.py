"""ListTransactions (key 66): the transactions that a broker coordinates (KIP-664). 1 adds a filter by age (KIP-994)."""

from __future__ import annotations

from ottla.wire.schema import INT16, INT32, INT64, STRING, Message, Struct, array, field, message, struct


@message(versions=(0, 1), flexible_since=0, api_key=66)
class ListTransactionsRequest(Message):
    state_filters: list[str] = field(array(STRING))
    producer_id_filters: list[int] = field(array(INT64))
    duration_filter: int = field(INT64, since=1, default=-1)


@struct
class ListTransactionsResponseTransactionState(Struct):
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    transaction_state: str = field(STRING)


@message(versions=(0, 1), flexible_since=0, api_key=66)
class ListTransactionsResponse(Message):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    unknown_state_filters: list[str] = field(array(STRING))
    transaction_states: list[ListTransactionsResponseTransactionState] = field(
        array(ListTransactionsResponseTransactionState)
    )
