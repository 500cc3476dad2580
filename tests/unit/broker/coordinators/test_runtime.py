"""The runtime with a kind of its own: a counter per key, which asks other brokers and knows of transactions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from ottla.broker.coordinators.runtime import STEPS_PER_SLICE, CoordinatorRuntime, SteadyClock
from ottla.broker.coordinators.shard import ShardState, UnreadableRecord
from ottla.env.clock import SystemClock
from ottla.records.batch import split_batches
from ottla.records.compression import Compression
from ottla.records.control import ControlRecordType, TransactionMarker, end_transaction_record
from ottla.records.record import Record, decode_batch, encode_batch
from ottla.sim.virtual_loop import run_in_virtual_time
from ottla.wire.broker_requests import BrokerOutcome, BrokerRequest
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.api_versions import ApiVersionsRequest
from support.waiting import wait_until
from unit.broker.coordinators.group_fakes import FakeLog

TOPIC = "__counters"


@dataclass
class CountBatch:
    records: Sequence[str]
    producer_id: int = -1
    producer_epoch: int = -1


@dataclass
class CountReply:
    token: object
    result: Any


@dataclass
class CountStep:
    batches: list[CountBatch | TransactionMarker] = field(default_factory=list)
    replies: list[CountReply] = field(default_factory=list)
    requests: list[BrokerRequest] = field(default_factory=list)


class CountShard:
    """Counts by key. Its story is what it was called with."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.loading = True
        self.counts: dict[str, int] = {}
        self.story: list[Any] = []
        #: The leader epochs that it was told.
        self.epochs: list[int] = []
        self.unloaded = 0
        self.high_watermark = 0

    def count(self, key: str, token: object, ask: bool = False) -> CountStep:
        step = CountStep([CountBatch([key])], [CountReply(token, key)])
        if ask:
            step.requests.append(BrokerRequest(18, ("t", 0), ApiVersionsRequest(), key))
        return step

    def append_failed(self, step: CountStep, error: ErrorCode, now_ms: int) -> CountStep:
        self.story.append(error)
        return CountStep([], [CountReply(reply.token, error) for reply in step.replies])

    def request_done(self, outcome: BrokerOutcome, now_ms: int) -> CountStep:
        self.story.append((outcome.token, outcome.error))
        return CountStep([CountBatch([f"{outcome.token} answered"])])

    def settle(self, step: CountStep) -> None:
        pass

    def next_deadline_ms(self) -> int | None:
        return None

    def expire(self, now_ms: int) -> CountStep | None:
        return None

    def replay(self, record: str, log_offset: int, producer_id: int = -1) -> None:
        self.counts[record] = self.counts.get(record, 0) + 1

    def replay_marker(self, marker: TransactionMarker, log_offset: int) -> None:
        self.story.append((marker, log_offset))

    def committed(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark

    def lead(self, coordinator_epoch: int, now_ms: int) -> Iterator[CountStep]:
        self.epochs.append(coordinator_epoch)
        return iter(()) if self.loading else iter([CountStep()])

    def loaded(self, now_ms: int) -> Iterator[CountStep]:
        yield CountStep()
        self.loading = False

    def unload(self, now_ms: int) -> Iterator[CountStep]:
        for _ in self.counts:
            self.unloaded += 1
            yield CountStep()


class CountKind:
    topic = TOPIC
    log = logging.getLogger("ottla.counters")

    def __init__(self) -> None:
        self.states: list[ShardState] = []
        #: Steps carried out.
        self.carried = 0

    def new_shard(self, partition: int) -> CountShard:
        return CountShard(partition)

    def encode(self, record: str) -> tuple[bytes, bytes | None]:
        return record.encode(), b"1"

    def decode(self, key: bytes | None, value: bytes | None) -> str | UnreadableRecord:
        return (key or b"").decode()

    def failed_result(self, result: Any, error: ErrorCode) -> Any:
        return error

    def carried_out(self, shard: CountShard, step: CountStep) -> None:
        self.carried += 1

    def unloaded(self, step: CountStep) -> None:
        pass

    def state_changed(self, partition: int, before: ShardState, now: ShardState) -> None:
        self.states.append(now)


class SentRequests(list[tuple[BrokerRequest, Callable[[BrokerOutcome], None]]]):
    """What was sent to other brokers, with whom to tell of the answer."""

    def send(self, request: BrokerRequest, done: Callable[[BrokerOutcome], None]) -> None:
        self.append((request, done))


class Counters:
    def __init__(self, log: FakeLog | None = None, commit_timeout_ms: int = 60_000) -> None:
        self.log = log or FakeLog()
        self.kind = CountKind()
        self.sent = SentRequests()
        self.answers: list[Any] = []
        self.runtime: CoordinatorRuntime[CountShard, CountStep] = CoordinatorRuntime(
            self.kind, self.log, SteadyClock(SystemClock()), Compression.NONE, commit_timeout_ms, self.sent
        )

    def lead(self, leader_epoch: int, partition: int = 0) -> CountShard:
        """The log and the coordinator hear that this broker leads."""
        self.log.epochs[TOPIC, partition] = leader_epoch
        self.runtime.load(partition, leader_epoch)
        return self.runtime.shards[partition]

    def add(self, answer: Any) -> None:
        self.answers.append(answer)

    def count(self, key: str, ask: bool = False) -> None:
        shard = self.runtime.shards[0]
        self.runtime.carry_out(shard, shard.count(key, self.add, ask))


def run(
    test: Callable[[Counters], Coroutine[Any, Any, None]], log: FakeLog | None = None, commit_timeout_ms: int = 60_000
) -> None:
    async def with_stop() -> None:
        counters = Counters(log, commit_timeout_ms)
        try:
            await test(counters)
        finally:
            await counters.runtime.stop()

    asyncio.run(with_stop())


def test_an_older_epoch_never_undoes_a_newer():
    async def test(counters: Counters) -> None:
        runtime = counters.runtime
        shard = counters.lead(5)
        runtime.unload(0, 4)
        assert runtime.is_hosted(shard), "the news of the leader before"
        runtime.load(0, 4)
        counters.count("a")
        assert counters.answers == ["a"], "it still leads in epoch 5"
        runtime.unload(0, 6)
        assert not runtime.is_hosted(shard)
        runtime.load(0, 5)
        assert runtime.shards == {}, "another broker leads since epoch 6"
        assert counters.lead(7) is not shard

    run(test)


def test_a_shard_hears_of_each_leader_epoch_before_it_is_loaded_and_when_it_continues():
    async def test(counters: Counters) -> None:
        shard = counters.lead(5)
        assert shard.epochs == [5]
        carried_out = counters.kind.carried
        assert counters.lead(5) is counters.lead(6) is shard
        await asyncio.sleep(0)  # sleep: the steps of the newer epoch are carried out in the background
        assert (shard.epochs, counters.kind.carried) == ([5, 6], carried_out + 1)

    run(test)


def test_a_newer_epoch_of_the_same_leader_keeps_the_shard():
    async def test(counters: Counters) -> None:
        shard = counters.lead(5)
        counters.count("a")
        assert counters.lead(6) is shard
        counters.count("b")
        assert counters.answers == ["a", "b"]

    run(test)


@pytest.mark.spec("G11")
def test_a_newer_epoch_ends_waiting_replies_and_loses_nothing_that_was_appended():
    async def test(counters: Counters) -> None:
        shard = counters.lead(5)
        counters.log.follows = False
        counters.count("a", ask=True)
        counters.log.commit(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert counters.answers == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert (shard.high_watermark, counters.sent) == (0, [])
        assert counters.lead(6) is shard
        counters.log.commit()
        assert (shard.counts, shard.high_watermark, len(counters.answers)) == ({"a": 1}, 1, 1)
        assert [request.token for request, _ in counters.sent] == ["a"], "what was decided is carried out"

    run(test)


def test_a_reply_that_timed_out_undoes_nothing():
    async def test(counters: Counters) -> None:
        shard = counters.lead(5)
        counters.log.follows = False
        counters.count("a")
        await asyncio.to_thread(wait_until, lambda: counters.answers, "the commit timeout")
        assert (counters.answers, shard.counts, shard.story) == ([ErrorCode.REQUEST_TIMED_OUT], {"a": 1}, [])
        counters.log.commit()
        assert (shard.high_watermark, len(counters.answers)) == (1, 1)

    run(test, commit_timeout_ms=20)


def test_a_shard_learns_that_its_records_are_committed_though_nobody_waits_for_an_answer():
    async def test(counters: Counters) -> None:
        shard = counters.lead(5)
        counters.log.follows = counters.log.has_enough = False
        counters.runtime.carry_out(shard, CountStep([CountBatch(["a"])]))
        assert shard.high_watermark == 0
        counters.log.commit()
        assert shard.high_watermark == 1

    run(test)


def test_replies_come_in_the_order_of_the_log_as_far_as_it_is_committed():
    async def test(counters: Counters) -> None:
        counters.lead(5)
        counters.log.follows = False
        for key in "abc":
            counters.count(key)
        ((_, offset, done),) = counters.log.waiting
        assert offset == 0
        counters.log.committed[TOPIC, 0] = 2
        counters.log.waiting.clear()
        done(ErrorCode.NONE)
        assert counters.answers == ["a", "b"]
        counters.log.commit()
        assert counters.answers == ["a", "b", "c"]

    run(test)


def test_what_is_waited_for_is_not_appended_without_enough_replicas():
    async def test(counters: Counters) -> None:
        shard = counters.lead(5)
        counters.log.has_enough = False
        counters.count("a")
        assert counters.answers == [ErrorCode.NOT_ENOUGH_REPLICAS]
        assert (shard.counts, counters.log.batches) == ({}, {})

    run(test)


def test_an_append_in_another_epoch_than_the_logs_is_refused():
    async def test(counters: Counters) -> None:
        shard = counters.lead(5)
        counters.log.epochs[TOPIC, 0] = 6
        counters.count("a")
        assert counters.answers == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert (shard.counts, counters.log.batches) == ({}, {})

    run(test)


def test_a_removed_replica_is_unloaded_in_whatever_epoch_and_may_begin_anew():
    async def test(counters: Counters) -> None:
        counters.lead(5)
        counters.runtime.unload(0, None)
        assert counters.runtime.shards == {}
        counters.lead(0)
        counters.count("a")
        assert counters.answers == ["a"]
        assert counters.kind.states == [ShardState.ACTIVE, ShardState.ABSENT, ShardState.ACTIVE]

    run(test)


def test_many_are_unloaded_in_slices():
    async def test(counters: Counters) -> None:
        shard = counters.lead(5)
        shard.counts = dict.fromkeys(map(str, range(2 * STEPS_PER_SLICE + 1)), 1)
        counters.runtime.unload(0, 6)
        assert not counters.runtime.is_hosted(shard)
        assert shard.unloaded == STEPS_PER_SLICE
        for turns in range(1, 4):
            await asyncio.sleep(0)
            assert shard.unloaded == min((turns + 1) * STEPS_PER_SLICE, len(shard.counts))

    run(test)


@pytest.mark.spec("G11")
def test_a_load_ends_where_the_partition_moves_on_and_the_next_reads_all_again():
    log = FakeLog()
    for number in range(5_000):
        batch = bytearray(encode_batch([Record(0, 1, b"%d" % (number % 7), b"1")]))
        log.append(TOPIC, 0, batch, None, needs_replicas=False)

    async def test(counters: Counters) -> None:
        first = counters.lead(0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert counters.runtime.loading
        counters.runtime.unload(0, 1)
        second = counters.lead(2)
        await asyncio.to_thread(wait_until, lambda: not counters.runtime.loading, "the load")
        assert second is not first
        assert (sum(second.counts.values()), counters.runtime.metrics.loaded_records) == (5_000, 5_000)
        assert sum(first.counts.values()) < 5_000
        assert first.loading

    run(test, log)


@pytest.mark.parametrize("leader_epoch", [6, None])
def test_unloading_ends_what_waits_for_the_high_watermark(leader_epoch: int | None):
    async def test(counters: Counters) -> None:
        counters.lead(5)
        counters.log.follows = False
        counters.count("a", ask=True)
        assert counters.answers == []
        counters.runtime.unload(0, leader_epoch)
        assert counters.answers == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        again = counters.lead(7)
        counters.log.commit()
        assert (counters.answers, counters.sent) == ([ErrorCode.NOT_LEADER_OR_FOLLOWER], [])
        assert again.story == []

    run(test)


def test_requests_go_out_when_their_step_is_committed_and_their_outcomes_come_back_as_events():
    async def test(counters: Counters) -> None:
        shard = counters.lead(5)
        counters.log.follows = False
        counters.count("prepare", ask=True)
        assert counters.sent == []
        counters.log.commit()
        ((request, done),) = counters.sent
        assert (request.destination, request.token, shard.high_watermark) == (("t", 0), "prepare", 1)
        done(BrokerOutcome(request.token, ErrorCode.REQUEST_TIMED_OUT))
        assert shard.story == [("prepare", ErrorCode.REQUEST_TIMED_OUT)]
        assert shard.counts == {"prepare": 1, "prepare answered": 1}

    run(test)


def test_an_outcome_for_a_shard_that_is_gone_is_dropped():
    async def test(counters: Counters) -> None:
        shard = counters.lead(5)
        counters.count("prepare", ask=True)
        ((request, done),) = counters.sent
        counters.runtime.unload(0, 6)
        done(BrokerOutcome(request.token, ErrorCode.NONE))
        assert shard.story == []
        assert len(counters.log.batches[TOPIC, 0]) == 1

    run(test)


def test_loading_replays_markers_and_counts_everything_as_committed():
    log = FakeLog()
    log.follows = False
    transactional = {"producer_id": 9, "producer_epoch": 3, "is_transactional": True}
    log.append(
        TOPIC,
        0,
        bytearray(encode_batch([Record(0, 1, b"a", b"1")], base_sequence=0, **transactional)),
        None,
        needs_replicas=False,
    )
    for kind in (ControlRecordType.ABORT, ControlRecordType.COMMIT, ControlRecordType.LEADER_CHANGE):
        marker = Record(0, 1, *end_transaction_record(kind, 7))
        log.append(
            TOPIC, 0, bytearray(encode_batch([marker], is_control=True, **transactional)), None, needs_replicas=False
        )

    async def test(counters: Counters) -> None:
        shard = counters.lead(0)
        assert counters.runtime.loading
        await asyncio.to_thread(wait_until, lambda: not counters.runtime.loading, "the load")
        assert shard.story == [(TransactionMarker(9, 3, 7, False), 1), (TransactionMarker(9, 3, 7, True), 2)]
        assert (shard.counts, shard.high_watermark, log.high_watermark(TOPIC, 0)) == ({"a": 1}, 4, 0)
        assert counters.kind.states == [ShardState.LOADING, ShardState.ACTIVE]

    run(test, log)


def test_after_loading_replies_and_requests_wait_until_the_loaded_records_are_committed():
    log = FakeLog()
    log.follows = False
    log.append(TOPIC, 0, bytearray(encode_batch([Record(0, 1, b"a", b"1")])), None, needs_replicas=False)

    async def test(counters: Counters) -> None:
        shard = counters.lead(0)
        await asyncio.to_thread(wait_until, lambda: not counters.runtime.loading, "the load")
        step = CountStep(replies=[CountReply(counters.add, "a")])
        step.requests.append(BrokerRequest(18, ("t", 0), ApiVersionsRequest(), "a"))
        counters.runtime.carry_out(shard, step)
        assert (counters.answers, counters.sent) == ([], [])
        log.commit()
        assert (counters.answers, len(counters.sent)) == (["a"], 1)

    run(test, log)


COMMIT = TransactionMarker(9, 3, 7, True)
ABORT = TransactionMarker(9, 4, 7, False)


def test_the_markers_of_a_step_are_appended_and_replayed_in_its_order():
    async def test(counters: Counters) -> None:
        shard = counters.lead(5)
        counters.log.follows = False
        step = CountStep([CountBatch(["a"], 9, 3), COMMIT, CountBatch(["b", "c"])], [CountReply(counters.add, "done")])
        counters.runtime.carry_out(shard, step)
        assert (shard.story, counters.answers) == ([(COMMIT, 1)], [])
        assert shard.counts == {"a": 1, "b": 1, "c": 1}
        counters.log.commit()
        assert (counters.answers, shard.high_watermark) == (["done"], 4)

    run(test)


def test_a_marker_from_elsewhere_reaches_its_shard_at_once_and_is_answered_when_it_is_committed():
    async def test(counters: Counters) -> None:
        shard = counters.lead(5)
        counters.log.follows = False
        counters.runtime.append_marker(0, COMMIT, 30_000, counters.add)
        counters.runtime.append_marker(0, ABORT, 30_000, counters.add)
        assert (shard.story, shard.high_watermark, counters.answers) == ([(COMMIT, 0), (ABORT, 1)], 0, [])
        counters.log.commit()
        assert (shard.high_watermark, counters.answers) == (2, [ErrorCode.NONE] * 2)
        for data, is_commit in zip(counters.log.batches[TOPIC, 0], (True, False), strict=True):
            (header,) = split_batches(data)
            (record,) = decode_batch(data, header)
            assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
            assert record.key == bytes([0, 0, 0, is_commit]), "version and type"
            assert record.value == bytes([0, 0, 0, 0, 0, 7]), "version and coordinator epoch"

    run(test)


def test_a_new_leader_replays_the_markers_that_the_former_one_appended():
    log = FakeLog()
    told: list[Any] = []

    async def before(counters: Counters) -> None:
        shard = counters.lead(0)
        for marker in (COMMIT, ABORT):
            counters.runtime.append_marker(0, marker, 30_000, counters.add)
        told.extend(shard.story)
        assert counters.answers == [ErrorCode.NONE] * 2

    async def after(counters: Counters) -> None:
        shard = counters.lead(0)
        await asyncio.to_thread(wait_until, lambda: not counters.runtime.loading, "the load")
        assert shard.story == told == [(COMMIT, 0), (ABORT, 1)]

    run(before, log)
    run(after, log)


def test_a_marker_is_refused_while_the_partition_is_not_served_here():
    log = FakeLog()
    log.append(TOPIC, 0, bytearray(encode_batch([Record(0, 1, b"a", b"1")])), None, needs_replicas=False)

    async def test(counters: Counters) -> None:
        counters.runtime.append_marker(0, COMMIT, 30_000, counters.add)
        shard = counters.lead(0)
        assert shard.loading
        counters.runtime.append_marker(0, COMMIT, 30_000, counters.add)
        assert counters.answers == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
        assert (shard.story, len(log.batches[TOPIC, 0])) == ([], 1)

    run(test, log)


def test_a_marker_that_cannot_be_appended_is_answered_with_the_error_of_the_log():
    async def test(counters: Counters) -> None:
        shard = counters.lead(5)
        counters.log.has_enough = False
        counters.runtime.append_marker(0, COMMIT, 30_000, counters.add)
        counters.log.error = ErrorCode.TRANSACTION_COORDINATOR_FENCED
        counters.runtime.append_marker(0, COMMIT, 30_000, counters.add)
        assert counters.answers == [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.TRANSACTION_COORDINATOR_FENCED]
        assert (shard.story, counters.runtime.metrics.append_failures) == ([], 2)

    run(test)


def test_a_marker_that_is_not_committed_in_time_or_whose_leader_resigns_is_answered_with_an_error():
    async def scenario() -> None:
        counters = Counters()
        shard = counters.lead(5)
        counters.log.follows = False
        loop = asyncio.get_running_loop()
        begun = loop.time()
        counters.runtime.append_marker(0, COMMIT, 30_000, counters.add)
        counters.runtime.append_marker(0, ABORT, 90_000, counters.add)
        await asyncio.sleep(60)  # sleep: virtual
        assert (counters.answers, loop.time() - begun) == ([ErrorCode.REQUEST_TIMED_OUT], 60)
        counters.runtime.unload(0, 6)
        assert counters.answers == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert [marker for marker, _ in shard.story] == [COMMIT, ABORT], "nothing is undone"
        await counters.runtime.stop()

    run_in_virtual_time(scenario())
