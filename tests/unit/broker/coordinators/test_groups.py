"""The shell around the group machines: appends before answers, commits, failures, loading, timers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.assign.consumer_protocol import encode_assignment, encode_subscription
from ottla.broker.coordinators.group_kind import OFFSETS_TOPIC
from ottla.cluster.image import ImageDelta, PartitionImage
from ottla.cluster.refusal import TopicRefusal
from ottla.groups.classic.machine import GroupMachine
from ottla.groups.classic.states import GroupState
from ottla.groups.events import DeleteGroup, Heartbeat, JoinGroup, LeaveGroup, LeavingMember, OffsetCommit, SyncGroup
from ottla.groups.records import OffsetRecord, StoredOffset, encode_record
from ottla.records.batch import split_batches
from ottla.records.control import ControlRecordType, end_transaction_record
from ottla.records.record import Record, decode_batch, encode_batch
from ottla.wire.errors import ErrorCode
from support.cpu_clock import without_collections
from support.waiting import wait_until
from unit.broker.coordinators.group_fakes import FakeBroker, FakeLog

Test = Callable[[FakeBroker], Coroutine[Any, Any, None]]
PARTITIONS = 3


def run(test: Test, log: FakeLog | None = None, **settings: str) -> None:
    async def with_stop() -> None:
        broker = FakeBroker(log, **settings)
        try:
            await test(broker)
        finally:
            await broker.groups.stop()

    asyncio.run(with_stop())


async def until(condition: Callable[[], object], what: str) -> None:
    await asyncio.to_thread(wait_until, condition, what)


class Answers(list[Any]):
    """Collects results; as a token it is what the runtime calls."""

    def __call__(self, result: Any) -> None:
        self.append(result)


def join(broker: FakeBroker, member_id: str = "", group: str = "g", **more: Any) -> Answers:
    answers = Answers()
    subscription = encode_subscription(["t"])
    event = JoinGroup(
        answers, group, member_id, None, "c", "/h", 10_000, 30_000, "consumer", (("range", subscription),), "1"
    )
    for name, value in more.items():
        setattr(event, name, value)
    broker.groups.submit(event)
    return answers


def sync(broker: FakeBroker, joined: Any, group: str = "g") -> Answers:
    answers = Answers()
    parts = {member.member_id: encode_assignment({"t": [0]}) for member in joined.members}
    broker.groups.submit(SyncGroup(answers, group, joined.generation_id, joined.member_id, assignments=parts))
    return answers


def commit(broker: FakeBroker, offset: int, group: str = "g", **more: Any) -> Answers:
    answers = Answers()
    value = StoredOffset(offset, -1, "", broker.groups.now_ms())
    event = OffsetCommit(answers, group, -1, "", None, [("t", 0, value)])
    for name, given in more.items():
        setattr(event, name, given)
    broker.groups.submit(event)
    return answers


def committed(broker: FakeBroker, group: str = "g", require_stable: bool = False) -> Any:
    (found,) = broker.groups.committed(group, [("t", 0)], require_stable)  # type: ignore[misc]
    _, _, value, error = found
    return error if error else (None if value is None else value.offset)


def stable_group(broker: FakeBroker, group: str = "g") -> Any:
    (joined,) = join(broker, group=group)
    (synced,) = sync(broker, joined, group)
    assert synced.error is ErrorCode.NONE
    return joined


@pytest.mark.spec("G11")
def test_answers_wait_until_the_record_is_committed():
    async def test(broker: FakeBroker) -> None:
        broker.begin()
        broker.log.follows = False
        (joined,) = join(broker)
        answers = sync(broker, joined)
        assert answers == []
        # A heartbeat tells nothing of the log, and is answered at once.
        assert broker.groups.heartbeat("g", joined.member_id, None, 1) is ErrorCode.NONE
        # Who syncs again is told what is not committed yet, so that answer waits as well.
        again = sync(broker, joined)
        assert again == []
        broker.log.commit()
        assert [answers[0].error, again[0].error] == [ErrorCode.NONE, ErrorCode.NONE]

    run(test)


def test_a_record_that_cannot_be_written_is_refused_and_stops_nobody_else():
    async def test(broker: FakeBroker) -> None:
        broker.begin()
        value = StoredOffset(1, -1, "m" * 40_000, broker.groups.now_ms())
        (refused,) = commit(broker, 1, offsets=[("t", 0, value)])
        assert list(refused.errors) == [ErrorCode.UNKNOWN_SERVER_ERROR]
        (taken,) = commit(broker, 2)
        assert list(taken.errors) == [ErrorCode.NONE]

    run(test, offset_metadata_max_bytes="50000")


@pytest.mark.spec("C3")
def test_a_commit_is_served_once_it_is_committed():
    async def test(broker: FakeBroker) -> None:
        broker.begin()
        commit(broker, 1)
        broker.log.follows = False
        answers = commit(broker, 2)
        assert (answers, committed(broker)) == ([], 1)
        assert committed(broker, require_stable=True) is ErrorCode.UNSTABLE_OFFSET_COMMIT
        broker.log.commit()
        assert [list(answer.errors) for answer in answers] == [[ErrorCode.NONE]]
        assert (committed(broker), committed(broker, require_stable=True)) == (2, 2)

    run(test)


def test_a_commit_that_never_is():
    async def test(broker: FakeBroker) -> None:
        broker.begin()
        broker.log.follows = False
        lost = commit(broker, 1)
        broker.log.commit(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert [list(answer.errors) for answer in lost] == [[ErrorCode.NOT_COORDINATOR]]
        late = commit(broker, 2)
        await until(lambda: late, "offsets.commit.timeout.ms")
        assert list(late[0].errors) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        broker.log.commit()
        assert len(late) == 1

    run(test, offsets_commit_timeout_ms="50")


def test_a_failed_append():
    async def test(broker: FakeBroker) -> None:
        broker.begin()
        (joined,) = join(broker)
        broker.log.error = ErrorCode.KAFKA_STORAGE_ERROR
        (synced,) = sync(broker, joined)
        assert synced.error is ErrorCode.NOT_COORDINATOR
        (answer,) = commit(broker, 1, group="other")
        assert list(answer.errors) == [ErrorCode.NOT_COORDINATOR]
        other = broker.groups.describe("other")
        assert isinstance(other, GroupMachine)
        assert len(other.committed) == 0
        assert broker.groups.runtime.metrics.append_failures == 2
        assert broker.groups.heartbeat("g", joined.member_id, None, 1) is ErrorCode.REBALANCE_IN_PROGRESS

    run(test)


@pytest.mark.spec("G11", "G12")
@pytest.mark.parametrize("codec", range(5))
def test_a_restarted_runtime_knows_what_is_in_the_log(codec: int):
    log = FakeLog()

    async def before(broker: FakeBroker) -> None:
        broker.begin()
        stable_group(broker)
        commit(broker, 7, group="simple")

    async def after(broker: FakeBroker) -> None:
        broker.control.put(OFFSETS_TOPIC, PARTITIONS)
        broker.groups.start()
        loading = broker.groups.describe("g")
        assert loading is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert broker.groups.groups()[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await until(lambda: not broker.groups.loading, "loading")
        group = broker.groups.describe("g")
        assert group is not None
        assert not isinstance(group, ErrorCode)
        (member,) = group.members
        assert (group.state, group.generation_id) == (GroupState.STABLE, 1)
        assert broker.groups.heartbeat("g", member.member_id, None, 1) is ErrorCode.NONE
        assert committed(broker, "simple") == 7
        assert broker.groups.runtime.metrics.loaded_records == 2

    run(before, log, offsets_topic_compression_codec=str(codec))
    run(after, log)


@pytest.mark.spec("G11")
def test_answers_while_loading():
    log = FakeLog()

    async def before(broker: FakeBroker) -> None:
        broker.begin(1)
        commit(broker, 1)

    async def after(broker: FakeBroker) -> None:
        broker.control.put(OFFSETS_TOPIC, 1)
        broker.groups.start()
        load = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert join(broker)[0].error is load
        assert list(commit(broker, 1)[0].errors) == [load]
        assert broker.groups.committed("g", None, False) is load
        assert broker.groups.heartbeat("g", "m", None, 1) is ErrorCode.NONE
        answers = Answers()
        broker.groups.submit(SyncGroup(answers, "g", 1, "m"))
        broker.groups.submit(Heartbeat(answers, "g", 1, "m"))
        broker.groups.submit(LeaveGroup(answers, "g", [LeavingMember("m")]))
        broker.groups.submit(DeleteGroup(answers, "g"))
        assert [answer.error for answer in answers] == [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NONE, load, load]

    run(before, log)
    run(after, log)


def test_loading_does_not_hold_up_the_loop():
    log = FakeLog()
    value = StoredOffset(1, -1, "metadata", 1)
    for batch in range(40):
        records = [Record(0, 1, *encode_record(OffsetRecord(f"g{batch}", "t", number, value))) for number in range(500)]
        log.append(OFFSETS_TOPIC, 0, bytearray(encode_batch(records)), 0, needs_replicas=False)

    async def after(broker: FakeBroker) -> None:
        broker.control.put(OFFSETS_TOPIC, 1)
        broker.groups.start()
        longest, turns = 0.0, 0
        with without_collections():
            last = time.thread_time()
            while broker.groups.loading:
                await asyncio.sleep(0)
                now = time.thread_time()
                longest, last, turns = max(longest, now - last), now, turns + 1
        assert broker.groups.runtime.metrics.loaded_records == 20_000
        # Slices of 5 ms, and a batch of 500 is decoded at once; processor time, since the machine may be busy.
        assert turns > 10
        assert longest < 0.05

    run(after, log)


def test_unreadable_records_are_reported_and_skipped(caplog: pytest.LogCaptureFixture):
    log = FakeLog()
    good = encode_record(OffsetRecord("g", "t", 0, StoredOffset(5, -1, "", 1)))
    bad = [(b"\x00\x01\x00", None), (b"\x00\x63key", b"x"), (good[0], b"\x00\x09"), good]
    for key, value in bad:
        log.append(OFFSETS_TOPIC, 0, bytearray(encode_batch([Record(0, 1, key, value)])), 0, needs_replicas=False)
    broken = bytearray(encode_batch([Record(0, 1, *good)]))
    broken[-3] ^= 0xFF
    log.batches[OFFSETS_TOPIC, 0].append(bytes(broken[:-1]))
    newer = encode_record(OffsetRecord("g", "t", 0, StoredOffset(6, -1, "", 1)))
    log.append(OFFSETS_TOPIC, 0, bytearray(encode_batch([Record(0, 1, *newer)])), 0, needs_replicas=False)

    async def after(broker: FakeBroker) -> None:
        broker.control.put(OFFSETS_TOPIC, 1)
        broker.groups.start()
        await until(lambda: not broker.groups.loading, "loading")
        assert committed(broker) == 6, "what lies behind is read, too"

    run(after, log)
    assert "not known here; skipped" in caplog.text
    assert "newer than the highest known" in caplog.text
    assert "cannot be read and is skipped" in caplog.text


def test_offsets_of_transactions_are_loaded_by_their_markers():
    log = FakeLog()

    def write(producer_id: int, partition: int, marker: ControlRecordType | None) -> None:
        record = OffsetRecord("g", "t", partition, StoredOffset(producer_id, -1, "", 1))
        transactional = {"producer_id": producer_id, "producer_epoch": 0, "is_transactional": True}
        batch = encode_batch([Record(0, 1, *encode_record(record))], base_sequence=0, **transactional)
        log.append(OFFSETS_TOPIC, 0, bytearray(batch), 0, needs_replicas=False)
        if marker is not None:
            end = Record(0, 1, *end_transaction_record(marker, 0))
            log.append(
                OFFSETS_TOPIC,
                0,
                bytearray(encode_batch([end], is_control=True, **transactional)),
                0,
                needs_replicas=False,
            )

    write(10, 0, ControlRecordType.COMMIT)
    write(11, 1, ControlRecordType.ABORT)
    write(12, 2, None)

    async def after(broker: FakeBroker) -> None:
        broker.control.put(OFFSETS_TOPIC, 1)
        broker.groups.start()
        await until(lambda: not broker.groups.loading, "loading")
        found = broker.groups.committed("g", [("t", 0), ("t", 1), ("t", 2)], True)
        assert not isinstance(found, ErrorCode)
        offsets = [(None if value is None else value.offset, error) for _, _, value, error in found]
        unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert offsets == [(10, ErrorCode.NONE), (None, ErrorCode.NONE), (None, unstable)]

    run(after, log)


@pytest.mark.spec("G10")
def test_sessions_expire_by_the_timer():
    async def test(broker: FakeBroker) -> None:
        broker.begin()
        (joined,) = join(broker, session_timeout_ms=60)
        sync(broker, joined)
        group = broker.groups.describe("g")
        assert group is not None
        assert not isinstance(group, ErrorCode)
        await until(lambda: group.state is GroupState.EMPTY, "the session to expire")
        assert broker.groups.heartbeat("g", joined.member_id, None, 1) is ErrorCode.UNKNOWN_MEMBER_ID
        assert broker.groups.runtime.metrics.timer_runs >= 1

    run(test, group_min_session_timeout_ms="10")


def test_the_initial_delay_passes_by_the_timer():
    async def test(broker: FakeBroker) -> None:
        broker.begin()
        first, second = join(broker), join(broker, new_id="2")
        assert not first
        await until(lambda: first and second, "the delay")
        assert [len(first[0].members), len(second[0].members)] == [2, 0]

    run(test, group_initial_rebalance_delay_ms="40")


@pytest.mark.spec("G12")
def test_offsets_expire_in_the_background():
    async def test(broker: FakeBroker) -> None:
        broker.begin()
        minute_ago = broker.groups.now_ms() - 61_000
        offsets = [("t", 0, StoredOffset(1, -1, "", minute_ago))]
        broker.groups.submit(OffsetCommit(Answers(), "old", -1, "", None, offsets))
        commit(broker, 1, group="new")
        await until(lambda: broker.groups.metrics.expired_offsets, "the expiry run")
        assert broker.groups.describe("old") is None
        assert committed(broker, "new") == 1

    run(test, offsets_retention_minutes="1", offsets_retention_check_interval_ms="30")


def test_offsets_of_a_deleted_topic_go():
    async def test(broker: FakeBroker) -> None:
        broker.control.put("t", 1)
        broker.begin()
        commit(broker, 1)
        assert committed(broker) == 1
        broker.control.remove("t")
        assert committed(broker) is None

    run(test)


@pytest.mark.spec("G11")
def test_a_partition_that_moves_away():
    async def test(broker: FakeBroker) -> None:
        broker.begin()
        joined = stable_group(broker)
        waiting = join(broker, new_id="2")
        assert not waiting
        broker.control.put(OFFSETS_TOPIC, PARTITIONS, leader=9)
        assert [answer.error for answer in waiting] == [ErrorCode.NOT_COORDINATOR]
        assert broker.groups.heartbeat("g", joined.member_id, None, 1) is ErrorCode.NOT_COORDINATOR
        assert broker.groups.groups() == (ErrorCode.NONE, [])

    run(test)


@pytest.mark.spec("G11")
def test_a_partition_is_led_before_and_after_the_metadata_say_so():
    async def test(broker: FakeBroker) -> None:
        broker.begin()
        image = broker.image
        stable_group(broker)
        gone = [PartitionImage(9, 1, (9, 1), (9, 1))] * PARTITIONS
        broker.log.take_roles(OFFSETS_TOPIC, gone)
        assert broker.groups.describe("g") is ErrorCode.NOT_COORDINATOR
        broker.groups.image_changed(ImageDelta((image.delta_of(OFFSETS_TOPIC, image.topics[OFFSETS_TOPIC]),)))
        assert broker.groups.describe("g") is ErrorCode.NOT_COORDINATOR, "metadata of the old leader's time"
        here = [PartitionImage(1, 2, (9, 1), (1,))] * PARTITIONS
        broker.log.take_roles(OFFSETS_TOPIC, here)
        await until(lambda: not broker.groups.loading, "loading")
        assert isinstance(broker.groups.describe("g"), GroupMachine)

    run(test)


@pytest.mark.spec("G11", "R2")
def test_too_few_replicas_in_sync():
    async def test(broker: FakeBroker) -> None:
        broker.begin()
        (joined,) = join(broker)
        broker.log.has_enough = False
        (synced,) = sync(broker, joined)
        assert synced.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        (answer,) = commit(broker, 1, group="other")
        assert list(answer.errors) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        assert broker.groups.heartbeat("g", joined.member_id, None, 1) is ErrorCode.REBALANCE_IN_PROGRESS
        broker.log.has_enough = True
        (again,) = join(broker, joined.member_id)
        (synced,) = sync(broker, again)
        assert (again.generation_id, synced.error) == (2, ErrorCode.NONE)

    run(test)


@pytest.mark.spec("G11")
def test_an_assignment_that_is_not_committed_in_time_is_in_the_log_all_the_same():
    async def test(broker: FakeBroker) -> None:
        broker.begin()
        broker.log.follows = False
        (joined,) = join(broker)
        answers = sync(broker, joined)
        await until(lambda: answers, "offsets.commit.timeout.ms")
        assert answers[0].error is ErrorCode.REBALANCE_IN_PROGRESS
        group = broker.groups.describe("g")
        assert isinstance(group, GroupMachine)
        assert (group.state, group.generation_id) == (GroupState.STABLE, 1)

    run(test, offsets_commit_timeout_ms="50")


def evidence(broker: FakeBroker) -> list[dict[str, Any]]:
    batches = broker.log.batches.get(("__ottla_rebalances", 0), [])
    return [json.loads(r.value or b"") for data in batches for h in split_batches(data) for r in decode_batch(data, h)]


@pytest.mark.spec("G10")
def test_evidence_is_written_to_its_topic():
    async def test(broker: FakeBroker) -> None:
        broker.begin()
        joined = stable_group(broker)
        await until(lambda: evidence(broker), "evidence")
        (first,) = evidence(broker)
        assert (first["group"], first["outcome"], first["generation"]) == ("g", "stable", 1)
        assert first["causes"][0]["member_id"] == joined.member_id
        answers = Answers()
        broker.groups.submit(LeaveGroup(answers, "g", [LeavingMember(joined.member_id)]))
        assert [record["outcome"] for record in evidence(broker)] == ["stable", "empty"]
        assert broker.groups.rebalances == 2

    run(test)


def test_evidence_can_be_switched_off():
    async def test(broker: FakeBroker) -> None:
        broker.begin()
        stable_group(broker)
        await asyncio.sleep(0)
        assert "__ottla_rebalances" not in broker.control.image.topics

    run(test, ottla_rebalance_evidence_enable="false")


def test_evidence_is_in_nobodys_way(caplog: pytest.LogCaptureFixture):
    async def test(broker: FakeBroker) -> None:
        broker.begin()
        broker.control.refusal = TopicRefusal(ErrorCode.INVALID_REPLICATION_FACTOR, "too few brokers")
        stable_group(broker)
        await until(lambda: "cannot be made: too few brokers" in caplog.text, "the refusal")
        assert broker.groups.evidence.dropped == 1

    run(test)


def test_nothing_is_answered_before_start_and_after_stop():
    async def test(broker: FakeBroker) -> None:
        broker.control.put(OFFSETS_TOPIC, 1)
        gone = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert join(broker)[0].error is gone
        broker.groups.start()
        stable_group(broker)
        await broker.groups.stop()
        assert broker.groups.heartbeat("g", "m", None, 1) is gone
        assert broker.groups.groups() == (gone, [])

    run(test)
