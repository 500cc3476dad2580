"""When a log begins a new segment (Kafka's `LogSegment.shouldRoll`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from zlib import crc32

from ottla.config.topic import LogConfig
from ottla.records.batch import BatchHeader
from ottla.storage.index import OFFSET_ENTRY, TIME_ENTRY
from ottla.storage.segment import MAX_RELATIVE_OFFSET, Segment

_OFFSET_ENTRY_BYTES: Final = OFFSET_ENTRY.size
_TIME_ENTRY_BYTES: Final = TIME_ENTRY.size


def roll_due(
    segment: Segment,
    config: LogConfig,
    name: str,
    headers: Sequence[BatchHeader],
    length: int,
    last_offset: int,
    now_ms: int,
) -> bool:
    """Whether these batches need a new segment after the active `segment`: by size, age, full index, or offset range.

    They are `length` bytes and end with `last_offset`; `name` is the partition's.
    """
    if segment.size > config.segment_bytes - length:
        return True
    index_bytes = config.segment_index_bytes
    if (segment.offset_index.entries + len(headers)) * _OFFSET_ENTRY_BYTES > index_bytes:
        return True
    if (segment.time_index.entries + 1 + len(headers)) * _TIME_ENTRY_BYTES > index_bytes:
        return True
    if last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
        return True
    first = segment.first_timestamp()
    newest = headers[0].max_timestamp if len(headers) == 1 else max(header.max_timestamp for header in headers)
    waited = newest - first if first >= 0 else now_ms - segment.created_ms
    longest_ms = config.segment_ms
    if config.compact:
        longest_ms = min(longest_ms, config.max_compaction_lag_ms)
    return waited > longest_ms - (config.segment_jitter_ms and _jitter_ms(segment, config, name))


def _jitter_ms(segment: Segment, config: LogConfig, name: str) -> int:
    """How much earlier this segment rolls: uniformly distributed, and constant for a segment."""
    spread = min(config.segment_jitter_ms, config.segment_ms)
    return crc32(f"{name}/{segment.base_offset}".encode()) % spread if spread > 0 else 0
