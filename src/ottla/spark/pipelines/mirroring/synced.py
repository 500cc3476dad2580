"""The topic of offset syncs: written after each batch, read to translate offsets. It keeps the counts of the mirror.

The newest sync of a partition has two headers of ours, which other readers pass over: how many records of the partition
were mirrored in all, and how many of these were sent again. So both numbers are as lasting as the syncs.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.client.model import EARLIEST, LATEST, TopicPartition
from ottla.spark.pipelines.mirroring.formats import MirrorRecordError, OffsetSync
from ottla.spark.pipelines.mirroring.translation import Sync, SyncHistory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.client.sync import Client, Producer
    from ottla.records.record import Record

RECORDS = "ottla.mirror.records"
REPEATED = "ottla.mirror.repeated"
_COUNT = struct.Struct(">q")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MirrorCounts:
    """Numbers of one partition since the mirror was first started. `records` were sent, `repeated` of them again."""

    records: int = 0
    repeated: int = 0

    def __add__(self, other: MirrorCounts) -> MirrorCounts:
        return MirrorCounts(self.records + other.records, self.repeated + other.repeated)


class TopicTail:
    """Reads partition 0 of a topic of MirrorMaker 2's, from where it came to the last time."""

    def __init__(self, topic: str) -> None:
        self._partition = TopicPartition(topic, 0)
        self._position = 0

    def read(self, client: Client) -> Iterator[Record]:
        """The records that came since. Raises ClientError."""
        first = client.offsets_at([self._partition], EARLIEST)[self._partition]
        end = client.offsets_at([self._partition], LATEST)[self._partition]
        start = max(first, self._position if self._position <= end else first)
        for records in client.read_range(self._partition, start, end):
            yield from records
        self._position = end


class SyncStore:
    """The contents of the topic of offset syncs, updated by `refresh`."""

    def __init__(self, topic: str) -> None:
        self._tail = TopicTail(topic)
        self._histories: dict[TopicPartition, SyncHistory] = {}
        self.counts: dict[TopicPartition, MirrorCounts] = {}

    def refresh(self, client: Client) -> None:
        """Read what came since the last time. Raises ClientError."""
        for record in self._tail.read(client):
            try:
                sync = OffsetSync.decode(record.key, record.value)
            except MirrorRecordError as problem:
                log.warning("an offset sync at offset %d cannot be read: %s", record.offset, problem)
                continue
            history = self._histories.setdefault(sync.partition, SyncHistory())
            history.add(Sync(sync.upstream_offset, sync.downstream_offset))
            counts = _counts_in(record)
            if counts is not None:
                self.counts[sync.partition] = counts

    def newest(self) -> dict[TopicPartition, Sync]:
        """The newest sync of each partition of the source."""
        return {each: history.newest for each, history in self._histories.items() if history.newest is not None}

    def translate(self, partition: TopicPartition, offset: int) -> int | None:
        """As `SyncHistory.translate`; None for partitions without syncs, too."""
        history = self._histories.get(partition)
        return None if history is None else history.translate(offset)


def write_syncs(
    producer: Producer[bytes, bytes],
    topic: str,
    partition: TopicPartition,
    syncs: Sequence[Sync],
    counts: MirrorCounts,
) -> None:
    """Send the syncs of a partition, oldest first, with its counts; the caller waits for their acknowledgement."""
    for sync in syncs:
        record = OffsetSync(partition, *sync)
        headers: Iterable[tuple[str, bytes]] = ()
        if sync is syncs[-1]:
            headers = ((RECORDS, _COUNT.pack(counts.records)), (REPEATED, _COUNT.pack(counts.repeated)))
        producer.send(topic, record.value, record.key, 0, headers=tuple(headers))


def _counts_in(record: Record) -> MirrorCounts | None:
    counts = {name: value for name, value in record.headers if name in (RECORDS, REPEATED)}
    try:
        return MirrorCounts(*(int(_COUNT.unpack(counts[name] or b"")[0]) for name in (RECORDS, REPEATED)))
    except (KeyError, struct.error):
        return None
