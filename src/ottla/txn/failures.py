"""Errors as clients get them: of writes that failed, and of fenced producers by the version of the request.

Source: Apache Kafka 3.9, `TransactionStateManager.appendTransactionToLog`, `KafkaApis`.
"""

from __future__ import annotations

from ottla.txn.events import (
    AddPartitionsToTxn,
    EndTxnResult,
    InitProducerId,
    InitProducerIdResult,
    PartitionsResult,
    TransactionRequest,
    TransactionResult,
    VerifyPartitionsInTxn,
)
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode

_NOT_AVAILABLE = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
)
_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR)
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)

_PRODUCER_FENCED_SINCE = {
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 2,
}


def write_error(error: ErrorCode) -> ErrorCode:
    """The client's error for an error of the log."""
    if error in _NOT_AVAILABLE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error in _MOVED:
        return ErrorCode.NOT_COORDINATOR
    return ErrorCode.UNKNOWN_SERVER_ERROR if error in _TOO_LARGE else error


def error_in_version(error: ErrorCode, api_key: ApiKey, version: int) -> ErrorCode:
    """The error as this version of an API has it: clients older than PRODUCER_FENCED get INVALID_PRODUCER_EPOCH."""
    if error is ErrorCode.PRODUCER_FENCED and version < _PRODUCER_FENCED_SINCE[api_key]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def refused(request: TransactionRequest, error: ErrorCode) -> TransactionResult:
    """The response with only `error`, in the request's own form."""
    if isinstance(request, InitProducerId):
        return InitProducerIdResult(error)
    if isinstance(request, AddPartitionsToTxn | VerifyPartitionsInTxn):
        return PartitionsResult(dict.fromkeys(request.partitions, error), error)
    return EndTxnResult(error)


def failed_result(result: TransactionResult, error: ErrorCode) -> TransactionResult:
    """The result to return in place of a successful one, after the log has lost or refused its records."""
    if result.error is not ErrorCode.NONE:
        return result
    converted = write_error(error)
    if isinstance(result, InitProducerIdResult):
        return InitProducerIdResult(converted)
    if isinstance(result, PartitionsResult):
        return PartitionsResult(dict.fromkeys(result.errors, converted), converted)
    return EndTxnResult(converted)
