"""ListTransactions (key 66), versions 0-1: the transactional ids that this broker coordinates (KIP-664).

1 adds a filter by the age of the transaction (KIP-994).
"""

from __future__ import annotations

from ottla.broker.authorization import Access, Accesses, Unlogged
from ottla.broker.context import RequestContext
from ottla.cluster.acls import Operation, ResourceType
from ottla.txn.events import TransactionView
from ottla.txn.states import TransactionState
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsResponseTransactionState,
)
from ottla.wire.sliced import mapped

_STATES = {state.value: state for state in TransactionState}


def accesses(context: RequestContext, request: ListTransactionsRequest) -> Accesses:
    """DESCRIBE of single transactional ids."""
    for view in _found(context, request)[1]:
        yield Unlogged(*_access(view))


def handle(context: RequestContext, request: ListTransactionsRequest) -> None:
    """List the transactional ids that pass the filters and may be described by the client."""
    error, found = _found(context, request)
    unknown = [name for name in dict.fromkeys(request.state_filters) if name not in _STATES]
    context.reply_in_slices(
        ListTransactionsResponse(
            error_code=int(error),
            unknown_state_filters=unknown,
            transaction_states=mapped([view for view in found if context.permits(*_access(view))], _listed),
        )
    )


def _found(context: RequestContext, request: ListTransactionsRequest) -> tuple[ErrorCode, list[TransactionView]]:
    names = request.state_filters
    states = {_STATES[name] for name in names if name in _STATES} if names else None
    if states is not None and not states:
        return ErrorCode.NONE, []
    return context.broker.transactions.list(set(request.producer_id_filters), states, request.duration_filter)


def _access(view: TransactionView) -> Access:
    return Access(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, view.transactional_id)


def _listed(view: TransactionView) -> ListTransactionsResponseTransactionState:
    return ListTransactionsResponseTransactionState(
        transactional_id=view.transactional_id, producer_id=view.producer_id, transaction_state=view.state.value
    )
