"""A cluster in memory that answers what the Spark source and sink ask of a client."""

from __future__ import annotations

import re
import threading
import uuid
from typing import Any, Self

import pytest

from ottla.client.errors import ClientError, ClientTimeoutError, OffsetOutOfRange, UnknownTopicError
from ottla.client.model import EARLIEST, LATEST, PartitionMetadata, TopicMetadata, TopicPartition
from ottla.records.record import Record


class FakeCluster:
    def __init__(self) -> None:
        self.first: dict[TopicPartition, int] = {}
        self.last: dict[TopicPartition, int] = {}
        self.times: dict[TopicPartition, int] = {}
        self.commits: list[tuple[str, dict[TopicPartition, int]]] = []
        self.topic_ids: dict[str, uuid.UUID] = {}
        self.commit_failures = 0
        self.commits_asked = 0
        self.coordinator_answers = threading.Event()
        self.coordinator_answers.set()
        self.sent: list[tuple[Any, ...]] = []
        self.futures: list[FakeFuture] = []
        self.flushed = 0
        self.clients = 0
        #: Where an open transaction begins, and the bytes of a log.
        self.stable: dict[TopicPartition, int] = {}
        self.sizes: dict[TopicPartition, int] = {}
        #: Errors of the next requests for offsets, and how many there were.
        self.failures: list[Exception] = []
        self.calls = 0
        self.settings: list[dict[str, Any]] = []
        self.values: list[bytes] = []
        #: Deletions that happen while a range is read: after so many batches the first offset is another one.
        self.deletions: dict[int, tuple[TopicPartition, int]] = {}
        self.producer_settings: dict[str, Any] = {}

    def holds(self, topic: str, *ranges: tuple[int, int]) -> None:
        for number, (first, last) in enumerate(ranges):
            self.first[TopicPartition(topic, number)] = first
            self.last[TopicPartition(topic, number)] = last

    def producer(self, settings: dict[str, Any]) -> FakeProducer:
        self.producer_settings = settings
        return FakeProducer(self)

    def connect(self, **settings: Any) -> FakeClient:
        self.settings.append(settings)
        self.clients += 1
        return FakeClient(self)


class FakeClient:
    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._cluster.clients -= 1

    def topics(self, pattern: str | None = None) -> list[str]:
        return sorted(
            {each.topic for each in self._cluster.last if pattern is None or re.fullmatch(pattern, each.topic)}
        )

    def describe_topics(self, topics: list[str]) -> dict[str, TopicMetadata]:
        for topic in topics:
            if topic not in self.topics():
                raise UnknownTopicError(topic, "the fake")
        numbers = {
            topic: sorted(each.partition for each in self._cluster.last if each.topic == topic) for topic in topics
        }
        return {
            topic: TopicMetadata(
                topic,
                tuple(PartitionMetadata(number, 1, 0, (1,), (1,)) for number in numbers[topic]),
                is_internal=False,
                topic_id=self._cluster.topic_ids.get(topic),
            )
            for topic in topics
        }

    def offsets_at(
        self, partitions: list[TopicPartition], at: int, *, read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        self._cluster.calls += 1
        if self._cluster.failures:
            raise self._cluster.failures.pop(0)
        if at == EARLIEST:
            return {each: self._cluster.first[each] for each in partitions}
        if at == LATEST:
            stable = self._cluster.stable if read_committed else {}
            return {each: stable.get(each, self._cluster.last[each]) for each in partitions}
        return {each: self._cluster.times.get(each, -1) for each in partitions}

    def partition_sizes(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {each: self._cluster.sizes.get(each, 0) for each in partitions}

    def commit(self, group: str, offsets: dict[TopicPartition, int], *, timeout_ms: int | None = None) -> None:
        self._cluster.commits_asked += 1
        if not self._cluster.coordinator_answers.wait(None if timeout_ms is None else timeout_ms / 1_000):
            raise ClientTimeoutError("no answer in time")
        if self._cluster.commit_failures:
            self._cluster.commit_failures -= 1
            raise ClientError("the coordinator is away")
        self._cluster.commits.append((group, dict(offsets)))

    def committed(
        self, group: str, partitions: list[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        known: dict[TopicPartition, int] = {}
        for owner, offsets in self._cluster.commits:
            if owner == group:
                known |= offsets
        return {each: known.get(each, -1) for each in partitions}

    def read_range(self, partition: TopicPartition, start: int, end: int, fetch_max_bytes: int) -> Any:
        for offset in range(start, end):
            yield [Record(offset, offset * 1_000, None, b"v%d" % offset)]

    def read_range_arrow(self, partition: TopicPartition, start: int, end: int, **settings: Any) -> Any:
        import pyarrow

        self._cluster.settings.append(settings)
        for number, low in enumerate(range(start, end, settings["rows_per_batch"])):
            first, last = self._cluster.first.get(partition, 0), self._cluster.last.get(partition, end)
            if not first <= low <= last:
                raise OffsetOutOfRange(*partition, low, first, last)
            offsets = list(range(low, min(end, low + settings["rows_per_batch"])))
            columns = {
                "key": pyarrow.array([b"k%d" % each for each in offsets], pyarrow.binary()),
                "value": pyarrow.array(
                    [self._cluster.values[each] if self._cluster.values else b"v%d" % each for each in offsets],
                    pyarrow.binary(),
                ),
                "topic": pyarrow.array([partition.topic] * len(offsets)),
                "partition": pyarrow.array([partition.partition] * len(offsets), pyarrow.int32()),
                "offset": pyarrow.array(offsets, pyarrow.int64()),
                "timestamp": pyarrow.array([each * 1_000 for each in offsets], pyarrow.timestamp("us", tz="UTC")),
                "timestampType": pyarrow.array([0] * len(offsets), pyarrow.int32()),
            }
            if settings["include_headers"]:
                kind = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))
                columns["headers"] = pyarrow.array([[{"key": "h", "value": b"1"}]] * len(offsets), kind)
            yield pyarrow.record_batch(columns)
            if (number + 1) in self._cluster.deletions:
                where, offset = self._cluster.deletions.pop(number + 1)
                self._cluster.first[where] = offset


class FakeFuture:
    def __init__(self) -> None:
        self.calls = 0

    def done(self) -> bool:
        return self.calls == 0

    def result(self) -> None:
        self.calls += 1


class FakeProducer:
    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def send_arrow(self, batch: Any, topic: str | None) -> FakeFuture:
        for row in batch.to_pylist():
            key, value, moment = row.get("key"), row["value"], row.get("timestamp")
            self._cluster.sent.append(
                (
                    topic or row["topic"],
                    value.encode() if isinstance(value, str) else value,
                    key.encode() if isinstance(key, str) else key,
                    row.get("partition"),
                    None if moment is None else int(moment.timestamp() * 1000),
                    tuple((each["key"], each["value"]) for each in row.get("headers") or ()),
                )
            )
        self._cluster.futures.append(FakeFuture())
        return self._cluster.futures[-1]

    def flush(self) -> None:
        self._cluster.flushed += 1


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """A cluster in memory, to which source and sink connect."""
    made = FakeCluster()
    monkeypatch.setattr("ottla.client.sync.Client", made.connect)
    monkeypatch.setattr("ottla.client.sync.Producer", made.producer)
    return made
