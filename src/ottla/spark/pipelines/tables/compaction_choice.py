"""Which partitions of a table with a log are worth compacting. There any may be compacted at any time; it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from ottla.spark.pipelines.tables.parquet.times import is_passed

#: Small files of a partition that may still grow, or has no time, from which on it is compacted.
OPEN_FILES: Final = 32
#: A file that is smaller than the target by this factor is small.
_SMALL: Final = 4
#: After all times that a partition can have: whether it has one.
_AFTER_ALL_MS: Final = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp() * 1000)


def is_worth_it(
    partition: Mapping[str, str | None], sizes: Sequence[int], watermark_ms: int | None, target_bytes: int
) -> bool:
    """Whether to compact a partition with files of these sizes in bytes; its values are ISO text.

    One that the watermark has passed: once two files fit into one. One for which rows can still come: never, if its
    values have a time and there is a watermark; else as soon as there are many small files.
    """
    small = sorted(size for size in sizes if size < target_bytes)
    if watermark_ms is not None and is_passed(partition, watermark_ms):
        return len(small) > 1 and small[0] + small[1] <= target_bytes
    if watermark_ms is not None and is_passed(partition, _AFTER_ALL_MS):
        return False
    return sum(1 for size in small if size * _SMALL <= target_bytes) >= OPEN_FILES
