"""AddOffsetsToTxn (key 25), versions 0-4: add a group's partition of `__consumer_offsets` to a transaction (KIP-98).

1 has no change; 2 adds PRODUCER_FENCED; 3 is flexible; 4 adds TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from ottla.broker.authorization import Access, Accesses, on_group
from ottla.broker.context import RequestContext
from ottla.broker.coordinators.group_kind import OFFSETS_TOPIC
from ottla.cluster.acls import Operation, ResourceType
from ottla.txn.events import AddPartitionsToTxn, PartitionsResult
from ottla.txn.failures import error_in_version
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


def accesses(context: RequestContext, request: AddOffsetsToTxnRequest) -> Accesses:
    yield Access(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    yield on_group(Operation.READ, request.group_id)


def handle(context: RequestContext, request: AddOffsetsToTxnRequest) -> None:
    """Have the coordinator add the partition that has the group's offsets."""
    writer = request.transactional_id
    if not context.permits(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, writer):
        _reply(context, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return
    if not context.permits(Operation.READ, ResourceType.GROUP, request.group_id):
        _reply(context, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return
    broker = context.broker
    partition = OFFSETS_TOPIC, broker.groups.router.partition_of(request.group_id)

    def answer(result: PartitionsResult) -> None:
        _reply(context, error_in_version(result.error, ApiKey.ADD_OFFSETS_TO_TXN, context.api_version))

    producer = request.producer_id, request.producer_epoch
    broker.transactions.submit(AddPartitionsToTxn(answer, writer, *producer, [partition]))


def _reply(context: RequestContext, error: ErrorCode) -> None:
    context.reply(AddOffsetsToTxnResponse(error_code=int(error)))
