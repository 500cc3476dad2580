"""EndTxn (key 26), versions 0-4: commit or abort a transaction (KIP-98).

1 has no change; 2 adds PRODUCER_FENCED; 3 is flexible; 4 adds TRANSACTION_ABORTABLE (KIP-890). The response comes when
the decision is committed; the markers are written after it.
"""

from __future__ import annotations

from ottla.broker.authorization import Access, Accesses
from ottla.broker.context import RequestContext
from ottla.cluster.acls import Operation, ResourceType
from ottla.txn.events import EndTxn, EndTxnResult
from ottla.txn.failures import error_in_version
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse


def accesses(context: RequestContext, request: EndTxnRequest) -> Accesses:
    return (Access(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id),)


def handle(context: RequestContext, request: EndTxnRequest) -> None:
    """Have the coordinator decide the end of the transaction."""
    writer = request.transactional_id
    if not context.permits(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, writer):
        _reply(context, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return

    def answer(result: EndTxnResult) -> None:
        _reply(context, error_in_version(result.error, ApiKey.END_TXN, context.api_version))

    end = EndTxn(answer, writer, request.producer_id, request.producer_epoch, request.committed)
    context.broker.transactions.submit(end)


def _reply(context: RequestContext, error: ErrorCode) -> None:
    context.reply(EndTxnResponse(error_code=int(error)))
