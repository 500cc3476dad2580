"""The handlers of group requests, every version, against a runtime without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.assign.consumer_protocol import encode_assignment, encode_subscription
from ottla.broker.handlers import (
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_fetch,
    sync_group,
)
from ottla.broker.slices import ITEMS_PER_SLICE, SLICE_MS, LoopSlices
from ottla.cluster.refusal import TopicRefusal
from ottla.env.clock import VirtualClock
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from unit.broker.coordinators.group_fakes import BROKER_ID, FakeBroker, FakeContext, ask

pytestmark = pytest.mark.spec("G2")

HANDLERS = {
    8: offset_commit,
    9: offset_fetch,
    10: find_coordinator,
    11: join_group,
    12: heartbeat,
    13: leave_group,
    14: sync_group,
    15: describe_groups,
    16: list_groups,
    42: delete_groups,
}
METADATA = encode_subscription(["t"])


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """The test as a function that runs it in a loop of its own."""

    def run(**arguments: Any) -> None:
        async def with_stop() -> None:
            broker = FakeBroker()
            try:
                await test(broker, **arguments)
            finally:
                await broker.groups.stop()

        asyncio.run(with_stop())

    run.__name__ = test.__name__
    run.__signature__ = without_first(test)  # type: ignore[attr-defined]
    run.pytestmark = getattr(test, "pytestmark", [])  # type: ignore[attr-defined]
    return run


def without_first(test: Callable[..., Awaitable[None]]) -> Any:
    import inspect

    signature = inspect.signature(test)
    return signature.replace(parameters=list(signature.parameters.values())[1:], return_annotation=None)


def join(broker: FakeBroker, version: int = 3, member_id: str = "", **more: Any) -> Any:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=-1 if version == 0 else 30_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=METADATA)],
        **more,
    )
    return ask(broker, join_group, version, request).answer


def sync(broker: FakeBroker, joined: Any, version: int = 3, **more: Any) -> Any:
    parts = [
        SyncGroupRequestAssignment(member_id=member.member_id, assignment=encode_assignment({"t": [number]}))
        for number, member in enumerate(joined.members)
    ]
    request = SyncGroupRequest(
        group_id="g", generation_id=joined.generation_id, member_id=joined.member_id, assignments=parts, **more
    )
    return ask(broker, sync_group, version, request).answer


def commit(broker: FakeBroker, version: int, offset: int, topic: str = "t", partition: int = 0, **more: Any) -> Any:
    at = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata=None)
    topics = [OffsetCommitRequestTopic(name=topic, partitions=[at])]
    request = OffsetCommitRequest(group_id="g", topics=topics, **more)
    answer = ask(broker, offset_commit, version, request).answer
    return ErrorCode(answer.topics[0].partitions[0].error_code)


@pytest.mark.parametrize("version", range(10))
@in_loop
async def test_join_and_sync(broker: FakeBroker, version: int):
    broker.begin()
    joined = join(broker, version)
    if version >= 4:
        assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert joined.protocol_name == (None if version >= 7 else "")
        joined = join(broker, version, joined.member_id)
    assert joined.error_code == ErrorCode.NONE
    assert joined.member_id.startswith("client-")
    assert (joined.generation_id, joined.protocol_name, joined.leader) == (1, "range", joined.member_id)
    assert [member.metadata for member in joined.members] == [METADATA]
    sync_version = min(version, 5)
    protocol = {"protocol_type": "consumer", "protocol_name": "range"} if sync_version == 5 else {}
    synced = sync(broker, joined, sync_version, **protocol)
    assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, encode_assignment({"t": [0]}))
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
    assert ask(broker, heartbeat, min(version, 4), beat).answer.error_code == ErrorCode.NONE


@in_loop
async def test_version_0_waits_for_the_session_timeout(broker: FakeBroker):
    broker.begin()
    join(broker, 0)
    (member,) = broker.groups.describe("g").members  # type: ignore[union-attr]
    assert member.rebalance_timeout_ms == 10_000


@in_loop
async def test_sync_5_must_name_the_protocol(broker: FakeBroker):
    broker.begin()
    joined = join(broker)
    assert sync(broker, joined, 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@in_loop
async def test_empty_group_ids_are_refused(broker: FakeBroker):
    broker.begin()
    beat = HeartbeatRequest(group_id="", generation_id=1, member_id="m")
    assert ask(broker, heartbeat, 4, beat).answer.error_code == ErrorCode.INVALID_GROUP_ID
    leave = LeaveGroupRequest(group_id="", members=[MemberIdentity(member_id="m")])
    assert ask(broker, leave_group, 4, leave).answer.error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", range(6))
@in_loop
async def test_leave(broker: FakeBroker, version: int):
    broker.begin()
    joined = join(broker)
    for expected in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID):
        if version < 3:
            request = LeaveGroupRequest(group_id="g", member_id=joined.member_id)
            assert ask(broker, leave_group, version, request).answer.error_code == expected
        else:
            request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=joined.member_id)])
            answer = ask(broker, leave_group, version, request).answer
            assert answer.error_code == ErrorCode.NONE
            assert [m.error_code for m in answer.members] == [expected]


@pytest.mark.spec("C3")
@pytest.mark.parametrize("version", range(1, 10))
@in_loop
async def test_commit_and_fetch(broker: FakeBroker, version: int):
    broker.begin()
    broker.control.put("t", 2)
    retention = {"retention_time_ms": 60_000} if 2 <= version <= 4 else {}
    assert commit(broker, version, 42, **retention) is ErrorCode.NONE
    assert commit(broker, version, 42, "t", 2, **retention) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(broker, version, 42, "nosuch", 0, **retention) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    machine = broker.groups.describe("g")
    assert machine is not None
    assert not isinstance(machine, ErrorCode)
    kept = machine.committed.get(("t", 0))
    assert kept is not None
    assert (kept.expire_timestamp_ms > 0) == bool(retention)
    if version >= 8:
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])]
        groups = [
            OffsetFetchRequestGroup(group_id="g", topics=topics),
            OffsetFetchRequestGroup(group_id="g", topics=None),
            OffsetFetchRequestGroup(group_id="other", topics=topics),
        ]
        one, everything, other = ask(broker, offset_fetch, version, OffsetFetchRequest(groups=groups)).answer.groups
        assert [p.committed_offset for p in one.topics[0].partitions] == [42, -1]
        assert [p.partition_index for p in everything.topics[0].partitions] == [0]
        assert [p.committed_offset for p in other.topics[0].partitions] == [-1, -1]
        return
    old_topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
    answer = ask(broker, offset_fetch, version, OffsetFetchRequest(group_id="g", topics=old_topics)).answer
    first, second = answer.topics[0].partitions
    assert (first.committed_offset, first.error_code, first.metadata) == (42, 0, "")
    assert (second.committed_offset, second.error_code) == (-1, ErrorCode.NONE)
    if version >= 2:
        answer = ask(broker, offset_fetch, version, OffsetFetchRequest(group_id="g", topics=None)).answer
        assert [(t.name, [p.partition_index for p in t.partitions]) for t in answer.topics] == [("t", [0])]


async def in_tree(broker: FakeBroker, *positions: tuple[str, int, int], group: str = "g", words: str = "") -> list[int]:
    """The errors of a commit of version 0."""
    topics = [
        OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata=words)
            ],
        )
        for topic, index, offset in positions
    ]
    context = ask(broker, offset_commit, 0, OffsetCommitRequest(group_id=group, topics=topics))
    await asyncio.gather(*context.tasks)
    return [topic.partitions[0].error_code for topic in context.answer.topics]


async def from_tree(broker: FakeBroker, topic: str, indexes: list[int], group: str = "g") -> list[tuple[int, int]]:
    """Offsets and errors of a fetch of version 0."""
    topics = [OffsetFetchRequestTopic(name=topic, partition_indexes=indexes)]
    context = ask(broker, offset_fetch, 0, OffsetFetchRequest(group_id=group, topics=topics))
    await asyncio.gather(*context.tasks)
    return [(one.committed_offset, one.error_code) for one in context.answer.topics[0].partitions]


@pytest.mark.spec("C3")
@in_loop
async def test_the_first_version_keeps_positions_in_the_tree(broker: FakeBroker):
    broker.begin()
    broker.control.put("t", 2)
    broker.control.put("u", 1)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    positions = [("t", 0, 5), ("u", 0, 2**63 - 1), ("t", 1, 7), ("t", 2, 1), ("nosuch", 0, 1), ("t", 1, 8)]
    assert await in_tree(broker, *positions) == [0, 0, 0, unknown, unknown, 0]
    assert await in_tree(broker, ("t", 0, 4)) == [ErrorCode.NONE]
    assert await broker.zk.children("/consumers/g/offsets/t") == ["0", "1"]
    assert (await broker.zk.get("/consumers/g/offsets/t/0"))[0] == b"4"
    assert await from_tree(broker, "t", [0, 1, 2]) == [(4, 0), (8, 0), (-1, unknown)]
    assert await from_tree(broker, "u", [0]) == [(2**63 - 1, 0)]
    assert await from_tree(broker, "t", [0], group="other") == [(-1, unknown)]
    assert broker.groups.describe("g") is None, "no group has come of it"


@pytest.mark.spec("C3")
@in_loop
async def test_positions_of_the_first_version_and_of_the_others_are_apart(broker: FakeBroker):
    broker.begin()
    broker.control.put("t", 1)
    assert commit(broker, 1, 42) is ErrorCode.NONE
    assert await from_tree(broker, "t", [0]) == [(-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert await in_tree(broker, ("t", 0, 5)) == [ErrorCode.NONE]
    ((_, _, committed, _),) = broker.groups.committed("g", None, False)  # type: ignore[misc]
    assert committed.offset == 42


@pytest.mark.spec("C3")
@in_loop
async def test_positions_that_cannot_be_kept_in_the_tree(broker: FakeBroker):
    broker.begin()
    broker.control.put("t", 1)
    for group in ("", "a/../b", "a\0b"):
        assert await in_tree(broker, ("t", 0, 5), group=group) == [ErrorCode.UNKNOWN_SERVER_ERROR]
        assert await from_tree(broker, "t", [0], group=group) == [(-1, ErrorCode.UNKNOWN_SERVER_ERROR)]
    assert await in_tree(broker, ("t", 0, 5), words="x" * 4097) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert await in_tree(broker, ("t", 0, 5), words="x" * 4096) == [ErrorCode.NONE]


@pytest.mark.spec("C3")
@in_loop
async def test_a_disk_that_does_not_take_a_position_of_the_tree(broker: FakeBroker):
    broker.begin()
    broker.control.put("t", 1)
    assert await in_tree(broker, ("t", 0, 5)) == [ErrorCode.NONE]
    broker.tree_disk.fail("write")
    assert await in_tree(broker, ("t", 0, 6)) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert await from_tree(broker, "t", [0]) == [(5, ErrorCode.NONE)]


@pytest.mark.spec("C3")
@pytest.mark.parametrize("data", [None, b"", b"five", b"1_0", b"9" * 19, b"-9223372036854775809", b"1" * 5000])
@in_loop
async def test_what_is_no_position_in_the_tree(broker: FakeBroker, data: bytes | None):
    broker.begin()
    broker.control.put("t", 1)
    assert await in_tree(broker, ("t", 0, 5)) == [ErrorCode.NONE]
    await broker.zk.set("/consumers/g/offsets/t/0", data)
    assert await from_tree(broker, "t", [0]) == [(-1, ErrorCode.UNKNOWN_SERVER_ERROR)]


@in_loop
async def test_a_retention_without_end_is_kept_as_long_as_time_lasts(broker: FakeBroker):
    broker.begin()
    broker.control.put("t", 1)
    assert commit(broker, 3, 5, retention_time_ms=2**63 - 1) == ErrorCode.NONE
    [(_, _, committed, _)] = broker.groups.committed("g", None, False)
    assert committed.expire_timestamp_ms == 2**63 - 1


@pytest.mark.parametrize("more", [{}, {"group_instance_id": "i" * 32_760}])
@in_loop
async def test_names_too_long_for_a_member_id_are_refused(broker: FakeBroker, more: dict[str, str]):
    """They would fit into no answer and no record, and keep the whole group from its next generation."""
    broker.begin()
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=METADATA)],
        **more,
    )
    refused = ask(broker, join_group, 5, request, client_id="c" if more else "c" * 32_731).answer
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert join(broker, 3).error_code == ErrorCode.NONE


@in_loop
async def test_a_commit_timestamp_of_version_1_is_kept(broker: FakeBroker):
    broker.begin()
    broker.control.put("t", 1)
    at = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, commit_timestamp=77)
    request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[at])])
    ask(broker, offset_commit, 1, request)
    machine = broker.groups.describe("g")
    assert machine.committed.get(("t", 0)).commit_timestamp_ms == 77  # type: ignore[union-attr]


@in_loop
async def test_fetch_while_there_is_no_coordinator(broker: FakeBroker):
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    request = OffsetFetchRequest(group_id="g", topics=topics)
    answer = ask(broker, offset_fetch, 1, request).answer
    assert answer.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert ask(broker, offset_fetch, 2, request).answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    groups = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    assert ask(broker, offset_fetch, 8, groups).answer.groups[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("version", range(6))
@in_loop
async def test_describe(broker: FakeBroker, version: int):
    broker.begin()
    joined = join(broker)
    request = DescribeGroupsRequest(groups=["g", "nosuch"], include_authorized_operations=version >= 3)
    group, absent = ask(broker, describe_groups, version, request).answer.groups
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("CompletingRebalance", "consumer", "")
    assert (absent.error_code, absent.group_state, absent.members) == (0, "Dead", [])
    sync(broker, joined)
    group, _ = ask(broker, describe_groups, version, request).answer.groups
    assert (group.group_state, group.protocol_data) == ("Stable", "range")
    (member,) = group.members
    assert (member.client_id, member.client_host) == ("client", "/1.2.3.4")
    assert (member.member_metadata, member.member_assignment) == (METADATA, encode_assignment({"t": [0]}))
    assert group.authorized_operations == (328 if version >= 3 else -0x80000000)


@pytest.mark.parametrize("version", range(6))
@in_loop
async def test_list(broker: FakeBroker, version: int):
    broker.begin()
    join(broker)
    broker.control.put("t", 1)
    ask(broker, offset_commit, 2, commit_of("other"))

    def listed(**filters: Any) -> list[str]:
        answer = ask(broker, list_groups, version, ListGroupsRequest(**filters)).answer
        assert answer.error_code == 0
        return sorted(group.group_id for group in answer.groups)

    assert listed() == ["g", "other"]
    if version >= 4:
        assert listed(states_filter=["completingrebalance"]) == ["g"]
        assert listed(states_filter=["Empty", "Stable"]) == ["other"]
    if version >= 5:
        assert listed(types_filter=["Classic"]) == ["g", "other"]
        assert listed(types_filter=["consumer"]) == []


def commit_of(group_id: str) -> OffsetCommitRequest:
    at = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    return OffsetCommitRequest(group_id=group_id, topics=[OffsetCommitRequestTopic(name="t", partitions=[at])])


@pytest.mark.parametrize("version", range(3))
@in_loop
async def test_delete(broker: FakeBroker, version: int):
    broker.begin()
    join(broker)
    broker.control.put("t", 1)
    ask(broker, offset_commit, 2, commit_of("other"))
    request = DeleteGroupsRequest(groups_names=["g", "other", "nosuch", "other"])
    results = ask(broker, delete_groups, version, request).answer.results
    assert [(result.group_id, ErrorCode(result.error_code)) for result in results] == [
        ("g", ErrorCode.NON_EMPTY_GROUP),
        ("other", ErrorCode.NONE),
        ("nosuch", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    assert ask(broker, delete_groups, version, DeleteGroupsRequest()).answer.results == []


@pytest.mark.parametrize("version", range(7))
@in_loop
async def test_find_coordinator_makes_the_topic_and_then_answers(broker: FakeBroker, version: int):
    broker.groups.start()
    request = FindCoordinatorRequest(coordinator_keys=["g"]) if version >= 4 else FindCoordinatorRequest(key="g")
    for attempt in (1, 2):
        context = ask(broker, find_coordinator, version, request)
        assert len(context.tasks) == (1 if attempt == 1 else 0)
        await asyncio.gather(*context.tasks)
        found = context.answer.coordinators[0] if version >= 4 else context.answer
        assert (found.error_code, found.node_id, found.host, found.port) == (0, BROKER_ID, "host", 9092)
    assert join(broker).error_code == ErrorCode.NONE


@in_loop
async def test_find_coordinator_refusals(broker: FakeBroker):
    broker.groups.start()
    broker.control.refusal = TopicRefusal(ErrorCode.INVALID_REPLICATION_FACTOR, "too few brokers")
    context = ask(broker, find_coordinator, 2, FindCoordinatorRequest(key="g"))
    await asyncio.gather(*context.tasks)
    assert context.answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert context.answer.error_message == ErrorCode.COORDINATOR_NOT_AVAILABLE.message
    assert (context.answer.node_id, context.answer.host, context.answer.port) == (-1, "", -1)
    context = ask(broker, find_coordinator, 6, FindCoordinatorRequest(coordinator_keys=["x"], key_type=2))
    (found,) = context.answer.coordinators
    assert found.error_code == ErrorCode.INVALID_REQUEST
    assert ErrorCode.INVALID_REQUEST.message in found.error_message


@in_loop
async def test_find_coordinator_of_a_partition_led_elsewhere(broker: FakeBroker):
    broker.groups.start()
    broker.control.put("__consumer_offsets", 3, leader=9)
    context = ask(broker, find_coordinator, 2, FindCoordinatorRequest(key="g"))
    assert context.answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert join(broker).error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.spec("S5")
@pytest.mark.parametrize("handler", [describe_groups, delete_groups])
@in_loop
async def test_very_many_group_ids_are_looked_through_in_slices(broker: FakeBroker, handler: Any):
    """Hashing an id takes a millisecond here: no turn of the loop hashes thousands of them."""
    broker.begin()
    clock = VirtualClock()
    broker.slices = LoopSlices(clock.monotonic_ms)

    class SlowId(str):
        __slots__ = ()

        def __hash__(self) -> int:
            clock.advance(1)
            return str.__hash__(self)

    ids: list[str] = [SlowId(f"g{number % 2_000}") for number in range(4_000)]
    request = DescribeGroupsRequest(groups=ids) if handler is describe_groups else DeleteGroupsRequest(groups_names=ids)
    context = FakeContext(broker, 2)
    handler.handle(context, request)
    began_ms = clock.monotonic_ms()
    turns_ms = [began_ms]
    while context.answer is None:
        turns_ms.append(clock.monotonic_ms() - began_ms)
        began_ms = clock.monotonic_ms()
        await asyncio.sleep(0)
    results = context.answer.groups if handler is describe_groups else context.answer.results
    assert [found.group_id for found in results] == [f"g{number}" for number in range(2_000)]
    assert max(turns_ms) < 2 * ITEMS_PER_SLICE


@pytest.mark.spec("S5")
@in_loop
async def test_very_long_filters_of_groups_are_read_in_slices(broker: FakeBroker):
    """A name of the filter costs a millisecond here."""
    broker.begin()
    clock = VirtualClock()
    broker.slices = LoopSlices(clock.monotonic_ms)

    class SlowName(str):
        __slots__ = ()

        def lower(self) -> str:
            clock.advance(1)
            return str.lower(self)

    names: list[str] = [SlowName(f"State{number}") for number in range(100)]
    context = FakeContext(broker, 5)
    list_groups.handle(context, ListGroupsRequest(states_filter=names, types_filter=names))
    assert clock.monotonic_ms() < 2 * SLICE_MS
    await asyncio.gather(*context.tasks)
    assert context.answer.groups == []
