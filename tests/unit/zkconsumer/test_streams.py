from __future__ import annotations

import asyncio
import itertools
import sys
import threading
import time

import pytest

from ottla.assign.threads import ConsumerThread
from ottla.client.consumer.completed_fetch import CompletedFetch, Decoding
from ottla.client.consumer.subscription_state import PartitionState
from ottla.client.errors import CorruptBatchError, SerializationError
from ottla.client.model import TopicPartition
from ottla.records.batch import CRC_AT
from ottla.records.control import ControlRecordType, end_transaction_record
from ottla.records.record import Record, encode_batch
from ottla.zkconsumer import chunk_queue
from ottla.zkconsumer.chunk_queue import ChunkQueue, FetchedDataChunk
from ottla.zkconsumer.partition_info import PartitionTopicInfo
from ottla.zkconsumer.streams import ConsumerTimeoutError, Decoders, KafkaStream
from support.waiting import wait_until

pytestmark = pytest.mark.spec("Z4")

ZKCONSUMER = ("ottla.zkconsumer.chunk_queue", "ottla.zkconsumer.streams")


def batch(first, count):
    records = [Record(0, 1000 + at, b"k%d" % at, b"%d" % at) for at in range(first, first + count)]
    return encode_batch(records, base_offset=first)


def marker(offset):
    key, value = end_transaction_record(ControlRecordType.COMMIT, 0)
    options = {"producer_id": 1, "producer_epoch": 0, "is_transactional": True, "is_control": True}
    return encode_batch([Record(0, 0, key, value)], base_offset=offset, **options)


def stream_of(timeout_ms=0, max_chunks=2, decoders=None):
    queue = ChunkQueue(max_chunks)
    return queue, KafkaStream(queue, decoders or Decoders(), timeout_ms, "c")


def info_of(queue, partition=0, offset=0):
    return PartitionTopicInfo(TopicPartition("t", partition), ConsumerThread("c", 0), queue, offset)


def put(queue, info, data):
    fetch = CompletedFetch(info.partition, PartitionState(), 0, info.fetched_offset, memoryview(data), Decoding())
    queue.put(FetchedDataChunk(fetch, info))
    info.fetched_offset = fetch.end


def read(stream, count):
    iterator = iter(stream)
    return [next(iterator).offset for _ in range(count)]


def test_records_come_in_order_and_count_as_consumed_when_handed_out():
    queue, stream = stream_of()
    info = info_of(queue)
    put(queue, info, batch(0, 2) + batch(2, 2))
    assert (info.consumed_offset, info.fetched_offset) == (0, 4)
    assert read(stream, 3) == [0, 1, 2]
    assert info.consumed_offset == 3
    assert read(stream, 1) == [3]
    put(queue, info, batch(4, 1))
    record = next(iter(stream))
    assert (record.topic, record.partition, record.offset) == ("t", 0, 4)
    assert (record.key, record.value, record.message, record.timestamp) == (b"k4", b"4", b"4", 1004)


def test_one_queue_serves_several_partitions():
    queue, stream = stream_of()
    first, second = info_of(queue, 0), info_of(queue, 1, offset=5)
    put(queue, first, batch(0, 2))
    put(queue, second, batch(5, 1))
    found = [next(iter(stream)) for _ in range(3)]
    assert [(each.partition, each.offset) for each in found] == [(0, 0), (0, 1), (1, 5)]
    assert (first.consumed_offset, second.consumed_offset) == (2, 6)


def test_a_stream_that_waited_in_vain_can_be_read_on():
    queue, stream = stream_of(timeout_ms=1)
    info = info_of(queue)
    for _ in range(2):
        with pytest.raises(ConsumerTimeoutError, match=r"consumer\.timeout\.ms"):
            next(iter(stream))
    put(queue, info, batch(0, 1))
    assert read(stream, 1) == [0]


def test_records_before_the_offset_are_not_handed_out():
    queue, stream = stream_of()
    info = info_of(queue, offset=2)
    put(queue, info, batch(0, 4))
    assert read(stream, 2) == [2, 3]


def test_a_reader_waits_for_records_and_for_the_end():
    queue, stream = stream_of(timeout_ms=-1)
    info = info_of(queue)
    found = []
    reader = threading.Thread(target=lambda: found.extend(each.offset for each in stream))
    reader.start()
    put(queue, info, batch(0, 2))
    wait_until(lambda: found == [0, 1], "records are read")
    asyncio.run(queue.end())
    reader.join(60)
    assert not reader.is_alive()
    with pytest.raises(StopIteration):
        next(iter(stream))


def test_a_wait_that_looks_for_signals_lasts_as_long_as_it_is_told_to(monkeypatch):
    monkeypatch.setattr(chunk_queue, "SIGNAL_POLL_S", 0.001)
    queue, stream = stream_of(timeout_ms=20)
    began = time.monotonic()
    with pytest.raises(ConsumerTimeoutError):
        next(iter(stream))
    assert time.monotonic() - began >= 0.02
    asyncio.run(queue.end())
    with pytest.raises(StopIteration):
        next(iter(stream))


def test_after_clear_nothing_of_before_is_handed_out():
    queue, stream = stream_of()
    info = info_of(queue)
    put(queue, info, batch(0, 3))
    put(queue, info, batch(3, 3))
    assert read(stream, 1) == [0]
    asyncio.run(queue.clear())
    with pytest.raises(ConsumerTimeoutError):
        next(iter(stream))
    assert info.consumed_offset == 1
    again = info_of(queue, offset=1)
    put(queue, again, batch(0, 3))
    assert read(stream, 1) == [1]


def test_the_end_drops_what_was_fetched_and_not_read():
    queue, stream = stream_of()
    info = info_of(queue)
    put(queue, info, batch(0, 3))
    assert read(stream, 1) == [0]
    asyncio.run(queue.end())
    assert list(stream) == []
    assert info.consumed_offset == 1
    put(queue, info, batch(3, 3))
    assert list(stream) == []


def test_a_queue_says_when_it_has_room_again():
    queue, stream = stream_of(max_chunks=2)
    told = []
    queue.on_room = lambda: told.append(queue.is_full)
    info = info_of(queue)
    for at in range(2):
        assert not queue.is_full
        put(queue, info, batch(at, 1))
    assert queue.is_full
    assert read(stream, 2) == [0, 1]
    assert told == [False]


def test_markers_are_passed_over():
    queue, stream = stream_of()
    info = info_of(queue)
    put(queue, info, batch(0, 1) + marker(1))
    assert read(stream, 1) == [0]
    with pytest.raises(ConsumerTimeoutError):
        next(iter(stream))
    assert info.consumed_offset == 2


def test_a_damaged_batch_is_reported_again_and_again():
    queue, stream = stream_of()
    info = info_of(queue)
    damaged = bytearray(batch(1, 1))
    damaged[CRC_AT] ^= 1
    put(queue, info, batch(0, 1) + damaged)
    assert read(stream, 1) == [0]
    for _ in range(2):
        with pytest.raises(CorruptBatchError, match=r"t-0 cannot be read on.*offset 1.*commit_offsets"):
            next(iter(stream))
    assert info.consumed_offset == 1


def test_decoders_are_called_when_key_or_value_are_asked_for():
    def fail(topic, headers, data):
        raise ValueError("no")

    queue, stream = stream_of(decoders=Decoders(lambda topic, headers, data: (topic, data), fail))
    put(queue, info_of(queue), batch(0, 2))
    first = next(iter(stream))
    assert first.key == ("t", b"k0")
    with pytest.raises(SerializationError, match="value of the record at offset 0 of t-0"):
        _ = first.value
    assert read(stream, 1) == [1]


def test_a_reader_that_stands_still_in_a_step_holds_up_nobody():
    queue, stream = stream_of()
    info = info_of(queue)
    put(queue, info, batch(0, 3))
    assert read(stream, 1) == [0]
    with queue.step:
        asyncio.run(queue.clear())
    put(queue, info_of(queue, offset=1), batch(1, 1))
    assert read(stream, 1) == [1]
    put(queue, info, batch(2, 1))
    with queue.step:
        asyncio.run(queue.end())
    assert list(stream) == []


@pytest.mark.spec("Z7")
@pytest.mark.parametrize("offset", [3, 50])
def test_an_offset_that_is_reset_while_records_wait(offset):
    """They count as consumed only when they are handed out; the consumed offset follows the records, also back."""
    queue, stream = stream_of()
    info = info_of(queue, offset=5)
    put(queue, info, batch(5, 2))
    info.reset(offset)
    assert (info.consumed_offset, info.fetched_offset) == (5, offset)
    put(queue, info, batch(offset, 2))
    assert read(stream, 2) == [5, 6]
    assert info.consumed_offset == 7
    assert read(stream, 1) == [offset]
    assert info.consumed_offset == offset + 1
    info = info_of(queue, offset=-1)
    info.reset(offset)
    assert (info.consumed_offset, info.fetched_offset) == (offset, offset)


def test_ctrl_c_in_the_middle_of_a_step_loses_no_record(monkeypatch):
    queue, stream = stream_of()
    info = info_of(queue)
    put(queue, info, batch(0, 2) + batch(2, 2))
    assert read(stream, 2) == [0, 1]
    whole = CompletedFetch.take

    def interrupted(self, most):
        whole(self, most)
        raise KeyboardInterrupt

    monkeypatch.setattr(CompletedFetch, "take", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(iter(stream))
    monkeypatch.undo()
    assert info.consumed_offset == 2
    assert read(stream, 2) == [2, 3]


@pytest.mark.parametrize("what", ["take", "begin", "began"])
def test_ctrl_c_at_any_instruction_between_the_queue_and_the_reader_loses_no_chunk(what):
    for place in itertools.count():
        queue, stream = stream_of()
        room = []
        queue.on_room = lambda room=room: room.append(1)
        info = info_of(queue)
        put(queue, info, batch(0, 2))
        put(queue, info, batch(2, 2))
        assert read(stream, 2) == [0, 1]
        events = itertools.count()

        def trace(frame, event, _, events=events, place=place):
            if frame.f_code.co_name != what or frame.f_globals["__name__"] not in ZKCONSUMER:
                return None
            frame.f_trace_opcodes = True
            if event == "opcode" and next(events) == place:
                raise KeyboardInterrupt
            return trace

        sys.settrace(trace)
        try:
            first = [next(iter(stream)).offset]
        except KeyboardInterrupt:
            first = []
        finally:
            sys.settrace(None)
        assert first + read(stream, 2 - len(first)) == [2, 3]
        assert info.consumed_offset == 4
        with pytest.raises(ConsumerTimeoutError):
            next(iter(stream))
        assert len(queue) == 0
        assert room
        if first:  # not interrupted: all instructions were tried
            assert place > 0
            break
