"""Which partitions of a table with a log are worth compacting. There any may be compacted at any time; it costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ottla.spark.pipelines.tables.partition_values import has_time, is_closed

#: Small files of a partition that may still grow, or has no time, from which on it is compacted.
OPEN_FILES: Final = 32
#: A file that is smaller than the target by this factor is small.
_SMALL: Final = 4


def is_worth_it(partition: Sequence[Any], sizes: Sequence[int], watermark_ms: int | None, target_bytes: int) -> bool:
    """Whether to compact a partition with files of these sizes in bytes.

    One that the watermark has passed: once two files fit into one. One for which rows can still come: never, if its
    values have a time and there is a watermark; else as soon as there are many small files.
    """
    small = sorted(size for size in sizes if size < target_bytes)
    if is_closed(partition, watermark_ms):
        return len(small) > 1 and small[0] + small[1] <= target_bytes
    if watermark_ms is not None and has_time(partition):
        return False
    return sum(1 for size in small if size * _SMALL <= target_bytes) >= OPEN_FILES
