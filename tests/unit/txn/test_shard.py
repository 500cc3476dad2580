"""A partition of transactional ids: what it shows, and that the coordinators' runtime can host it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from ottla.broker.coordinators.runtime import CoordinatorRuntime, SteadyClock
from ottla.broker.coordinators.shard import RequestingShard, ShardState, UnreadableRecord
from ottla.env.clock import SystemClock
from ottla.records.compression import Compression
from ottla.txn.events import AddPartitionsToTxn, EndTxn, InitProducerId, TransactionStep, TransactionView
from ottla.txn.failures import failed_result
from ottla.txn.machine import TransactionLimits
from ottla.txn.records import TransactionRecord, decode_record, encode_record
from ottla.txn.shard import TransactionShard
from ottla.txn.states import TransactionState
from ottla.wire.broker_requests import BrokerOutcome, BrokerRequest
from ottla.wire.errors import ErrorCode
from support.transaction_world import FIRST_PRODUCER_ID as FIRST
from support.transaction_world import ID, T0, T1, TIMEOUT_MS, World, marker_response
from support.waiting import wait_until
from unit.broker.coordinators.group_fakes import FakeLog

pytestmark = pytest.mark.spec("X1")

TOPIC = "__transaction_state"
NONE = ErrorCode.NONE


def test_what_administrators_see():
    world = World()
    world.init()
    world.add(T0, T1)
    begun_ms = world.now_ms
    shown = TransactionView(ID, TransactionState.ONGOING, FIRST, 0, TIMEOUT_MS, begun_ms, frozenset({T0, T1}))
    assert world.shard.describe(ID) == shown
    world.end()
    world.write_marker(T1)
    assert world.shard.describe(ID) == shown._replace(state=TransactionState.PREPARE_COMMIT, partitions=frozenset({T0}))
    world.write_marker(T0)
    assert world.shard.describe(ID) == shown._replace(state=TransactionState.COMPLETE_COMMIT, partitions=frozenset())
    assert world.shard.describe("other") is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert world.shard.describe("") is ErrorCode.INVALID_REQUEST


def test_the_list_is_filtered_as_apache_kafka_does():
    world = World()
    world.put(TransactionState.ONGOING)
    world.init("idle")
    world.advance(1_000)
    world.init("fresh")

    def listed(**filters: Any) -> set[str]:
        return {view.transactional_id for view in world.shard.list(world.now_ms, **filters)}

    assert listed() == {ID, "idle", "fresh"}
    assert listed(producer_ids={FIRST}) == {ID}
    assert listed(producer_ids={FIRST + 1, FIRST + 2}) == {"idle", "fresh"}
    assert listed(states={TransactionState.EMPTY}) == {"idle", "fresh"}
    assert listed(states=()) == set(), "names of states that do not exist leave nothing"
    assert listed(longer_than_ms=999, states={TransactionState.ONGOING}) == {ID}
    assert listed(longer_than_ms=1_000) == {"idle", "fresh"}


def test_it_loads_and_then_serves():
    world = World()
    world.put(TransactionState.PREPARE_COMMIT)
    shard = world.restored()
    assert shard.loading
    steps = list(shard.loaded(world.now_ms))
    assert [len(step.requests) for step in steps] == [1]
    assert not shard.loading
    assert list(shard.unload(world.now_ms)) == []


def test_markers_sent_while_it_loads_are_sent_again_in_a_newer_epoch_that_begins_meanwhile():
    world = World()
    world.put(TransactionState.PREPARE_COMMIT)
    shard = world.restored()
    sent = []
    for step in shard.loaded(world.now_ms):
        sent += [request.token.coordinator_epoch for request in step.requests]
        assert list(shard.lead(9, world.now_ms)) == []
    assert sent[1:] == [9]
    assert not shard.loading


def test_an_outcome_for_an_id_that_is_gone_is_ignored():
    world = World()
    world.put(TransactionState.PREPARE_COMMIT)
    request = world.asked[0]
    empty = TransactionShard(0, TransactionLimits(), lambda: None)
    assert empty.request_done(BrokerOutcome(request.token, NONE), 0) == TransactionStep(ID)


class TransactionsHere:
    """The kind of coordinator, as small as it can be."""

    topic = TOPIC
    log = logging.getLogger("ottla.transactions")

    def __init__(self) -> None:
        self.ids = count(FIRST)

    def new_shard(self, partition: int) -> TransactionShard:
        return TransactionShard(partition, TransactionLimits(), lambda: next(self.ids))

    def encode(self, record: TransactionRecord) -> tuple[bytes, bytes | None]:
        return encode_record(record, 0)

    def decode(self, key: bytes | None, value: bytes | None) -> TransactionRecord | UnreadableRecord:
        return decode_record(key, value)

    def failed_result(self, result: Any, error: ErrorCode) -> Any:
        return failed_result(result, error)

    def carried_out(self, shard: TransactionShard, step: TransactionStep) -> None:
        pass

    def unloaded(self, step: TransactionStep) -> None:
        pass

    def state_changed(self, partition: int, before: ShardState, now: ShardState) -> None:
        pass


class SentMarkers(list[tuple[BrokerRequest, Callable[[BrokerOutcome], None]]]):
    """Requests to leaders, with the callbacks for their outcomes."""

    def send(self, request: BrokerRequest, done: Callable[[BrokerOutcome], None]) -> None:
        self.append((request, done))


class HostedShard:
    """A shard in the runtime of coordinators, over a log in memory."""

    def __init__(self, log: FakeLog) -> None:
        self.answers: list[Any] = []
        self.sent = SentMarkers()
        self.clock = SteadyClock(SystemClock())
        kind = TransactionsHere()
        self.runtime: CoordinatorRuntime[TransactionShard, TransactionStep] = CoordinatorRuntime(
            kind, log, self.clock, Compression.NONE, 60_000, self.sent
        )
        self.runtime.load(0, 0)
        self.shard = self.runtime.shards[0]

    def ask(self, event: Any) -> None:
        event.token = self.answers.append
        self.runtime.carry_out(self.shard, self.shard.handle(event, self.clock.now_ms()))


def test_the_runtime_hosts_it():
    """Decisions are committed before markers are sent; another coordinator completes what this one began."""
    log = FakeLog()

    async def begin() -> None:
        hosted = HostedShard(log)
        assert isinstance(hosted.shard, RequestingShard)
        hosted.ask(InitProducerId(None, ID, TIMEOUT_MS))
        hosted.ask(AddPartitionsToTxn(None, ID, FIRST, 0, [T0]))
        log.follows = False
        hosted.ask(EndTxn(None, ID, FIRST, 0, is_commit=True))
        assert (len(hosted.answers), hosted.sent) == (2, [])
        log.commit()
        assert [answer.error for answer in hosted.answers] == [NONE] * 3
        assert [request.destination for request, _ in hosted.sent] == [T0]
        await hosted.runtime.stop()

    async def complete() -> None:
        log.follows = True
        hosted = HostedShard(log)
        await asyncio.to_thread(wait_until, lambda: hosted.sent, "the marker, sent again")
        ((request, done),) = hosted.sent
        done(BrokerOutcome(request.token, NONE, marker_response(T0, NONE)))
        view = hosted.shard.describe(ID)
        assert isinstance(view, TransactionView)
        assert view.state is TransactionState.COMPLETE_COMMIT
        await hosted.runtime.stop()

    asyncio.run(begin())
    asyncio.run(complete())
