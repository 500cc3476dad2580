"""A cluster in memory that answers what the Spark source and sink ask of a client."""

from __future__ import annotations

import re
from typing import Any, Self

import pytest

from ottla.client.errors import ClientError, UnknownTopicError
from ottla.client.model import EARLIEST, LATEST, TopicPartition


class FakeCluster:
    def __init__(self) -> None:
        self.first: dict[TopicPartition, int] = {}
        self.last: dict[TopicPartition, int] = {}
        self.times: dict[TopicPartition, int] = {}
        self.commits: list[tuple[str, dict[TopicPartition, int]]] = []
        self.commit_failures = 0
        self.sent: list[tuple[Any, ...]] = []
        self.futures: list[FakeFuture] = []
        self.flushed = 0
        self.clients = 0
        self.producer_settings: dict[str, Any] = {}

    def holds(self, topic: str, *ranges: tuple[int, int]) -> None:
        for number, (first, last) in enumerate(ranges):
            self.first[TopicPartition(topic, number)] = first
            self.last[TopicPartition(topic, number)] = last

    def producer(self, **settings: Any) -> FakeProducer:
        self.producer_settings = settings
        return FakeProducer(self)

    def connect(self, *_: object, **__: object) -> FakeClient:
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

    def partitions(self, topics: list[str]) -> dict[str, list[int]]:
        for topic in topics:
            if topic not in self.topics():
                raise UnknownTopicError(topic, "the fake")
        return {topic: sorted(each.partition for each in self._cluster.last if each.topic == topic) for topic in topics}

    def offsets_at(self, partitions: list[TopicPartition], at: int) -> dict[TopicPartition, int]:
        if at == EARLIEST:
            return {each: self._cluster.first[each] for each in partitions}
        if at == LATEST:
            return {each: self._cluster.last[each] for each in partitions}
        return {each: self._cluster.times.get(each, -1) for each in partitions}

    def commit(self, group: str, offsets: dict[TopicPartition, int]) -> None:
        if self._cluster.commit_failures:
            self._cluster.commit_failures -= 1
            raise ClientError("the coordinator is away")
        self._cluster.commits.append((group, dict(offsets)))

    def read_range_arrow(self, partition: TopicPartition, start: int, end: int, **settings: Any) -> Any:
        import pyarrow

        for low in range(start, end, settings["rows_per_batch"]):
            offsets = list(range(low, min(end, low + settings["rows_per_batch"])))
            columns = {
                "key": pyarrow.array([b"k%d" % each for each in offsets], pyarrow.binary()),
                "value": pyarrow.array([b"v%d" % each for each in offsets], pyarrow.binary()),
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


class FakeFuture:
    def __init__(self) -> None:
        self.asked = 0

    def done(self) -> bool:
        return self.asked == 0

    def result(self) -> None:
        self.asked += 1


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
    monkeypatch.setattr("ottla.spark.source.connect", made.connect)
    monkeypatch.setattr("ottla.spark.partitions.connect", made.connect)
    monkeypatch.setattr("ottla.client.sync.Producer", made.producer)
    return made
