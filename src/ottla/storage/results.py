"""Results of log operations. Refusals are values: a mistake of a client or operator is not an exception."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.env.disk import FileSlice


@dataclass(slots=True)
class AppendInfo:
    """A successful append or, with `duplicate`, an earlier append of the same batch."""

    first_offset: int
    last_offset: int
    #: Append time in milliseconds if the topic uses LogAppendTime; else -1.
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False
    #: Leader epoch of the append; for a duplicate the current one.
    leader_epoch: int = field(default=-1, compare=False)


@dataclass(slots=True)
class FollowerAppend:
    """A fetched range that was appended as it came."""

    #: Bytes of whole batches; 0 if there was none.
    size: int
    #: The log's end after it.
    end_offset: int


@dataclass(slots=True)
class AppendRefusal:
    """A refused append; nothing was written."""

    error: ErrorCode
    message: str
    #: (index of the record in its batch, reason), if single records were the cause (KIP-467).
    record_errors: tuple[tuple[int, str], ...] = ()
    #: Whether the request itself was invalid: Kafka then returns no log offsets either.
    bad_request: bool = False


class UnreadableRange(NamedTuple):
    """Bytes of a log file that are not an intact batch, skipped by a read."""

    path: str
    position: int
    length: int
    #: The offsets that may be missing: from this one to before `next_offset`, which exists.
    first_offset: int
    next_offset: int


@dataclass(slots=True)
class LogRead:
    """A range of the log: whole batches, the last of which may be truncated by the byte limit."""

    slice: FileSlice | None
    size: int
    #: The offset to read next, if known without parsing the batches; else -1.
    next_offset: int = -1
    #: No record in the range has this offset or a higher one.
    bound: int = 0


@dataclass(slots=True)
class ReadRefusal:
    """A refused read."""

    error: ErrorCode
    message: str


@dataclass(slots=True)
class OffsetTimestamp:
    """A record found by its timestamp (milliseconds), and the leader epoch it was written in (-1: unknown)."""

    timestamp: int
    offset: int
    leader_epoch: int


@dataclass(slots=True)
class EpochEnd:
    """The end of a leader epoch: the largest epoch not above the one asked for, and the offset after its last
    record; both -1 where unknown.
    """

    leader_epoch: int
    end_offset: int


@dataclass(slots=True)
class DeleteRefusal:
    """A refused DeleteRecords."""

    error: ErrorCode
    message: str


@dataclass(slots=True)
class StorageRefusal:
    """A log directory or log that cannot be used: the cause and the cure, as shown to the operator."""

    message: str
