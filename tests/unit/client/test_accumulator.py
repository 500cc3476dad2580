from __future__ import annotations

import threading

import pytest

from ottla.client.accumulator import Accumulator, estimated_size
from ottla.client.errors import ClientTimeoutError
from ottla.client.model import TopicPartition
from ottla.client.settings import ProducerSettings
from ottla.env.clock import VirtualClock
from ottla.records.record import Record, encode_batch
from support.waiting import wait_until

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Filled:
    """An accumulator with a clock that stands still."""

    def __init__(self, **settings):
        self.clock = VirtualClock()
        self.accumulator = Accumulator(ProducerSettings(**settings), self.clock)

    def add(self, partition, *values, size=100):
        return [self.accumulator.append(partition, Record(0, 0, None, value), size) for value in values]

    def taken(self):
        batches = self.accumulator.take()
        return {batch.partition: [record.value for record in batch.records] for batch in batches}


def test_records_linger_and_then_go_together():
    filled = Filled(linger_ms=10)
    assert filled.add(A, b"1", b"2") == [True, False], "only a new batch wakes the sender"
    assert filled.taken() == {}
    assert filled.accumulator.next_due_in_ms() == 10
    filled.clock.advance(4)
    filled.add(B, b"3")
    assert filled.accumulator.next_due_in_ms() == 6
    filled.clock.advance(6)
    assert filled.taken() == {A: [b"1", b"2"]}
    assert filled.accumulator.next_due_in_ms() == 4


def test_a_full_batch_does_not_linger():
    filled = Filled(linger_ms=1000, batch_size=400)
    assert filled.add(A, b"1", b"2", b"3", b"4") == [True, False, False, True]
    assert filled.taken() == {A: [b"1", b"2", b"3"]}


def test_a_record_larger_than_a_batch_has_its_own():
    filled = Filled(linger_ms=0, batch_size=400)
    filled.add(A, b"1")
    filled.add(A, b"large", size=5000)
    filled.add(A, b"2")
    sizes = []
    for _ in range(3):
        [batch] = filled.accumulator.take()
        sizes.append(len(batch.records))
        filled.accumulator.finish(batch)
    assert sizes == [1, 1, 1]


def test_one_batch_of_a_partition_at_a_time():
    filled = Filled(linger_ms=0, batch_size=200)
    filled.add(A, b"1", b"2", b"3")
    filled.add(B, b"4")
    [first, other] = filled.accumulator.take()
    assert (first.partition, other.partition) == (A, B)
    assert filled.taken() == {}
    assert filled.accumulator.next_due_in_ms() is None
    filled.accumulator.finish(first)
    assert filled.taken() == {A: [b"2"]}


def test_a_batch_that_is_taken_gets_no_more_records():
    filled = Filled(linger_ms=0)
    filled.add(A, b"1")
    [batch] = filled.accumulator.take()
    assert filled.add(A, b"2") == [True]
    assert [record.value for record in batch.records] == [b"1"]


def test_put_back_keeps_the_order_and_waits():
    filled = Filled(linger_ms=0, batch_size=150)
    filled.add(A, b"1", b"2")
    [batch] = filled.accumulator.take()
    filled.accumulator.put_back(batch, filled.clock.monotonic_ms() + 50)
    assert filled.taken() == {}
    assert filled.accumulator.next_due_in_ms() == 50
    filled.clock.advance(50)
    assert filled.accumulator.take() == [batch]


def test_flush_takes_what_lingers():
    filled = Filled(linger_ms=1000)
    filled.add(A, b"1")
    filled.add(B, b"2")
    assert len(filled.accumulator.begin_flush()) == 2
    assert filled.taken() == {A: [b"1"], B: [b"2"]}
    filled.accumulator.end_flush()
    filled.add(A, b"3")
    assert filled.accumulator.next_due_in_ms() is None, "its predecessor is on its way"


def test_split_keeps_order_and_account():
    filled = Filled(linger_ms=0)
    records = [Record(0, 0, b"k", b"%d" % at) for at in range(5)]
    batch = filled.accumulator.append_batch(A, records, 5 * estimated_size(b"k", b"0", ()))
    filled.add(A, b"later")
    assert filled.accumulator.take() == [batch]
    filled.accumulator.split(batch)
    taken = []
    while batches := filled.accumulator.take():
        taken += [record.value for record in batches[0].records]
        filled.accumulator.finish(batches[0])
    assert taken == [b"0", b"1", b"2", b"3", b"4", b"later"]
    assert filled.accumulator._used_bytes == 0


def test_a_batch_of_its_own_closes_the_one_before():
    filled = Filled(linger_ms=1000)
    filled.add(A, b"1")
    filled.accumulator.append_batch(A, [Record(0, 0, None, b"2")], 50)
    assert filled.taken() == {A: [b"1"]}


def test_used_up_memory_makes_the_caller_wait_until_it_is_acknowledged():
    filled = Filled(linger_ms=10_000, buffer_memory=250)
    filled.add(A, b"1", b"2")
    waiting = threading.Thread(target=filled.add, args=(A, b"3"))
    waiting.start()
    wait_until(lambda: filled.accumulator._waiting_for_space, "the caller to wait")
    [batch] = filled.accumulator.take()
    filled.accumulator.finish(batch)
    waiting.join(10)
    assert not waiting.is_alive()
    filled.clock.advance(10_000)
    assert filled.taken() == {A: [b"3"]}


def test_used_up_memory_is_an_error_after_a_while():
    filled = Filled(linger_ms=0, buffer_memory=250, max_block_ms=20)
    filled.add(A, b"1", b"2")
    with pytest.raises(ClientTimeoutError, match="buffer_memory of 250 bytes was full for 20 ms"):
        filled.add(A, b"3")


@pytest.mark.parametrize("key", [None, b"", b"k" * 100])
@pytest.mark.parametrize("value", [None, b"v" * 70_000])
@pytest.mark.parametrize("headers", [(), (("ü" * 50, b"x" * 300), ("", None)) * 20])
def test_estimates_are_never_too_small(key, value, headers):
    empty = len(encode_batch([Record(0, 0, None, None)])) - 7
    record = Record(0, 2**40, key, value, headers)
    encoded = len(encode_batch([Record(0, 0, None, None), record])) - empty - 7
    assert encoded <= estimated_size(key, value, headers)
