"""What the log answers with. Refusals are values: what a client or an operator caused is no exception."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.env.disk import FileSlice


@dataclass(slots=True)
class AppendInfo:
    """An append that was done, or, where `duplicate` is set, had been done before by the same producer."""

    first_offset: int
    last_offset: int
    #: When the broker appended, milliseconds, where the topic stamps that time; else -1.
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False
    #: The leader epoch it was done in, of a duplicate the present one.
    leader_epoch: int = field(default=-1, compare=False)


@dataclass(slots=True)
class AppendRefusal:
    """An append that was refused; nothing was written."""

    error: ErrorCode
    message: str
    #: (index of the record in its batch, reason), where single records were the cause (KIP-467).
    record_errors: tuple[tuple[int, str], ...] = ()
    #: Whether the request was no good, whatever the log: Kafka then tells nothing of the log either.
    bad_request: bool = False


class UnreadableRange(NamedTuple):
    """Bytes of a log file that are no sound batch, where the log was read on behind them."""

    path: str
    position: int
    length: int
    #: The offsets that may be missing for it: from the first one to before `next_offset`, which is there.
    first_offset: int
    next_offset: int


@dataclass(slots=True)
class LogRead:
    """A range of the log: whole batches, the last of which may be cut off by the limit of bytes."""

    slice: FileSlice | None
    size: int
    #: Where to read on, where that is known without looking into the batches; else -1.
    next_offset: int = -1
    #: No record in the range has this offset or a higher one.
    bound: int = 0


@dataclass(slots=True)
class ReadRefusal:
    """A read that was refused."""

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
    """DeleteRecords was refused."""

    error: ErrorCode
    message: str


@dataclass(slots=True)
class StorageRefusal:
    """A folder or log that cannot be used: the cause and the cure, fit to be shown to the operator."""

    message: str
