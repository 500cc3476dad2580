"""InitProducerId (key 22), versions 0-5: a producer id for an idempotent producer (KIP-98).

2 is flexible; 3 lets a producer send its id and epoch, to bump the epoch (KIP-360); 4 adds PRODUCER_FENCED, 5 aborts
over the wire (KIP-890). With a transactional id the transaction coordinator answers: its producer's next epoch. If no
block of ids can be written to the disk, clients get `COORDINATOR_LOAD_IN_PROGRESS` and retry, as with Kafka's brokers
while they wait for their controller's next block.
"""

from __future__ import annotations

from ottla.broker.authorization import Access, Accesses, on_cluster, or_else
from ottla.broker.context import RequestContext
from ottla.broker.control.producer_ids import ProducerIdsUnavailableError
from ottla.broker.control.refusals import METADATA_ERRORS
from ottla.cluster.acls import CLUSTER_NAME, Operation, ResourceType
from ottla.txn.events import InitProducerId, InitProducerIdResult
from ottla.txn.failures import error_in_version
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

WRITE_OF_ANY_TOPIC = Access(Operation.WRITE, ResourceType.TOPIC, None)


def accesses(context: RequestContext, request: InitProducerIdRequest) -> Accesses:
    """WRITE of the transactional id; without one IDEMPOTENT_WRITE of the cluster or WRITE of any topic (KIP-679)."""
    if request.transactional_id is not None:
        return (Access(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id),)
    return or_else(on_cluster(Operation.IDEMPOTENT_WRITE), (WRITE_OF_ANY_TOPIC,))


def handle(context: RequestContext, request: InitProducerIdRequest) -> None:
    """Hand out the next producer id with epoch 0, as Kafka does for every producer without a transactional id."""
    refusal = _refusal(context, request)
    if refusal is not ErrorCode.NONE:
        _refuse(context, refusal)
        return
    if request.transactional_id is None:
        context.spawn(_give_out(context))
    else:
        context.spawn(_initialize(context, request, request.transactional_id))


def _refuse(context: RequestContext, error: ErrorCode) -> None:
    context.reply(InitProducerIdResponse(error_code=int(error), producer_id=-1, producer_epoch=-1))


def _refusal(context: RequestContext, request: InitProducerIdRequest) -> ErrorCode:
    if request.transactional_id is not None:
        if not context.permits(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return _half_known(request)
    may_write = context.permits(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME) or context.permits(
        *WRITE_OF_ANY_TOPIC
    )
    if not may_write:
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return _half_known(request)


def _half_known(request: InitProducerIdRequest) -> ErrorCode:
    is_half_known = (request.producer_id == -1) != (request.producer_epoch == -1)
    return ErrorCode.INVALID_REQUEST if is_half_known else ErrorCode.NONE


async def _initialize(context: RequestContext, request: InitProducerIdRequest, transactional_id: str) -> None:
    transactions = context.broker.transactions
    try:
        await transactions.prepare_producer_id()
    except (*METADATA_ERRORS, ProducerIdsUnavailableError) as error:
        context.broker.dispatcher.report_failure(context.connection, error)
        _refuse(context, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return

    def answer(result: InitProducerIdResult) -> None:
        error = error_in_version(result.error, ApiKey.INIT_PRODUCER_ID, context.api_version)
        context.reply(
            InitProducerIdResponse(
                error_code=int(error), producer_id=result.producer_id, producer_epoch=result.producer_epoch
            )
        )

    transactions.submit(
        InitProducerId(
            answer,
            transactional_id,
            request.transaction_timeout_ms,
            request.producer_id,
            request.producer_epoch,
        )
    )


async def _give_out(context: RequestContext) -> None:
    try:
        producer_id = await context.broker.control.producer_ids.next()
    except (*METADATA_ERRORS, ProducerIdsUnavailableError) as error:
        context.broker.dispatcher.report_failure(context.connection, error)
        _refuse(context, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return
    context.reply(InitProducerIdResponse(error_code=0, producer_id=producer_id, producer_epoch=0))
