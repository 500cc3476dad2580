"""The syncs of a range that was copied: one every 100 records, and always that of the last record."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pyarrow
import pytest

from ottla.client.model import TopicPartition
from ottla.client.producer.bulk_future import OffsetRange
from ottla.spark.pipelines.mirroring.copying import RangeSender
from ottla.spark.pipelines.mirroring.translation import Sync

if TYPE_CHECKING:
    from ottla.client.sync import Producer

pytestmark = pytest.mark.spec("R6")

SOURCE, REMOTE = TopicPartition("orders", 0), TopicPartition("west.orders", 0)


class AnsweredFuture:
    """Stands for a BulkFuture: acknowledged when it is made, or when the producer is flushed."""

    def __init__(self, start: int, count: int) -> None:
        self._range = OffsetRange(REMOTE.topic, REMOTE.partition, start, start + count, count)
        self.is_done = False

    def done(self) -> bool:
        """See `BulkFuture`."""
        return self.is_done

    def result(self) -> list[OffsetRange]:
        """See `BulkFuture`."""
        assert self.is_done
        return [self._range]


class AnsweringProducer:
    """Stands for a producer whose broker answers at once, or when it has to."""

    def __init__(self, *, at_once: bool) -> None:
        self._at_once = at_once
        self._end = 0
        self._futures: list[AnsweredFuture] = []

    def send_arrow(self, records: pyarrow.RecordBatch, topic: str, *, partition: int) -> AnsweredFuture:
        """See `Producer`."""
        assert (topic, partition) == REMOTE
        future = AnsweredFuture(self._end, len(records))
        future.is_done = self._at_once
        self._end += len(records)
        self._futures.append(future)
        return future

    def flush(self) -> None:
        """See `Producer`."""
        for future in self._futures:
            future.is_done = True


def records_from(start: int, count: int) -> pyarrow.RecordBatch:
    """Records of the source, with nothing in them."""
    nothing = pyarrow.nulls(count)
    columns = {"offset": pyarrow.array(range(start, start + count), pyarrow.int64())}
    columns |= dict.fromkeys(("key", "value", "timestamp", "headers"), nothing)
    return pyarrow.RecordBatch.from_pydict(columns)


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("sizes", [(250,), (100, 150), (249, 1), (1,) * 250])
def test_the_last_record_has_a_sync_whenever_it_is_acknowledged(at_once: bool, sizes: tuple[int, ...]) -> None:
    sender = RangeSender(cast("Producer[bytes, bytes]", AnsweringProducer(at_once=at_once)), SOURCE, REMOTE, None)
    start = 1_000
    for size in sizes:
        sender.send(records_from(start, size))
        start += size
    copied = sender.finished()
    assert copied.records == 250
    assert copied.syncs.syncs == (Sync(1_000, 0), Sync(1_100, 100), Sync(1_200, 200), Sync(1_249, 249))


def test_without_records_there_are_no_syncs() -> None:
    sender = RangeSender(cast("Producer[bytes, bytes]", AnsweringProducer(at_once=True)), SOURCE, REMOTE, None)
    assert sender.finished().rows() == []
