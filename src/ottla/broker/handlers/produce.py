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

from ottla.records.batch import ATTRIBUTES_AT
from ottla.records.compression import Compression
from ottla.storage.log import CLIENT, AppendInfo, AppendRefusal
from ottla.wire.errors import ErrorCode
from ottla.wire.hot import encode_produce_response, encode_produced
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
#: The first version in which a batch may be compressed with zstd (KIP-110).
ZSTD_SINCE = 7
#: The first version whose answer holds what `encode_produced` writes.
FIXED_ANSWER_SINCE = 5
#: The bits of a batch's attributes that name its compression.
COMPRESSION_MASK = 0x07
#: Errors with which Kafka does not tell the log start.
LOG_START_UNKNOWN = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
#: Kafka's own tools may write internal topics under this client id.
ADMIN_CLIENT_ID = "__admin_client"


def handle(context: RequestContext, request: ProduceRequest) -> None:
    """Append what each partition got and answer with its offsets, or with its own error."""
    refusal = _refuse_request(context, request)
    topics, acks = request.topic_data, request.acks
    if refusal is not None or acks == 0 or len(topics) != 1 or len(topics[0].partition_data) != 1:
        _append_all(context, request, refusal)
        return
    # What nearly every request is: one batch, answered without the objects of a whole response.
    (topic,) = topics
    (data,) = topic.partition_data
    done = _append(context, topic.name, data, acks)
    version = context.api_version
    if type(done) is AppendInfo and version >= FIXED_ANSWER_SINCE:
        context.reply_body(
            encode_produced(
                topic.name, data.index, 0, done.first_offset, done.log_append_time_ms, done.log_start_offset, version
            )
        )
    else:
        _reply(context, [TopicProduceResponse(name=topic.name, partition_responses=[_answer(data.index, done)])])


def _append_all(context: RequestContext, request: ProduceRequest, refusal: tuple[ErrorCode, str | None] | None) -> None:
    failed = False
    responses = []
    for topic in request.topic_data:
        name = topic.name
        answers = []
        for data in topic.partition_data:
            done = _append(context, name, data, request.acks) if refusal is None else _refused(data.index, *refusal)
            answer = _answer(data.index, done)
            failed = failed or answer.error_code != 0
            answers.append(answer)
        responses.append(TopicProduceResponse(name=name, partition_responses=answers))
    if request.acks != 0:
        _reply(context, responses)
    elif failed:
        # The only way to tell a client that waits for no answer, as Kafka does it.
        log.info("closing the connection of %s: its produce request with acks=0 failed", context.client_host)
        context.disconnect()
    else:
        context.no_reply()


def _reply(context: RequestContext, responses: list[TopicProduceResponse]) -> None:
    context.reply_body(encode_produce_response(ProduceResponse(responses=responses), context.api_version))


def _refuse_request(context: RequestContext, request: ProduceRequest) -> tuple[ErrorCode, str | None] | None:
    """What is wrong with the request as a whole, if anything."""
    if request.acks not in (-1, 0, 1):
        return ErrorCode.INVALID_REQUIRED_ACKS, None
    if context.api_version < BATCHES_SINCE:
        return ErrorCode.UNSUPPORTED_VERSION, None
    if request.transactional_id is not None:
        return ErrorCode.INVALID_TXN_STATE, "Transactions are not supported by this broker yet."
    return None


def _append(
    context: RequestContext, topic: str, data: PartitionProduceData, acks: int
) -> AppendInfo | PartitionProduceResponse:
    """Append one partition's batch; what was appended, or the answer that refuses it."""
    partitions = context.broker.partitions
    partition = partitions.get(topic, data.index)
    if partition is None:
        return _refused(data.index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if partition.is_internal and context.client_id != ADMIN_CLIENT_ID:
        return _refused(data.index, ErrorCode.INVALID_TOPIC_EXCEPTION)
    if not data.records:
        return _refused(data.index, ErrorCode.INVALID_RECORD)
    if context.api_version < ZSTD_SINCE and _is_zstd(data.records):
        return _refused(data.index, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if acks == -1 and partition.isr_size < partition.log.config.min_insync_replicas:
        answer = _refused(data.index, ErrorCode.NOT_ENOUGH_REPLICAS)
        answer.log_start_offset = partition.log.log_start_offset
        return answer
    info = partitions.append(partition, data.records, CLIENT)
    if isinstance(info, AppendRefusal):
        return _refused_by_log(data.index, info, partition.log.log_start_offset)
    return info


def _answer(index: int, done: AppendInfo | PartitionProduceResponse) -> PartitionProduceResponse:
    if isinstance(done, PartitionProduceResponse):
        return done
    return PartitionProduceResponse(
        index=index,
        error_code=0,
        base_offset=done.first_offset,
        log_append_time_ms=done.log_append_time_ms,
        log_start_offset=done.log_start_offset,
        record_errors=[],
    )


def _refused_by_log(index: int, refusal: AppendRefusal, log_start_offset: int) -> PartitionProduceResponse:
    """Kafka's answer carries a text only where single records are to blame, and the log start unless it is unknown."""
    answer = _refused(index, refusal.error, refusal.message if refusal.record_errors else None)
    if refusal.error not in LOG_START_UNKNOWN:
        answer.log_start_offset = log_start_offset
    answer.record_errors = [
        BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=text)
        for batch_index, text in refusal.record_errors
    ]
    return answer


def _refused(index: int, error: ErrorCode, message: str | None = None) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=int(error),
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=-1,
        record_errors=[],
        error_message=message,
    )


def _is_zstd(batch: memoryview) -> bool:
    """Whether a batch says that it is compressed with zstd; one too short to say is refused by the log."""
    return len(batch) > ATTRIBUTES_AT + 1 and batch[ATTRIBUTES_AT + 1] & COMPRESSION_MASK == Compression.ZSTD
