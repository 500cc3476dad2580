"""Produce (key 0), versions 0-11: appends record batches.

1 adds the throttle time, 2 the log append time; 3 brings record batches v2 and the transactional id; 5 the log start
offset; 7 allows zstd; 8 adds messages per record; 9 is flexible; 10 tells the current leader with an error (KIP-951);
11 is for transactions over the wire (KIP-890). Versions 0-2 carry the older message sets, which come later: they are
advertised, since librdkafka switches compression off otherwise, and answered with `UNSUPPORTED_VERSION`.

Nothing here works per record: batches are slices of the receive buffer, and the log appends them as they are.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.storage.log import CLIENT, AppendRefusal
from ottla.wire.errors import ErrorCode
from ottla.wire.hot import encode_produce_response
from ottla.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext

log = logging.getLogger("ottla.broker")

MIN_VERSION = 0
MAX_VERSION = 11

#: The first version with record batches v2.
BATCHES_SINCE = 3
#: Kafka's own tools may write internal topics under this client id.
ADMIN_CLIENT_ID = "__admin_client"


def handle(context: RequestContext, request: ProduceRequest) -> None:
    """Append what each partition got and answer with its offsets, or with its own error."""
    refusal = _refuse_request(context, request)
    failed = False
    responses = []
    for topic in request.topic_data:
        name = topic.name
        answers = []
        for data in topic.partition_data:
            answer = _append(context, name, data, request.acks) if refusal is None else _refused(data.index, *refusal)
            failed = failed or answer.error_code != 0
            answers.append(answer)
        responses.append(TopicProduceResponse(name=name, partition_responses=answers))
    if request.acks != 0:
        response = ProduceResponse(responses=responses)
        context.reply_body(encode_produce_response(response, context.api_version))
    elif failed:
        # The only way to tell a client that waits for no answer, as Kafka does it.
        log.info("closing the connection of %s: its produce request with acks=0 failed", context.client_host)
        context.disconnect()
    else:
        context.no_reply()


def _refuse_request(context: RequestContext, request: ProduceRequest) -> tuple[ErrorCode, str | None] | None:
    """What is wrong with the request as a whole, if anything."""
    if request.acks not in (-1, 0, 1):
        return ErrorCode.INVALID_REQUIRED_ACKS, None
    if context.api_version < BATCHES_SINCE:
        return ErrorCode.UNSUPPORTED_VERSION, None
    if request.transactional_id is not None:
        return ErrorCode.INVALID_TXN_STATE, "Transactions are not supported by this broker yet."
    return None


def _append(context: RequestContext, topic: str, data: PartitionProduceData, acks: int) -> PartitionProduceResponse:
    partitions = context.broker.partitions
    partition = partitions.get(topic, data.index)
    if partition is None:
        return _refused(data.index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    if partition.is_internal and context.client_id != ADMIN_CLIENT_ID:
        return _refused(data.index, ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic}")
    if not data.records:
        return _refused(
            data.index,
            ErrorCode.INVALID_RECORD,
            f"Produce requests with version {context.api_version} must have at least one record batch per partition",
        )
    if acks == -1 and partition.isr_size < partition.log.config.min_insync_replicas:
        return _refused(
            data.index,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"The size of the current ISR : {partition.isr_size} is insufficient to satisfy the min.isr requirement "
            f"of {partition.log.config.min_insync_replicas} for partition {topic}-{data.index}",
        )
    info = partitions.append(partition, data.records, CLIENT)
    if isinstance(info, AppendRefusal):
        return _refused(data.index, info.error, info.message, info.record_errors)
    return PartitionProduceResponse(
        index=data.index,
        error_code=0,
        base_offset=info.first_offset,
        log_append_time_ms=info.log_append_time_ms,
        log_start_offset=info.log_start_offset,
        record_errors=[],
    )


def _refused(
    index: int,
    error: ErrorCode,
    message: str | None,
    record_errors: tuple[tuple[int, str], ...] = (),
) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=int(error),
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=-1,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=text)
            for batch_index, text in record_errors
        ],
        error_message=message,
    )
