"""Metrics of the committed offsets of the groups coordinated here, and of how far behind these are.

The lag is known of partitions of which this broker has a replica.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.broker.metrics.declaring import BrokerMetric, exporter, ottla
from ottla.env.disk import DiskError
from ottla.env.warmth import bring, pread, without_waiting
from ottla.records.batch import BASE_TIMESTAMP_AT, BATCH_OVERHEAD, MAX_TIMESTAMP_AT
from ottla.storage.results import ReadRefusal

if TYPE_CHECKING:
    from ottla.broker.metrics.registry import Labelled
    from ottla.broker.replicas.partition import Partition
    from ottla.broker.services import BrokerServices

MOST_AGES: Final = 500
"""Most partitions with lag whose first unread batch a scrape reads; with more it leaves the lag in seconds out."""
_LABELS: Final = ("consumergroup", "topic", "partition")


@dataclass(frozen=True, slots=True)
class _Committed:
    group: str
    topic: str
    index: int
    offset: int
    #: The replica here, if there is one.
    partition: Partition | None

    @property
    def labels(self) -> tuple[str, str, str]:
        return self.group, self.topic, str(self.index)


def _committed(broker: BrokerServices) -> Iterator[_Committed]:
    for machine in broker.groups.groups()[1]:
        for (topic, index), stored in machine.offsets.items():
            yield _Committed(machine.group_id, topic, index, stored.offset, broker.partitions.get(topic, index))


def _lags(broker: BrokerServices) -> Iterator[tuple[_Committed, Partition, int]]:
    for each in _committed(broker):
        partition = each.partition
        if partition is not None and partition.leader_id is not None:
            yield each, partition, max(0, partition.log.high_watermark - each.offset)


def _sums(values: Iterator[tuple[_Committed, int]]) -> Labelled:
    sums: Counter[tuple[str, ...]] = Counter()
    for each, value in values:
        sums[each.group, each.topic] += value
    return sums.items()


def _lag_seconds(broker: BrokerServices) -> Labelled:
    """The largest age in each topic; a topic whose batches are not in the page cache is left out of this scrape."""
    ages: dict[tuple[str, ...], float] = {}
    unknown: set[tuple[str, ...]] = set()
    left = MOST_AGES
    for each, partition, lag in _lags(broker):
        key = (each.group, each.topic)
        age_s: float | None = 0.0
        if lag:
            left -= 1
            if left < 0:
                return ()
            age_s = _age_s(broker, partition, each.offset)
        if age_s is None:
            unknown.add(key)
        else:
            ages[key] = max(ages.get(key, 0.0), age_s)
    return [(key, age_s) for key, age_s in ages.items() if key not in unknown]


def _age_s(broker: BrokerServices, partition: Partition, offset: int) -> float | None:
    """How old the batch is that holds the first unread record; None where that cannot be read at once."""
    log = partition.log
    headers: list[bytes] = []

    def work() -> None:
        read = log.read(max(offset, log.log_start_offset), 1, up_to_offset=log.high_watermark)
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
        return None
    if cold:
        broker.executor.call(lambda: bring(broker.disk, cold), lambda _done, _error: None)
    if not headers or len(headers[0]) < BATCH_OVERHEAD:
        return None
    written_ms = int.from_bytes(headers[0][BASE_TIMESTAMP_AT:MAX_TIMESTAMP_AT], signed=True)
    return max(0, broker.clock.now_ms() - written_ms) / 1000 if written_ms >= 0 else None


GROUP_LAG: Final[tuple[BrokerMetric, ...]] = (
    exporter(
        "consumergroup_current_offset",
        "At the coordinator: committed offsets.",
        lambda broker: ((each.labels, each.offset) for each in _committed(broker)),
        *_LABELS,
    ),
    exporter(
        "consumergroup_current_offset_sum",
        "At the coordinator: the sum of a topic's committed offsets.",
        lambda broker: _sums((each, each.offset) for each in _committed(broker)),
        *_LABELS[:2],
    ),
    exporter(
        "consumergroup_lag",
        "At the coordinator, of partitions of which it has a replica: records between committed offset and high "
        "watermark.",
        lambda broker: ((each.labels, lag) for each, _, lag in _lags(broker)),
        *_LABELS,
    ),
    exporter(
        "consumergroup_lag_sum",
        "The same, summed up by topic.",
        lambda broker: _sums((each, lag) for each, _, lag in _lags(broker)),
        *_LABELS[:2],
    ),
    ottla(
        "consumergroup_lag_seconds",
        "The same in time: the age of the oldest batch of a topic that the group has not read and committed, 0 without "
        f"lag. Left out beyond {MOST_AGES} partitions with lag.",
        _lag_seconds,
        *_LABELS[:2],
    ),
    exporter(
        "consumergroup_members",
        "At the coordinator: members.",
        lambda broker: [((each.group_id,), len(each.members)) for each in broker.groups.groups()[1]],
        "consumergroup",
    ),
)
