"""Markers that end transactions on the live leader of a partition of the offsets topic, and reach its groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.coordinators.group_kind import OFFSETS_TOPIC
from ottla.broker.coordinators.groups import GroupCoordinatorService
from ottla.broker.server import Broker
from ottla.groups.events import Batch, DeleteOffsets, DeleteOffsetsResult, OffsetCommit, Step
from ottla.groups.records import OffsetRecord, StoredOffset
from ottla.records.control import TransactionMarker
from ottla.sim.virtual_loop import LoopClock, VirtualTimeLoop, run_in_virtual_time
from ottla.wire.errors import ErrorCode
from unit.broker.coordinators.group_fakes import FakeBroker
from unit.broker.metrics.test_endpoint import run as run_with_broker

START_MS = 1_700_000_000_000
PRODUCER, OTHER = 10, 11
TIMEOUT_MS = 30_000
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


def run(test: Callable[[FakeBroker], Coroutine[Any, Any, None]]) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        broker = FakeBroker(clock=LoopClock(loop, START_MS))
        try:
            await test(broker)
        finally:
            await broker.groups.stop()

    run_in_virtual_time(scenario())


def commit_in_transaction(groups: GroupCoordinatorService, producer_id: int, partition: int, offset: int) -> None:
    """An offset of group g, as part of an open transaction."""
    at = groups.router.partition_of("g")
    record = OffsetRecord("g", "t", partition, StoredOffset(offset, -1, "", groups.now_ms()))
    batch = Batch(at, [record], producer_id, 0)
    groups.runtime.carry_out(groups.runtime.shards[at], Step(0, "g", [batch]))


def commit(groups: GroupCoordinatorService, partition: int, offset: int) -> None:
    value = StoredOffset(offset, -1, "", groups.now_ms())
    groups.submit(OffsetCommit(lambda _: None, "g", -1, "", None, [("t", partition, value)]))


def end(groups: GroupCoordinatorService, producer_id: int, is_commit: bool) -> list[ErrorCode]:
    answers: list[ErrorCode] = []
    marker = TransactionMarker(producer_id, 0, 0, is_commit)
    groups.runtime.append_marker(groups.router.partition_of("g"), marker, TIMEOUT_MS, answers.append)
    return answers


def committed(groups: GroupCoordinatorService, *partitions: int) -> list[int | ErrorCode | None]:
    found = groups.committed("g", [("t", index) for index in partitions], require_stable=True)
    assert not isinstance(found, ErrorCode)
    return [error or (None if value is None else value.offset) for _, _, value, error in found]


@pytest.mark.parametrize("is_commit", [True, False])
def test_pending_offsets_end_with_their_transaction(is_commit: bool):
    async def test(broker: FakeBroker) -> None:
        groups = broker.begin().groups
        commit(groups, 0, 1)
        commit_in_transaction(groups, PRODUCER, 0, 2)
        commit_in_transaction(groups, PRODUCER, 1, 3)
        commit_in_transaction(groups, OTHER, 2, 4)
        assert committed(groups, 0, 1, 2) == [UNSTABLE] * 3
        assert end(groups, PRODUCER, is_commit) == [ErrorCode.NONE]
        assert committed(groups, 0, 1, 2) == ([2, 3, UNSTABLE] if is_commit else [1, None, UNSTABLE])

    run(test)


def test_they_are_pending_until_the_marker_is_committed():
    async def test(broker: FakeBroker) -> None:
        groups = broker.begin().groups
        commit_in_transaction(groups, PRODUCER, 0, 2)
        broker.log.follows = False
        answers = end(groups, PRODUCER, is_commit=True)
        assert (answers, committed(groups, 0)) == ([], [UNSTABLE])
        await asyncio.sleep(TIMEOUT_MS / 1000 + 1)  # sleep: virtual
        assert (answers, committed(groups, 0)) == ([ErrorCode.REQUEST_TIMED_OUT], [UNSTABLE])
        again = end(groups, PRODUCER, is_commit=True)
        broker.log.commit()
        assert (again, committed(groups, 0)) == ([ErrorCode.NONE], [2])

    run(test)


def test_a_newer_commit_than_that_of_the_transaction_stays():
    async def test(broker: FakeBroker) -> None:
        groups = broker.begin().groups
        commit_in_transaction(groups, PRODUCER, 0, 2)
        commit(groups, 0, 7)
        end(groups, PRODUCER, is_commit=True)
        assert committed(groups, 0) == [7]

    run(test)


def test_offsets_of_a_deleted_topic_do_not_come_with_the_end_of_their_transaction():
    """A topic of the same name may have begun at 0 meanwhile."""

    async def test(broker: FakeBroker) -> None:
        groups = broker.begin().groups
        broker.control.put("t", 2)
        commit(groups, 0, 1)
        commit_in_transaction(groups, PRODUCER, 1, 2)
        broker.control.remove("t")
        end(groups, PRODUCER, is_commit=True)
        assert committed(groups, 0, 1) == [None, None]

    run(test)


def test_offsets_that_are_deleted_do_not_come_back_with_the_end_of_their_transaction():
    """As in Apache Kafka, a deletion is of what an open transaction has committed so far, too."""

    async def test(broker: FakeBroker) -> None:
        groups = broker.begin().groups
        commit(groups, 0, 1)
        for partition in (1, 2):
            commit_in_transaction(groups, PRODUCER, partition, 2)
        answers: list[DeleteOffsetsResult] = []
        groups.submit(DeleteOffsets(answers.append, "g", [("t", 0), ("t", 1)]))
        assert [list(each.errors) for each in answers] == [[ErrorCode.NONE] * 2]
        end(groups, PRODUCER, is_commit=True)
        assert committed(groups, 0, 1, 2) == [None, None, 2]

    run(test)


def test_a_group_that_had_only_offsets_of_an_aborted_transaction_is_gone():
    async def test(broker: FakeBroker) -> None:
        groups = broker.begin().groups
        commit_in_transaction(groups, PRODUCER, 0, 2)
        assert groups.describe("g") is not None
        end(groups, PRODUCER, is_commit=False)
        assert groups.describe("g") is None

    run(test)


def test_the_log_of_the_offsets_topic_knows_the_end_of_the_transaction(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        groups = broker.groups
        assert await groups.router.ensure_topic() is ErrorCode.NONE
        partition = broker.partitions.get(OFFSETS_TOPIC, groups.router.partition_of("g"))
        assert partition is not None
        log = partition.log
        for number, is_commit in enumerate((True, False)):
            begin = log.log_end_offset
            commit_in_transaction(groups, PRODUCER, 0, number)
            assert (log.last_stable_offset, log.log_end_offset) == (begin, begin + 1)
            assert end(groups, PRODUCER, is_commit) == [ErrorCode.NONE]
            assert (log.last_stable_offset, log.log_end_offset) == (begin + 2, begin + 2)
        assert [each.first_offset for each in log.aborted_transactions(0, log.log_end_offset)] == [2]
        assert committed(groups, 0) == [0]

    run_with_broker(scenario, tmp_path)
