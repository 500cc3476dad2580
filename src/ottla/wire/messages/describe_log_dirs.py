"""DescribeLogDirs (key 35): log directories and their partitions (KIP-113).

Versions: 1 is the same as 0; 2 flexible; 3 an error of the whole; 4 the size of each directory's volume (KIP-827).
"""

from __future__ import annotations

from ottla.wire.schema import BOOL, INT16, INT32, INT64, STRING, Message, Struct, array, field, message, struct


@struct
class DescribableLogDirTopic(Struct):
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


@message(versions=(0, 4), flexible_since=2, api_key=35)
class DescribeLogDirsRequest(Message):
    topics: list[DescribableLogDirTopic] | None = field(array(DescribableLogDirTopic), nullable_since=0)  # null: all


@struct
class DescribeLogDirsPartition(Struct):
    partition_index: int = field(INT32)
    partition_size: int = field(INT64)  # Bytes of its segments.
    offset_lag: int = field(INT64)  # How far it is behind.
    is_future_key: bool = field(BOOL)  # Being moved to this log directory.


@struct
class DescribeLogDirsTopic(Struct):
    name: str = field(STRING)
    partitions: list[DescribeLogDirsPartition] = field(array(DescribeLogDirsPartition))


@struct
class DescribeLogDirsResult(Struct):
    error_code: int = field(INT16)
    log_dir: str = field(STRING)  # Its absolute path.
    topics: list[DescribeLogDirsTopic] = field(array(DescribeLogDirsTopic))
    total_bytes: int = field(INT64, since=4, default=-1, ignorable=True)
    usable_bytes: int = field(INT64, since=4, default=-1, ignorable=True)


@message(versions=(0, 4), flexible_since=2, api_key=35)
class DescribeLogDirsResponse(Message):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16, since=3, ignorable=True)
    results: list[DescribeLogDirsResult] = field(array(DescribeLogDirsResult))
