"""What errors of the log mean to clients, as in Apache Kafka 3.9."""

from __future__ import annotations

import pytest

from ottla.groups.events import CommitResult, ErrorResult, JoinResult, LeaveResult, Result, SyncResult
from ottla.groups.failures import commit_error, failed_result, group_write_error
from ottla.wire.errors import ErrorCode


@pytest.mark.parametrize(
    ("error", "for_group", "for_commit"),
    [
        ("UNKNOWN_TOPIC_OR_PARTITION", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_NOT_AVAILABLE"),
        ("NOT_ENOUGH_REPLICAS", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_NOT_AVAILABLE"),
        ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_NOT_AVAILABLE"),
        ("REQUEST_TIMED_OUT", "REBALANCE_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE"),
        ("NOT_LEADER_OR_FOLLOWER", "NOT_COORDINATOR", "NOT_COORDINATOR"),
        ("KAFKA_STORAGE_ERROR", "NOT_COORDINATOR", "NOT_COORDINATOR"),
        ("MESSAGE_TOO_LARGE", "UNKNOWN_SERVER_ERROR", "INVALID_COMMIT_OFFSET_SIZE"),
        ("RECORD_LIST_TOO_LARGE", "UNKNOWN_SERVER_ERROR", "INVALID_COMMIT_OFFSET_SIZE"),
        ("CORRUPT_MESSAGE", "CORRUPT_MESSAGE", "CORRUPT_MESSAGE"),
    ],
)
def test_conversion(error: str, for_group: str, for_commit: str):
    assert group_write_error(ErrorCode[error]).name == for_group
    assert commit_error(ErrorCode[error]).name == for_commit


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (JoinResult(ErrorCode.NONE, "m", 3), JoinResult(ErrorCode.NOT_COORDINATOR, "")),
        (SyncResult(ErrorCode.NONE, "c", "r", b"a"), SyncResult(ErrorCode.NOT_COORDINATOR)),
        (LeaveResult(ErrorCode.NONE, []), LeaveResult(ErrorCode.NOT_COORDINATOR)),
        (ErrorResult(ErrorCode.NONE), ErrorResult(ErrorCode.NOT_COORDINATOR)),
        (
            CommitResult([ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE]),
            CommitResult([ErrorCode.NOT_COORDINATOR, ErrorCode.OFFSET_METADATA_TOO_LARGE]),
        ),
        (SyncResult(ErrorCode.FENCED_INSTANCE_ID), SyncResult(ErrorCode.FENCED_INSTANCE_ID)),
    ],
)
def test_good_news_become_bad_news(good: Result, bad: Result):
    assert failed_result(good, ErrorCode.NOT_LEADER_OR_FOLLOWER) == bad
