"""The committed offsets of one group.

A commit is applied as soon as it is appended, but served only once its record is committed (below the high
watermark); until then it waits in `_uncommitted`, in the order of the log. Offsets of open transactions wait apart and
count when their transaction commits, unless a newer commit has overtaken them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

NO_EXPIRY = -1
NO_LEADER_EPOCH = -1

TopicPartition = tuple[str, int]


class OffsetAndMetadata(NamedTuple):
    """A committed offset. Times are milliseconds since the Unix epoch, `expire_timestamp_ms` is -1 without."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRY


def metadata_size(metadata: str) -> int:
    """What `offset.metadata.max.bytes` limits: not bytes but UTF-16 units, the length of the string in Java."""
    return len(metadata) if metadata.isascii() else len(metadata.encode("utf-16-be", "surrogatepass")) // 2


class _Entry(NamedTuple):
    log_offset: int
    value: OffsetAndMetadata


class GroupOffsets:
    """Committed offsets by topic and partition."""

    __slots__ = ("_committed", "_transactions", "_uncommitted")

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, _Entry] = {}
        self._uncommitted: deque[tuple[int, TopicPartition, OffsetAndMetadata | None]] = deque()
        self._transactions: dict[int, dict[TopicPartition, _Entry]] = {}

    def __len__(self) -> int:
        return len(self._committed)

    def __bool__(self) -> bool:
        """Whether there is any offset, committed or on its way."""
        return bool(self._committed or self._uncommitted or self._transactions)

    def items(self) -> Iterator[tuple[TopicPartition, OffsetAndMetadata]]:
        """All committed offsets."""
        for key, entry in self._committed.items():
            yield key, entry.value

    def get(self, topic: str, partition: int) -> OffsetAndMetadata | None:
        """What is committed for a partition."""
        entry = self._committed.get((topic, partition))
        return None if entry is None else entry.value

    def is_unstable(self, topic: str, partition: int) -> bool:
        """Whether a commit for the partition is on its way: its own or a transaction's."""
        key = (topic, partition)
        return any(key == waiting for _, waiting, _ in self._uncommitted) or any(
            key in offsets for offsets in self._transactions.values()
        )

    @property
    def has_uncommitted(self) -> bool:
        """Whether `commit_up_to` has something to wait for."""
        return bool(self._uncommitted)

    @property
    def has_transactional(self) -> bool:
        """Whether offsets wait for the end of a transaction."""
        return bool(self._transactions)

    def replay(self, key: TopicPartition, value: OffsetAndMetadata | None, log_offset: int) -> None:
        """Take up a record of the log; it counts after `commit_up_to` has passed it."""
        self._uncommitted.append((log_offset, key, value))

    def commit_up_to(self, high_watermark: int) -> None:
        """Let all records below the high watermark count."""
        waiting = self._uncommitted
        while waiting and waiting[0][0] < high_watermark:
            log_offset, key, value = waiting.popleft()
            if value is None:
                self._committed.pop(key, None)
                for offsets in self._transactions.values():
                    offsets.pop(key, None)
            else:
                self._committed[key] = _Entry(log_offset, value)

    def replay_transactional(
        self, key: TopicPartition, value: OffsetAndMetadata | None, log_offset: int, producer_id: int
    ) -> None:
        """Take up a record of an open transaction."""
        offsets = self._transactions.setdefault(producer_id, {})
        if value is None:
            offsets.pop(key, None)
        else:
            offsets[key] = _Entry(log_offset, value)

    def complete_transaction(self, producer_id: int, is_commit: bool) -> None:
        """A marker ended the producer's transaction."""
        offsets = self._transactions.pop(producer_id, None)
        if offsets is None or not is_commit:
            return
        for key, entry in offsets.items():
            current = self._committed.get(key)
            if current is None or current.log_offset < entry.log_offset:
                self._committed[key] = entry

    def all_keys(self) -> list[TopicPartition]:
        """Partitions with an offset, committed or on its way."""
        keys = dict.fromkeys(self._committed)
        for _, key, value in self._uncommitted:
            if value is not None:
                keys[key] = None
        return list(keys)

    def expired(
        self,
        now_ms: int,
        retention_ms: int,
        base_timestamp: Callable[[OffsetAndMetadata], int],
        subscribed: Iterable[str] = (),
    ) -> list[TopicPartition]:
        """Partitions whose offset is past its retention and whose topic nobody is subscribed to.

        An offset with an expiry of its own (OffsetCommit versions 2 to 4) goes by that; any other is kept for
        `retention_ms` from `base_timestamp(offset)` on. Offsets with a commit on its way are kept.
        """
        kept_topics = frozenset(subscribed)
        waiting = {key for _, key, _ in self._uncommitted}
        result = []
        for key, (_, value) in self._committed.items():
            if key[0] in kept_topics or key in waiting:
                continue
            if value.expire_timestamp_ms != NO_EXPIRY:
                if now_ms >= value.expire_timestamp_ms:
                    result.append(key)
            elif now_ms - base_timestamp(value) >= retention_ms:
                result.append(key)
        return result
