"""What is handed out of fetches, and when positions move."""

from __future__ import annotations

import sys

import pytest

from ottla.client.consumer.completed_fetch import CompletedFetch, Decoding
from ottla.client.consumer.fetch_buffer import FetchBuffer
from ottla.client.consumer.fetch_collector import FetchCollector
from ottla.client.consumer.subscription_state import FetchPosition, FetchState, OffsetReset, SubscriptionState
from ottla.client.errors import BrokerError
from ottla.client.model import TopicPartition
from ottla.records.record import Record, encode_batch
from ottla.wire.errors import ErrorCode

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)
OUT_OF_RANGE = BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE, "t-0 cannot be read")


class Bench:
    """Two partitions that are read from their beginning, and what was fetched of them."""

    def __init__(self, default_reset: OffsetReset) -> None:
        self.subscriptions = SubscriptionState(default_reset)
        self.subscriptions.assign_from_user([P, Q])
        for each in (P, Q):
            self.subscriptions.state(each).settle_at(FetchPosition(0))
        self.buffer = FetchBuffer(1 << 20)
        self.collector = FetchCollector(self.subscriptions, self.buffer)

    def fetched(
        self, partition: TopicPartition, first: int, data: bytes = b"", error: BrokerError | None = None
    ) -> None:
        state = self.subscriptions.state(partition)
        fetch = CompletedFetch(partition, state, state.seeks, first, memoryview(data), Decoding(), (), error)
        assert self.buffer.add(fetch)

    def collect(self) -> dict[TopicPartition, list[int]]:
        """Offsets that a call would hand out, if it were not interrupted."""
        self.moves: dict = {}
        gathered, self.moves, _, _ = self.collector.collect(1000, lambda fetch, most: counted(fetch.take(most)))
        return {partition: [record.offset for record in records] for partition, records in gathered.items()}

    def settle(self) -> None:
        for move in self.moves.values():
            move.settle()


def counted(records):
    return records, len(records)


def batch(first, count):
    return encode_batch([Record(0, 0, None, b"") for _ in range(count)], base_offset=first)


@pytest.mark.spec("C1")
@pytest.mark.parametrize("reset", [OffsetReset.LATEST, OffsetReset.EARLIEST])
def test_a_reset_passes_over_nothing_that_was_not_handed_out(reset):
    bench = Bench(reset)
    bench.fetched(P, 0, batch(0, 5))
    bench.fetched(P, 5, error=OUT_OF_RANGE)
    assert bench.collect() == {P: [0, 1, 2, 3, 4]}
    state = bench.subscriptions.state(P)
    assert state.position == FetchPosition(0)
    assert bench.collect() == {P: [0, 1, 2, 3, 4]}, "the first call was interrupted"
    bench.settle()
    assert state.position is not None
    assert state.position.offset == 5
    assert bench.collect() == {}
    assert (state.fetch_state, state.reset_strategy) == (FetchState.AWAIT_RESET, reset)


@pytest.mark.spec("C1")
def test_an_error_waits_until_what_is_before_it_is_handed_out_and_is_the_next_thing_then():
    bench = Bench(OffsetReset.NONE)
    bench.fetched(Q, 0, batch(0, 5))
    bench.fetched(P, 0, error=OUT_OF_RANGE)
    bench.fetched(Q, 5, batch(5, 5))
    assert bench.collect() == {Q: [0, 1, 2, 3, 4]}
    bench.settle()
    with pytest.raises(BrokerError, match="t-0"):
        bench.collect()
    assert bench.collect() == {Q: [5, 6, 7, 8, 9]}


def interrupted_at(step: int, call):
    """Call it, and interrupt it before its `step`-th instruction within the client; False if it has fewer."""
    left = step
    tracer = sys.gettrace()

    def trace(frame, event, argument):
        nonlocal left
        if "/ottla/client/" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(tracer)
    return False


def fetch_again(bench):
    """What was dropped is fetched again, from the position on."""
    at = bench.subscriptions.state(P).position.offset
    if at < 25 and not bench.buffer.fetches():
        bench.fetched(P, at, b"".join(batch(first, 5) for first in range(at // 5 * 5, 25, 5)))


@pytest.mark.slow
@pytest.mark.spec("C1")
@pytest.mark.parametrize("most", [3, 12, 100])
def test_a_call_that_is_interrupted_anywhere_skips_and_repeats_nothing(most):
    def collect(bench):
        gathered, moves, _, _ = bench.collector.collect(most, lambda fetch, most: counted(fetch.take(most)))
        return gathered, moves

    step = 0
    is_interrupted = True
    while is_interrupted:
        step += 1
        bench = Bench(OffsetReset.EARLIEST)
        bench.fetched(P, 0, batch(0, 10) + batch(10, 10))
        bench.fetched(P, 20, batch(20, 5))
        collect(bench)  # of a call that was interrupted later: its records are to be handed out again
        is_interrupted = interrupted_at(step, lambda bench=bench: collect(bench))
        seen = []
        for _ in range(40):
            fetch_again(bench)
            gathered, moves = collect(bench)
            seen += [record.offset for record in gathered.get(P, ())]
            for move in moves.values():
                move.settle()
        assert seen == list(range(25)), f"interrupted before instruction {step}"
    assert step > 100
