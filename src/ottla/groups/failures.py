"""Mapping of log errors to the errors of the client requests whose writes failed.

Source: Apache Kafka 3.9, `GroupMetadataManager.storeGroup` and `maybeConvertOffsetCommitError`.
"""

from __future__ import annotations

from ottla.groups.events import (
    UNKNOWN_MEMBER,
    CommitResult,
    DeleteOffsetsResult,
    ErrorResult,
    JoinResult,
    LeaveResult,
    Result,
    SyncResult,
)
from ottla.wire.errors import ErrorCode

_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE)
_NOT_READY = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
)
_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR)


def group_write_error(error: ErrorCode) -> ErrorCode:
    """For JoinGroup and SyncGroup, which write the group's record."""
    if error in _NOT_READY:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error in _MOVED:
        return ErrorCode.NOT_COORDINATOR
    if error is ErrorCode.REQUEST_TIMED_OUT:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.UNKNOWN_SERVER_ERROR if error in _TOO_LARGE else error


def commit_error(error: ErrorCode) -> ErrorCode:
    """For OffsetCommit, DeleteGroups and OffsetDelete, which write offset records."""
    if error in _NOT_READY or error is ErrorCode.REQUEST_TIMED_OUT:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error in _MOVED:
        return ErrorCode.NOT_COORDINATOR
    return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if error in _TOO_LARGE else error


def failed_result(result: Result, error: ErrorCode) -> Result:
    """The result to return in place of a successful one, after the log has lost or refused its records."""
    if isinstance(result, CommitResult):
        converted = commit_error(error)
        return CommitResult([converted if own is ErrorCode.NONE else own for own in result.errors])
    if result.error is not ErrorCode.NONE:
        return result
    if isinstance(result, ErrorResult):
        return ErrorResult(commit_error(error))
    if isinstance(result, DeleteOffsetsResult):
        return DeleteOffsetsResult(commit_error(error))
    converted = group_write_error(error)
    if isinstance(result, JoinResult):
        return JoinResult(converted, UNKNOWN_MEMBER)
    if isinstance(result, SyncResult):
        return SyncResult(converted)
    return LeaveResult(converted)
