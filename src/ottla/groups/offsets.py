"""The offsets of a group: committed ones, and pending ones of transactions. Pure, and the same for every protocol.

The group decides what may be changed, and writes the records that it gets here. A record is applied as soon as it is
appended, but is visible only once it is committed (below the high watermark); until then it is in `_uncommitted`, in
log order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence

from ottla.groups.records import NO_EXPIRY, OffsetRecord, StoredOffset
from ottla.wire.errors import ErrorCode

TopicPartition = tuple[str, int]
_Pending = dict[TopicPartition, tuple[int, StoredOffset | None]]
"""A transaction's offsets, with their offsets in the log; None for one that a newer commit has replaced."""


def metadata_size(metadata: str) -> int:
    """The size limited by `offset.metadata.max.bytes`: not bytes but UTF-16 units, the string's length in Java."""
    return len(metadata) if metadata.isascii() else len(metadata.encode("utf-16-be", "surrogatepass")) // 2


class StoredOffsets:
    """The offsets of one group. `committed` are the visible ones."""

    __slots__ = ("_completed", "_group_id", "_pending", "_uncommitted", "committed")

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self.committed: dict[TopicPartition, StoredOffset] = {}
        self._uncommitted: deque[tuple[int, TopicPartition, StoredOffset | None]] = deque()
        #: Open transactions by producer id.
        self._pending: dict[int, _Pending] = {}
        #: Those whose markers are not committed yet: the marker's offset, the transaction, whether it commits.
        self._completed: deque[tuple[int, _Pending, bool]] = deque()

    def __bool__(self) -> bool:
        """Whether there is any offset, visible or not."""
        return bool(self.committed or self._uncommitted or self.has_pending)

    def is_unstable(self, topic: str, partition: int) -> bool:
        """Whether a commit for the partition is not visible yet: a plain one or a transaction's."""
        key = (topic, partition)
        return any(key == waiting for _, waiting, _ in self._uncommitted) or any(
            key in offsets for offsets in self._transactions()
        )

    def partitions(self, *, with_pending: bool = False) -> list[TopicPartition]:
        """Partitions with an offset, visible or not; those of transactions only if wanted."""
        written = (key for _, key, value in self._uncommitted if value is not None)
        pending = (key for offsets in self._transactions() for key in offsets) if with_pending else ()
        return list(dict.fromkeys((*self.committed, *written, *pending)))

    def expired(
        self, now_ms: int, retention_ms: int, since_ms: int | None = None, subscribed: Container[str] = ()
    ) -> list[TopicPartition]:
        """Partitions whose offset is past its retention and whose topic has no subscribers.

        An offset with its own expiry time (OffsetCommit versions 2 to 4) uses that; any other is kept for
        `retention_ms` from `since_ms` on, or from its commit. Offsets with a plain commit on its way are kept.
        """
        waiting = {key for _, key, _ in self._uncommitted}
        result = []
        for key, value in self.committed.items():
            if key[0] in subscribed or key in waiting:
                continue
            end_ms = value.expire_timestamp_ms
            if end_ms == NO_EXPIRY:
                end_ms = retention_ms + (value.commit_timestamp_ms if since_ms is None else since_ms)
            if now_ms >= end_ms:
                result.append(key)
        return result

    # Records to write

    def commit(
        self, offsets: Sequence[tuple[str, int, StoredOffset]], max_metadata: int
    ) -> tuple[list[ErrorCode], list[OffsetRecord]]:
        """The error of each offset, and the records of those without one."""
        errors: list[ErrorCode] = []
        records: list[OffsetRecord] = []
        for topic, partition, value in offsets:
            if metadata_size(value.metadata) > max_metadata:
                errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            else:
                errors.append(ErrorCode.NONE)
                records.append(OffsetRecord(self._group_id, topic, partition, value))
        return errors, records

    def tombstones(self, keys: Iterable[TopicPartition]) -> list[OffsetRecord]:
        """The records that delete these offsets."""
        return [OffsetRecord(self._group_id, topic, partition, None) for topic, partition in keys]

    # Replay

    def replay(self, record: OffsetRecord, log_offset: int) -> None:
        """Apply a record of the log; it becomes visible when `commit_up_to` has passed it."""
        self._uncommitted.append((log_offset, (record.topic, record.partition), record.value))

    @property
    def has_uncommitted(self) -> bool:
        """Whether `commit_up_to` has anything to commit."""
        return bool(self._uncommitted or self._completed)

    def commit_up_to(self, high_watermark: int) -> None:
        """Make all records and markers below the high watermark visible."""
        completed = self._completed
        while completed and completed[0][0] < high_watermark:
            marker_at, offsets, is_commit = completed[0]
            self._commit_records(marker_at)
            completed.popleft()
            for key, (log_offset, value) in offsets.items() if is_commit else ():
                if value is not None:
                    self._show(key, log_offset, value)
        self._commit_records(high_watermark)

    def _commit_records(self, high_watermark: int) -> None:
        waiting = self._uncommitted
        while waiting and waiting[0][0] < high_watermark:
            log_offset, key, value = waiting.popleft()
            if value is not None:
                self._show(key, log_offset, value)
                continue
            self.committed.pop(key, None)
            for offsets in self._transactions():
                if key in offsets and offsets[key][0] < log_offset:
                    del offsets[key]

    def _show(self, key: TopicPartition, log_offset: int, value: StoredOffset) -> None:
        self.committed[key] = value
        for offsets in self._transactions():
            if key in offsets and offsets[key][0] < log_offset:
                offsets[key] = (log_offset, None)

    # Transactions: their offsets become visible with the marker, unless a newer commit has replaced them

    @property
    def has_pending(self) -> bool:
        """Whether there are transactions whose end is not visible yet."""
        return bool(self._pending or self._completed)

    def pending(self, producer_id: int, record: OffsetRecord, log_offset: int) -> None:
        """Apply a record of the producer's open transaction."""
        offsets = self._pending.setdefault(producer_id, {})
        key = (record.topic, record.partition)
        if record.value is None:
            offsets.pop(key, None)
        else:
            offsets[key] = (log_offset, record.value)

    def complete(self, producer_id: int, committed: bool, log_offset: int) -> None:
        """Apply the marker at `log_offset`: the transaction's end becomes visible when `commit_up_to` has passed it."""
        offsets = self._pending.pop(producer_id, None)
        if offsets is not None:
            self._completed.append((log_offset, offsets, committed))

    def _transactions(self) -> Iterator[_Pending]:
        yield from self._pending.values()
        for _, offsets, _ in self._completed:
            yield offsets
