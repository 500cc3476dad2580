"""The committed offsets of one group.

A commit is applied as soon as it is appended, but is visible only once its record is committed (below the high
watermark); until then it is in `_uncommitted`, in log order. Offsets of open transactions are kept separately and
become visible when their transaction's marker is committed, unless a newer commit has replaced them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from ottla.records.control import TransactionMarker

NO_EXPIRY = -1
NO_LEADER_EPOCH = -1

TopicPartition = tuple[str, int]


class StoredOffset(NamedTuple):
    """A committed offset. Times are milliseconds since the Unix epoch, `expire_timestamp_ms` is -1 without."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRY


def metadata_size(metadata: str) -> int:
    """The size limited by `offset.metadata.max.bytes`: not bytes but UTF-16 units, the string's length in Java."""
    return len(metadata) if metadata.isascii() else len(metadata.encode("utf-16-be", "surrogatepass")) // 2


class _Entry(NamedTuple):
    log_offset: int
    value: StoredOffset


class _EndedTransaction(NamedTuple):
    """A transaction whose marker is in the log at `log_offset`."""

    log_offset: int
    offsets: dict[TopicPartition, _Entry]
    is_commit: bool


class StoredOffsets:
    """Committed offsets by topic and partition."""

    __slots__ = ("_committed", "_ended", "_transactions", "_uncommitted")

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, _Entry] = {}
        self._uncommitted: deque[tuple[int, TopicPartition, StoredOffset | None]] = deque()
        #: Open transactions by producer id, and those whose markers are above the high watermark.
        self._transactions: dict[int, dict[TopicPartition, _Entry]] = {}
        self._ended: deque[_EndedTransaction] = deque()

    def __len__(self) -> int:
        return len(self._committed)

    def __bool__(self) -> bool:
        """Whether there is any offset, committed or pending."""
        return bool(self._committed or self._uncommitted or self._transactions or self._ended)

    def items(self) -> Iterator[tuple[TopicPartition, StoredOffset]]:
        """All committed offsets."""
        for key, entry in self._committed.items():
            yield key, entry.value

    def get(self, topic: str, partition: int) -> StoredOffset | None:
        """The committed offset of a partition."""
        entry = self._committed.get((topic, partition))
        return None if entry is None else entry.value

    def is_unstable(self, topic: str, partition: int) -> bool:
        """Whether a commit for the partition is pending: its own or a transaction's."""
        key = (topic, partition)
        return any(key == waiting for _, waiting, _ in self._uncommitted) or any(
            key in offsets for offsets in self._transactional()
        )

    @property
    def has_uncommitted(self) -> bool:
        """Whether `commit_up_to` has anything to commit."""
        return bool(self._uncommitted or self._ended)

    @property
    def has_transactional(self) -> bool:
        """Whether offsets of open transactions are pending."""
        return bool(self._transactions or self._ended)

    def replay(self, key: TopicPartition, value: StoredOffset | None, log_offset: int) -> None:
        """Apply a record of the log; it becomes visible when `commit_up_to` has passed it."""
        self._uncommitted.append((log_offset, key, value))

    def commit_up_to(self, high_watermark: int) -> None:
        """Make all records and markers below the high watermark visible."""
        ended = self._ended
        while ended and ended[0].log_offset < high_watermark:
            marker_at, offsets, is_commit = ended[0]
            self._commit_records(marker_at)
            ended.popleft()
            if is_commit:
                self._commit_transaction(offsets)
        self._commit_records(high_watermark)

    def _commit_records(self, high_watermark: int) -> None:
        waiting = self._uncommitted
        while waiting and waiting[0][0] < high_watermark:
            log_offset, key, value = waiting.popleft()
            if value is None:
                self._committed.pop(key, None)
                for offsets in self._transactional():
                    offsets.pop(key, None)
            else:
                self._committed[key] = _Entry(log_offset, value)

    def _commit_transaction(self, offsets: dict[TopicPartition, _Entry]) -> None:
        for key, entry in offsets.items():
            current = self._committed.get(key)
            if current is None or current.log_offset < entry.log_offset:
                self._committed[key] = entry

    def _transactional(self) -> Iterator[dict[TopicPartition, _Entry]]:
        """The offsets of each transaction whose end is not visible yet."""
        yield from self._transactions.values()
        for ended in self._ended:
            yield ended.offsets

    def replay_transactional(
        self, key: TopicPartition, value: StoredOffset | None, log_offset: int, producer_id: int
    ) -> None:
        """Apply a record of an open transaction."""
        offsets = self._transactions.setdefault(producer_id, {})
        if value is None:
            offsets.pop(key, None)
        else:
            offsets[key] = _Entry(log_offset, value)

    def replay_marker(self, marker: TransactionMarker, log_offset: int) -> None:
        """Apply a marker: the producer's transaction ends when `commit_up_to` has passed it."""
        offsets = self._transactions.pop(marker.producer_id, None)
        if offsets is not None:
            self._ended.append(_EndedTransaction(log_offset, offsets, marker.is_commit))

    def all_keys(self) -> list[TopicPartition]:
        """Partitions with an offset, committed or pending."""
        keys = dict.fromkeys(self._committed)
        for _, key, value in self._uncommitted:
            if value is not None:
                keys[key] = None
        return list(keys)

    def expired(
        self,
        now_ms: int,
        retention_ms: int,
        base_timestamp: Callable[[StoredOffset], int],
        subscribed: Iterable[str] = (),
    ) -> list[TopicPartition]:
        """Partitions whose offset is past its retention and whose topic has no subscribers.

        An offset with its own expiry time (OffsetCommit versions 2 to 4) uses that; any other is kept for
        `retention_ms` from `base_timestamp(offset)` on. Offsets with a pending commit are kept.
        """
        retained_topics = frozenset(subscribed)
        waiting = {key for _, key, _ in self._uncommitted}
        result = []
        for key, (_, value) in self._committed.items():
            if key[0] in retained_topics or key in waiting:
                continue
            if value.expire_timestamp_ms != NO_EXPIRY:
                if now_ms >= value.expire_timestamp_ms:
                    result.append(key)
            elif now_ms - base_timestamp(value) >= retention_ms:
                result.append(key)
        return result
