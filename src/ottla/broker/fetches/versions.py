"""The abilities of Fetch versions: the first version with each, and errors that older ones understand."""

from __future__ import annotations

from ottla.wire.errors import ErrorCode

#: The first version with a limit for the whole response, and whose first batch is complete however large (KIP-74).
WHOLE_BATCH_SINCE = 3
#: The first version with record batches v2; the first whose clients know messages of format 1.
BATCHES_SINCE = 4
FORMAT_1_SINCE = 2
#: Older clients take a storage error for a bug of the broker, and do not retry.
STORAGE_ERROR_SINCE = 6
#: The first version whose clients understand zstd.
ZSTD_SINCE = 10
#: The first version whose consumers may read from followers (KIP-392).
FOLLOWERS_SINCE = 11
#: The first version that names topics by their ids.
TOPIC_IDS_SINCE = 13
#: The first version whose errors name the leader (KIP-951).
LEADERS_SINCE = 16
READ_COMMITTED = 1


def code_for_version(error: ErrorCode, version: int) -> ErrorCode:
    """Map an error to one that clients of this version handle correctly."""
    if error is ErrorCode.KAFKA_STORAGE_ERROR and version < STORAGE_ERROR_SINCE:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return error
