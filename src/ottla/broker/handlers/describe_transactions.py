"""DescribeTransactions (key 65), version 0: transactions that this broker coordinates, by transactional id (KIP-664).

Of the partitions those are shown whose topics the client may describe.
"""

from __future__ import annotations

from ottla.broker.authorization import Access, Accesses, Unlogged, on_topics
from ottla.broker.context import RequestContext
from ottla.cluster.acls import Operation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTransactionState,
    TopicData,
)
from ottla.wire.sliced import mapped


def accesses(context: RequestContext, request: DescribeTransactionsRequest) -> Accesses:
    """DESCRIBE of each transactional id, and of the topics in its transaction."""
    for transactional_id in request.transactional_ids:
        yield Access(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        view = context.broker.transactions.describe(transactional_id)
        if not isinstance(view, ErrorCode):
            topics = dict.fromkeys(topic for topic, _ in view.partitions)
            yield from (Unlogged(*each) for each in on_topics(Operation.DESCRIBE, topics))


def handle(context: RequestContext, request: DescribeTransactionsRequest) -> None:
    """Describe each transactional id."""
    context.reply_in_slices(
        DescribeTransactionsResponse(
            transaction_states=mapped(request.transactional_ids, lambda each: _described(context, each))
        )
    )


def _described(context: RequestContext, transactional_id: str) -> DescribeTransactionsResponseTransactionState:
    if not context.permits(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return _refused(transactional_id, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    view = context.broker.transactions.describe(transactional_id)
    if isinstance(view, ErrorCode):
        return _refused(transactional_id, view)
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(view.partitions):
        if context.permits(Operation.DESCRIBE, ResourceType.TOPIC, topic):
            topics.setdefault(topic, []).append(index)
    return DescribeTransactionsResponseTransactionState(
        error_code=0,
        transactional_id=transactional_id,
        transaction_state=view.state.value,
        transaction_timeout_ms=view.timeout_ms,
        transaction_start_time_ms=view.start_ms,
        producer_id=view.producer_id,
        producer_epoch=view.producer_epoch,
        topics=[TopicData(topic=topic, partitions=partitions) for topic, partitions in topics.items()],
    )


def _refused(transactional_id: str, error: ErrorCode) -> DescribeTransactionsResponseTransactionState:
    return DescribeTransactionsResponseTransactionState(error_code=int(error), transactional_id=transactional_id)
