"""The errors of a backfill: messages that name the file, the cause and the cure."""

from __future__ import annotations

from ottla.spark.errors import SparkRefusal


class SegmentError(SparkRefusal, RuntimeError):
    """Segment files that cannot be read; the message names them, the cause and the cure."""


class DamagedBatchError(SegmentError):
    """Bytes of a segment that are not an intact batch."""

    def __init__(self, path: str, position: int, offset: int, reason: str) -> None:
        super().__init__(
            f"{path} is damaged at position {position}, offset {offset}: {reason}; ottla log verify shows the extent "
            "of the damage, and another replica's log directory can be read instead"
        )
        self.path = path
        self.position = position
        self.offset = offset
        self.reason = reason

    def __reduce__(self) -> tuple[type[DamagedBatchError], tuple[str, int, int, str]]:
        return type(self), (self.path, self.position, self.offset, self.reason)
