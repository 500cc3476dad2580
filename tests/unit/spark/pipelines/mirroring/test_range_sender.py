"""The syncs of a range that was copied: one every 100 records, and always that of the last record."""

from __future__ import annotations

from collections import deque
from threading import Lock
from typing import TYPE_CHECKING, cast

import pyarrow
import pytest

from ottla.client.errors import BrokerError, ClientError, DeliveryError, RecordTooLargeError
from ottla.client.model import TopicPartition
from ottla.client.producer.bulk_future import BulkFuture
from ottla.client.producer.futures import BatchResult
from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.mirroring.copying import RangeSender
from ottla.spark.pipelines.mirroring.translation import Sync
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.client.sync import Producer

pytestmark = pytest.mark.spec("R6")

SOURCE, REMOTE = TopicPartition("orders", 0), TopicPartition("west.orders", 0)


class AnsweringProducer:
    """Stands for a producer whose broker answers at once, or when it has to."""

    def __init__(self, *, at_once: bool) -> None:
        self._at_once = at_once
        self._end = 0
        self._pending: deque[tuple[BatchResult, int]] = deque()

    def send_arrow(self, records: pyarrow.RecordBatch, topic: str, *, partition: int, into: BulkFuture) -> None:
        """See `Producer`."""
        assert (topic, partition) == REMOTE
        result = BatchResult(REMOTE, Lock())
        into.add_batch(result, len(records))
        self._pending.append((result, self._end))
        self._end += len(records)
        if self._at_once:
            self.flush()

    def flush(self) -> None:
        """See `Producer`."""
        while self._pending:
            result, offset = self._pending.popleft()
            result.complete(offset, -1)


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


class RefusingProducer(AnsweringProducer):
    """Stands for a producer whose broker refuses the second batch that it gets."""

    def __init__(self, error: ClientError, named: dict[int, str] | None = None) -> None:
        super().__init__(at_once=False)
        self._error = error
        self._named = named

    def flush(self) -> None:
        """See `Producer`."""
        (first, offset), (second, _) = self._pending
        first.complete(offset, -1)
        second.complete(-1, -1, self._error, self._named)
        raise DeliveryError("1 records were not acknowledged")


def _refusal(producer: AnsweringProducer) -> str:
    sender = RangeSender(cast("Producer[bytes, bytes]", producer), SOURCE, REMOTE, None)
    with pytest.raises(PipelineError) as refused:
        _send_twenty(sender)
    return str(refused.value)


def _send_twenty(sender: RangeSender) -> None:
    for start in (1_000, 1_010):
        sender.send(records_from(start, 10))
    sender.finished()


def test_a_record_that_the_target_refuses_is_named_by_its_place_in_the_source() -> None:
    error = BrokerError(ErrorCode.INVALID_RECORD, "a batch for west.orders-0")
    assert _refusal(RefusingProducer(error, {4: "no key", 7: "no key"})) == (
        "the target's topic west.orders refuses the record orders-0@1014 of the source: a record for west.orders-0: "
        "no key (INVALID_RECORD). Two ways on: let the target take it, by settings of its brokers or of the source's "
        "topic, which the mirror sets there too; or delete the source's records up to it, by "
        "delete_records({orders-0: 1015}) of an admin client, and the mirror continues behind what is gone"
    )


def test_where_the_target_names_no_record_the_price_of_deleting_is_said() -> None:
    said = _refusal(RefusingProducer(BrokerError(ErrorCode.INVALID_RECORD, "a batch for west.orders-0")))
    assert "refuses one of the records orders-0@1010 to 1019 of the source" in said
    assert said.endswith(
        "or delete all of the source's records up to 1019, of which good ones from 1010 on are lost to the mirror, by "
        "delete_records({orders-0: 1020}) of an admin client, and the mirror continues behind what is gone"
    )


def test_a_record_that_is_too_large_for_the_producer_is_named_too() -> None:
    class Small(AnsweringProducer):
        def send_arrow(self, records: pyarrow.RecordBatch, topic: str, *, partition: int, into: BulkFuture) -> None:
            into.add_batch(BatchResult(REMOTE, Lock()), 3)
            raise RecordTooLargeError(topic, 2_000, "max.request.size of the producer (1000)")

    assert "refuses the record orders-0@1003 of the source: a record of 2000 bytes" in _refusal(Small(at_once=True))


def test_what_is_no_record_s_fault_names_none() -> None:
    sender = RangeSender(
        cast("Producer[bytes, bytes]", RefusingProducer(ClientError("no broker answers"))), SOURCE, REMOTE, None
    )
    with pytest.raises(DeliveryError, match="no broker answers"):
        _send_twenty(sender)
