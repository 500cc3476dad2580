"""The evidence of rebalances where another broker leads its topic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.broker.coordinators import evidence
from ottla.broker.coordinators.evidence import QUEUE_LIMIT, SENT_AT_ONCE, EvidenceWriter
from ottla.groups.evidence import EVIDENCE_TOPIC, Evidence
from ottla.records.batch import split_batches
from ottla.records.record import decode_batch
from ottla.wire.broker_requests import BrokerOutcome, BrokerRequest
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from support.waiting import wait_until
from unit.broker.coordinators.group_fakes import FakeLog, FakeTopics


class Elsewhere:
    """The leader: takes what it is sent, or answers with the errors given, one after the other."""

    def __init__(self, *errors: ErrorCode) -> None:
        self.errors = list(errors)
        self.taken: list[str] = []
        self.largest = 0
        self.is_closed = False

    def send(self, request: BrokerRequest, done: Callable[[BrokerOutcome], None]) -> None:
        asyncio.get_running_loop().call_soon(self._work, request, done)

    def _work(self, request: BrokerRequest, done: Callable[[BrokerOutcome], None]) -> None:
        assert request.destination == (EVIDENCE_TOPIC, 0)
        assert isinstance(request.payload, ProduceRequest)
        error = self.errors.pop(0) if self.errors else ErrorCode.NONE
        if error is ErrorCode.NETWORK_EXCEPTION:
            done(BrokerOutcome(request.token, error))
            return
        if error is ErrorCode.NONE:
            batch = request.payload.topic_data[0].partition_data[0].records
            for header in split_batches(batch):
                records = decode_batch(batch, header)
                self.largest = max(self.largest, len(records))
                self.taken += [(record.key or b"").decode() for record in records]
        answer = PartitionProduceResponse(index=0, error_code=error, base_offset=0)
        response = ProduceResponse(responses=[TopicProduceResponse(name="", partition_responses=[answer])])
        done(BrokerOutcome(request.token, ErrorCode.NONE, response))

    def close(self) -> None:
        self.is_closed = True


def note(group: str) -> Evidence:
    value: dict[str, Any] = dict.fromkeys(("generation", "duration_ms", "member_count", "moved_count"), 0)
    return Evidence(group, 1, value | {"causes": [], "outcome": "stable"})


def run(leader: Elsewhere, test: Callable[[EvidenceWriter, FakeLog], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        log = FakeLog()
        topics = FakeTopics([], log)
        topics.put(EVIDENCE_TOPIC, 1, leader=9)
        log.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        writer = EvidenceWriter(log, topics, True, leader)
        try:
            await test(writer, log)
        finally:
            writer.stop()
            assert leader.is_closed

    asyncio.run(whole())


async def until(condition: Callable[[], bool], what: str) -> None:
    await asyncio.to_thread(wait_until, condition, what)


@pytest.mark.spec("G10")
def test_it_is_given_to_the_leader_in_order() -> None:
    leader = Elsewhere()

    async def test(writer: EvidenceWriter, log: FakeLog) -> None:
        names = [f"g{number}" for number in range(SENT_AT_ONCE + 2)]
        writer.add(map(note, names))
        await until(lambda: leader.taken == names, "all to be taken")
        assert (writer.written, writer.dropped, leader.largest) == (len(names), 0, SENT_AT_ONCE)
        writer.add([note("later")])
        await until(lambda: writer.written == len(names) + 1, "one more")

    run(leader, test)


def test_it_waits_for_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "RETRY_S", 0.01)
    leader = Elsewhere(ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    async def test(writer: EvidenceWriter, log: FakeLog) -> None:
        writer.add([note("a"), note("b")])
        await until(lambda: writer.written == 2, "all to be taken")
        assert leader.taken == ["a", "b"]

    run(leader, test)


def test_this_broker_becomes_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "RETRY_S", 0.01)
    leader = Elsewhere(*[ErrorCode.LEADER_NOT_AVAILABLE] * 1_000)

    async def test(writer: EvidenceWriter, log: FakeLog) -> None:
        writer.add([note("a")])
        await until(lambda: len(leader.errors) < 1_000, "an attempt")
        log.error = None
        await until(lambda: writer.written == 1, "its own append")
        assert (leader.taken, len(log.batches[EVIDENCE_TOPIC, 0])) == ([], 1)

    run(leader, test)


def test_a_new_topic_of_this_broker_is_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "RETRY_S", 3_600)
    leader = Elsewhere(ErrorCode.LEADER_NOT_AVAILABLE)

    async def test() -> None:
        log = FakeLog()
        writer = EvidenceWriter(log, FakeTopics([], log), True, leader)
        writer.add([note("a")])
        await until(lambda: writer.written == 1, "the first record")
        assert (leader.taken, len(log.batches[EVIDENCE_TOPIC, 0])) == ([], 1)

    asyncio.run(test())


def test_what_the_leader_refuses_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    leader = Elsewhere(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    async def test(writer: EvidenceWriter, log: FakeLog) -> None:
        writer.add([note("a")])
        await until(lambda: writer.dropped == 1, "the refusal")
        writer.add([note("b")])
        await until(lambda: leader.taken == ["b"], "the next one")
        assert "evidence of a rebalance of group a is lost" in caplog.text

    run(leader, test)


def test_the_oldest_are_dropped_while_nobody_takes_them() -> None:
    leader = Elsewhere(*[ErrorCode.LEADER_NOT_AVAILABLE] * 1_000)

    async def test(writer: EvidenceWriter, log: FakeLog) -> None:
        writer.add([note("first")])
        await until(lambda: len(leader.errors) < 1_000, "an attempt")
        writer.add(note(f"g{number}") for number in range(QUEUE_LIMIT + 5))
        leader.errors.clear()
        await until(lambda: writer.written == QUEUE_LIMIT, "the rest to be taken")
        assert writer.dropped == 6
        assert leader.taken[0] == "g5"

    run(leader, test)
