"""Metrics of the committed offsets of the groups coordinated here, and of how far behind these are.

The lag is known of partitions that this broker leads, or follows in sync. A scrape looks at the groups once, for the
first of these metrics; the others take what it found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from heapq import nlargest
from typing import TYPE_CHECKING, Final

from ottla.broker.metrics.declaring import BrokerMetric, exporter, ottla
from ottla.broker.metrics.lag_figures import BatchTimes, Committed
from ottla.broker.metrics.registry import VALUES_PER_PIECE
from ottla.env.disk import DiskError
from ottla.env.warmth import bring, pread, without_waiting
from ottla.records.batch import (
    BATCH_HEAD,
    BATCH_OVERHEAD,
    DELETE_HORIZON_FLAG,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
)
from ottla.storage.results import ReadRefusal

if TYPE_CHECKING:
    from ottla.broker.metrics.registry import Labelled
    from ottla.broker.replicas.partition import Partition
    from ottla.broker.services import BrokerServices

MOST_AGES: Final = 500
"""Most first unread batches that a scrape reads, those of the partitions with the largest lags."""
MOST_COLD: Final = 50
"""Most of them that a scrape has read from the disk for the next one."""
AGES_PER_PIECE: Final = 16
"""Batches that are read in one piece of work."""
_LABELS: Final = ("consumergroup", "topic", "partition")


def _known(broker: BrokerServices, topic: str, index: int) -> Partition | None:
    """The replica here if its high watermark is about that of the leader: one out of sync would hide lag."""
    partition = broker.partitions.get(topic, index)
    if partition is None or partition.leader is not None:
        return partition
    state = broker.image.partition(topic, index)
    is_in_sync = partition.leader_id is not None and state is not None and broker.id in state.isr
    return partition if is_in_sync else None


def _look(broker: BrokerServices) -> Generator[None, None, list[Committed]]:
    found: list[Committed] = []
    for group in broker.groups.groups()[1]:
        for (topic, index), stored in tuple(group.committed.items()):
            partition = _known(broker, topic, index)
            lag = None if partition is None else max(0, partition.log.high_watermark - stored.offset)
            found.append(Committed(group.group_id, topic, index, stored.offset, lag))
            if len(found) % VALUES_PER_PIECE == 0:
                yield
    return found


def _committed(broker: BrokerServices) -> Generator[None, None, Sequence[Committed]]:
    found = broker.metrics.lags.committed
    return found if found is not None else (yield from _look(broker))


def _offsets(broker: BrokerServices) -> Labelled:
    found = yield from _look(broker)
    broker.metrics.lags.committed = found
    for each in found:
        yield each.labels, each.offset


def _lags(broker: BrokerServices) -> Labelled:
    for each in (yield from _committed(broker)):
        if each.lag is not None:
            yield each.labels, each.lag


def _sums(value: Callable[[Committed], int | None]) -> Callable[[BrokerServices], Labelled]:
    """The sum of a value by group and topic, of those of which it is known in all partitions."""

    def read(broker: BrokerServices) -> Labelled:
        sums: Counter[tuple[str, ...]] = Counter()
        partial: set[tuple[str, ...]] = set()
        for count, each in enumerate((yield from _committed(broker)), 1):
            number = value(each)
            if number is None:
                partial.add((each.group, each.topic))
            else:
                sums[each.group, each.topic] += number
            if count % VALUES_PER_PIECE == 0:
                yield None
        yield from ((key, number) for key, number in sums.items() if key not in partial)

    return read


def _lag_seconds(broker: BrokerServices) -> Labelled:
    """The largest age in each topic, of the batches whose times are known."""
    ages: dict[tuple[str, ...], float] = {}
    partial: set[tuple[str, ...]] = set()
    behind: list[Committed] = []
    for count, each in enumerate((yield from _committed(broker)), 1):
        if each.lag is None:
            partial.add((each.group, each.topic))
        elif each.lag:
            behind.append(each)
        else:
            ages[each.group, each.topic] = 0.0
        if count % VALUES_PER_PIECE == 0:
            yield None
    written = yield from _times(broker, [each for each in behind if (each.group, each.topic) not in partial])
    # An age of 0 would hide batches whose times are not known.
    for each in behind:
        ages.pop((each.group, each.topic), None)
    now_ms = broker.clock.now_ms()
    for (group, topic, _), (_, time_ms) in written.items():
        if time_ms >= 0:
            ages[group, topic] = max(ages.get((group, topic), 0.0), max(0, now_ms - time_ms) / 1000)
    yield from ((key, age_s) for key, age_s in ages.items() if key not in partial)


def _times(broker: BrokerServices, behind: Sequence[Committed]) -> Generator[None, None, BatchTimes]:
    """When the first unread batches were written: what the last scrape found, or read now; -1 if a batch has no time.

    Where a batch is cold the time of the one before it is taken, until the next scrape.
    """
    before = broker.metrics.lags.written_ms
    after: BatchTimes = {}
    unread: list[tuple[Committed, Partition, int]] = []
    for count, each in enumerate(behind, 1):
        partition = broker.partitions.get(each.topic, each.partition)
        if partition is not None:
            start = max(each.offset, partition.log.log_start_offset)
            key = (each.group, each.topic, each.partition)
            known = before.get(key)
            if known is not None and known[0] == start:
                after[key] = known
            else:
                unread.append((each, partition, start))
        if count % VALUES_PER_PIECE == 0:
            yield
    cold = 0
    largest = nlargest(MOST_AGES, unread, key=lambda item: item[0].lag or 0)
    for count, (each, partition, start) in enumerate(largest, 1):
        key = (each.group, each.topic, each.partition)
        time_ms = _written_ms(broker, partition, start) if cold < MOST_COLD else None
        if time_ms is not None:
            after[key] = (start, time_ms)
        else:
            cold += 1
            if key in before:
                after[key] = before[key]
        if count % AGES_PER_PIECE == 0:
            yield
    broker.metrics.lags.written_ms = after
    return after


def _written_ms(broker: BrokerServices, partition: Partition, offset: int) -> int | None:
    """When the batch was written that holds `offset`; None while it is cold, -1 if it has no time."""
    log = partition.log
    headers: list[bytes] = []

    def work() -> None:
        read = log.read(offset, 1, up_to_offset=log.high_watermark)
        if isinstance(read, ReadRefusal) or read.slice is None:
            return
        try:
            headers.append(pread(read.slice.file, BATCH_OVERHEAD, read.slice.position))
        finally:
            if read.slice.release is not None:
                read.slice.release()

    try:
        cold = without_waiting(work)
    except DiskError:
        return -1
    if cold:
        broker.executor.call(lambda: bring(broker.disk, cold), lambda _done, _error: None)
        return None
    return written_ms(headers[0]) if headers else -1


def written_ms(head: bytes) -> int:
    """When the records of a batch were written, by its header; -1 if it is of an old format, or cut off.

    It is the first record's time. With the broker's time (`LogAppendTime`), or the horizon of deletions of a compacted
    batch, only the last one's is in the header.
    """
    if len(head) < BATCH_OVERHEAD or head[MAGIC_AT] != MAGIC:
        return -1
    header = BatchHeader(*(*BATCH_HEAD.unpack_from(head), 0))
    has_only_max = header.attributes & (LOG_APPEND_TIME_FLAG | DELETE_HORIZON_FLAG)
    return header.max_timestamp if has_only_max else header.base_timestamp


def _members(broker: BrokerServices) -> Labelled:
    broker.metrics.lags.committed = None
    return [((each.group_id,), len(each.members)) for each in broker.groups.groups()[1]]


GROUP_LAG: Final[tuple[BrokerMetric, ...]] = (
    exporter("consumergroup_current_offset", "At the coordinator: committed offsets.", _offsets, *_LABELS),
    exporter(
        "consumergroup_current_offset_sum",
        "At the coordinator: the sum of a topic's committed offsets.",
        _sums(lambda each: each.offset),
        *_LABELS[:2],
    ),
    exporter(
        "consumergroup_lag",
        "At the coordinator, of partitions that it leads or follows in sync: records between committed offset and high "
        "watermark.",
        _lags,
        *_LABELS,
    ),
    exporter(
        "consumergroup_lag_sum",
        "The same, summed up by topic; left out unless it is known of all partitions with committed offsets.",
        _sums(lambda each: each.lag),
        *_LABELS[:2],
    ),
    ottla(
        "consumergroup_lag_seconds",
        "The same in time: the age of the oldest batch of a topic that the group has not read and committed, 0 without "
        f"lag. A scrape reads {MOST_AGES} batches, those of the largest lags first.",
        _lag_seconds,
        *_LABELS[:2],
    ),
    # The last one: see `_members`.
    exporter("consumergroup_members", "At the coordinator: members.", _members, "consumergroup"),
)
