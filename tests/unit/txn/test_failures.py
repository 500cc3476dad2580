"""Errors as clients get them."""

from __future__ import annotations

import pytest

from ottla.txn.events import EndTxnResult, InitProducerIdResult, PartitionsResult
from ottla.txn.failures import error_in_version, failed_result, write_error
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from support.transaction_world import T0, T1

pytestmark = pytest.mark.spec("X1")

NONE = ErrorCode.NONE


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_errors_of_the_log(error: ErrorCode, told: ErrorCode):
    assert write_error(error) is told
    assert failed_result(InitProducerIdResult(NONE, 5, 1), error) == InitProducerIdResult(told)
    assert failed_result(EndTxnResult(NONE, 5, 1), error) == EndTxnResult(told)
    verified = PartitionsResult({T0: NONE, T1: ErrorCode.TRANSACTION_ABORTABLE}, NONE)
    assert failed_result(verified, error) == PartitionsResult({T0: told, T1: told}, told)


def test_an_answer_that_is_an_error_stays():
    waiting = EndTxnResult(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert failed_result(waiting, ErrorCode.REQUEST_TIMED_OUT) is waiting


@pytest.mark.parametrize(
    ("api_key", "since"),
    [
        (ApiKey.INIT_PRODUCER_ID, 4),
        (ApiKey.ADD_PARTITIONS_TO_TXN, 2),
        (ApiKey.ADD_OFFSETS_TO_TXN, 2),
        (ApiKey.END_TXN, 2),
    ],
)
def test_older_clients_know_fencing_by_another_name(api_key: ApiKey, since: int):
    fenced = ErrorCode.PRODUCER_FENCED
    assert error_in_version(fenced, api_key, since - 1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert error_in_version(fenced, api_key, since) is fenced
    assert error_in_version(ErrorCode.CONCURRENT_TRANSACTIONS, api_key, 0) is ErrorCode.CONCURRENT_TRANSACTIONS
