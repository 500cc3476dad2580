"""The coordinator's side of a rebalance, with a membership that is put into place."""

from __future__ import annotations

import asyncio

import pytest

from ottla.assign.consumer_protocol import Assignment, encode_assignments
from ottla.client.consumer.consumer_metadata import ConsumerMetadata
from ottla.client.consumer.coordinator import ConsumerCoordinator
from ottla.client.consumer.coordinator_link import JOIN, CoordinatorLink
from ottla.client.consumer.group_config import GroupConfig
from ottla.client.consumer.listener import call_here
from ottla.client.consumer.membership import Generation, MemberSettings, Membership, MemberState
from ottla.client.consumer.subscription_state import FetchPosition, SubscriptionState
from ottla.client.errors import ClientError, RebalanceInProgressError
from ottla.client.model import OffsetAndMetadata, TopicPartition
from ottla.peer.cluster import COORDINATOR
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.api_versions import ApiVersion
from ottla.wire.messages.heartbeat import HeartbeatResponse
from ottla.wire.messages.leave_group import LeaveGroupResponse
from support.fake_cluster import SILENT, Later
from support.waiting import wait_until

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
NEVER_MS = float("inf")


def member(cluster, subscriptions, call=call_here, on_commit=None, **settings):
    """A coordinator whose consumer owns a-0 and a-1, and which does not join by itself."""
    subscriptions.subscribe(["a", "b"])
    subscriptions.assign_from_subscribed([A0, A1])
    for each in (A0, A1):
        subscriptions.state(each).settle_at(FetchPosition(5))
    metadata = ConsumerMetadata(cluster, subscriptions, lambda: None)
    config = GroupConfig(group_id="g", **settings)
    made = ConsumerCoordinator(cluster, config, subscriptions, metadata, lambda: None, call=call, on_commit=on_commit)
    make_stable(made.membership, 1)
    made.membership.is_active = made.membership.lookup.is_known = True
    made.membership._session_deadline_ms = NEVER_MS
    made.membership._join_due_ms = NEVER_MS
    made.polled()
    return made


def make_stable(membership, generation_id):
    membership.state = MemberState.STABLE
    membership.generation = Generation(generation_id, f"m{generation_id}", "cooperative-sticky")
    membership.rejoin_needed = False


async def poll_until(made, condition):
    """Poll until the condition holds, 5 s at most."""
    async with asyncio.timeout(60):
        while not condition():
            await made.poll(0)
            await asyncio.sleep(0.005)  # sleep: between two polls


def serve_members(cluster):
    """Its brokers serve what members of a group ask."""
    served = cluster.on_api_versions

    def more(node, request, code):
        answer = served(node, request, code)
        if request is not None:
            keys = (ApiKey.HEARTBEAT, ApiKey.JOIN_GROUP, ApiKey.LEAVE_GROUP)
            answer.api_keys = [*answer.api_keys, *(ApiVersion(api_key=key, max_version=4) for key in keys)]
        return answer

    cluster.on_api_versions = more
    cluster.on_heartbeat = lambda node, request, code: HeartbeatResponse()


@pytest.fixture(autouse=True)
def heartbeats(fake):
    """The broker serves them."""
    serve_members(fake)


@pytest.mark.spec("C7", "A4")
def test_an_assignment_that_is_not_taken_revokes_nothing(fake, with_cluster):
    async def work(cluster):
        subscriptions = SubscriptionState()
        strategy = ("cooperative-sticky",)
        made = member(cluster, subscriptions, partition_assignment_strategy=strategy, enable_auto_commit=False)
        [assignment] = encode_assignments({"m1": Assignment(1, {"a": [0], "b": [0]}, None)}).values()
        made.membership.assignment = assignment
        subscriptions.subscribe(["a"])
        await made.poll(NEVER_MS)
        assert made.membership.rejoin_needed
        assert [each for each in (A0, A1) if subscriptions.state(each).is_fetchable] == [A0, A1]
        await made.close(0)

    with_cluster(fake, work)


@pytest.mark.spec("P6")
def test_the_group_metadata_are_those_of_the_assignment_whatever_became_of_the_membership(fake, with_cluster):
    """Offsets of a transaction that name no member are taken unchecked: those of a member that was kicked out, too."""

    async def work(cluster):
        subscriptions = SubscriptionState()
        strategy = ("cooperative-sticky",)
        made = member(cluster, subscriptions, partition_assignment_strategy=strategy, enable_auto_commit=False)
        found = [made.group_metadata()]
        [made.membership.assignment] = encode_assignments({"m1": Assignment(1, {"a": [0, 1]}, None)}).values()
        await made.poll(NEVER_MS)
        found.append(made.group_metadata())
        made.membership.kicked_out(ErrorCode.UNKNOWN_MEMBER_ID, "heartbeat")
        found.append(made.group_metadata())
        make_stable(made.membership, 2)  # its assignment is taken by the next poll
        found.append(made.group_metadata())
        subscriptions.unsubscribe()
        subscriptions.assign_from_user([A0])
        found.append(made.group_metadata())
        await made.close(0)
        return [(each.generation_id, each.member_id) for each in found]

    none, first = (-1, ""), (1, "m1")
    assert with_cluster(fake, work) == [none, first, first, first, none]


@pytest.mark.slow
@pytest.mark.spec("C3")
def test_what_was_to_be_committed_before_the_partitions_were_lost_is_not_committed_as_another_member(
    fake, with_cluster
):
    fake.faults[ApiKey.OFFSET_COMMIT] += [ErrorCode.COORDINATOR_NOT_AVAILABLE]

    async def work(cluster):
        subscriptions = SubscriptionState()
        made = member(
            cluster,
            subscriptions,
            partition_assignment_strategy=("range",),
            retry_backoff_ms=200,
            retry_backoff_max_ms=200,
        )
        membership = made.membership
        membership.request_rejoin("others join")
        membership._join_due_ms = 0
        await made.poll(0)
        await asyncio.to_thread(wait_until, lambda: fake.requests_of(ApiKey.OFFSET_COMMIT), "the commit")
        await asyncio.to_thread(wait_until, lambda: fake.requests_of(ApiKey.FIND_COORDINATOR), "the search")
        await asyncio.to_thread(wait_until, lambda: membership.lookup.is_known, "the coordinator")
        membership.kicked_out(ErrorCode.UNKNOWN_MEMBER_ID, "heartbeat")
        await made.poll(0)
        assert not subscriptions.assigned_partitions
        membership._reset(Generation())
        make_stable(membership, 2)
        await asyncio.sleep(0.5)  # sleep: longer than the pause after which a commit is made again
        committed = dict(fake.committed)
        await made.close(0)
        assert committed == {}

    with_cluster(fake, work)


@pytest.mark.spec("C3", "C4")
def test_interceptors_hear_of_the_commit_before_a_rebalance_inside_of_a_poll(fake, with_cluster):
    names, polls = [], [False]

    async def call(function, *arguments):
        assert polls[-1], "nobody waits in the consumer who could be called"
        function(*arguments)

    def late(request):
        return Later(fake.on_offset_commit(0, request, None), 0.05)

    async def work(cluster):
        subscriptions = SubscriptionState()
        strategy = {"partition_assignment_strategy": ("range",)}
        made = member(cluster, subscriptions, call=call, on_commit=names.append, **strategy)

        async def poll():
            polls.append(True)
            await made.poll(0)
            polls.append(False)

        fake.faults[ApiKey.OFFSET_COMMIT] += [late]
        made.membership.request_rejoin("others join")
        made.membership._join_due_ms = 0
        await poll()
        await asyncio.to_thread(wait_until, lambda: fake.committed == {A0: 5, A1: 5}, "the commit")
        async with asyncio.timeout(60):
            await asyncio.wait({made._commit_before})
        assert names == []
        await poll()
        assert [{each: at.offset for each, at in offsets.items()} for offsets in names] == [{A0: 5, A1: 5}]
        await made.close(0)

    with_cluster(fake, work)


@pytest.mark.spec("C3", "G9")
def test_a_callback_that_fails_in_close_does_not_keep_the_member_from_leaving(fake, with_cluster):
    def broken(offsets, error):
        raise ValueError("broken")

    async def work(cluster):
        subscriptions = SubscriptionState()
        made = member(cluster, subscriptions, partition_assignment_strategy=("range",), enable_auto_commit=False)
        made.commits.commit_async({A0: OffsetAndMetadata(3)}, broken)
        with pytest.raises(ValueError, match="broken"):
            await made.close(2000)
        assert not made.membership.is_active
        assert len(fake.requests_of(ApiKey.LEAVE_GROUP)) == 1

    fake.on_leave_group = lambda node, request, code: LeaveGroupResponse()
    with_cluster(fake, work)


@pytest.mark.spec("C3", "G10")
def test_a_commit_that_join_group_overtook_loses_no_partitions(fake, with_cluster):
    def overtaken(request):
        membership.state = MemberState.PREPARING_REBALANCE
        return fake.on_offset_commit(0, request, ErrorCode.ILLEGAL_GENERATION)

    async def work(cluster):
        nonlocal membership
        made = member(cluster, SubscriptionState(), partition_assignment_strategy=("range",), enable_auto_commit=False)
        membership = made.membership
        with pytest.raises(RebalanceInProgressError):
            await made.commits.commit_sync({A0: OffsetAndMetadata(3)}, 5000)
        assert not membership.has_lost_membership
        await made.close(0)

    membership = None
    fake.faults[ApiKey.OFFSET_COMMIT] += [overtaken]
    with_cluster(fake, work)


@pytest.mark.spec("G10")
def test_a_join_that_hangs_is_made_again_when_a_commit_finds_the_coordinator_lost(fakes, with_cluster):
    fakes.faults[ApiKey.JOIN_GROUP] += [SILENT, SILENT]
    fakes.topic("a", 0)
    serve_members(fakes)

    async def work(cluster):
        subscriptions = SubscriptionState()
        metadata = ConsumerMetadata(cluster, subscriptions, lambda: None)
        config = GroupConfig(group_id="g", max_poll_interval_ms=300_000, retry_backoff_ms=5)
        made = ConsumerCoordinator(cluster, config, subscriptions, metadata, lambda: None)
        subscriptions.subscribe(["a"])

        await poll_until(made, lambda: fakes.requests_of(ApiKey.JOIN_GROUP))
        fakes.coordinator = 1
        assert await made.commits.fetch_committed([A0], 3000) == {A0: None}
        await poll_until(made, lambda: len(fakes.requests_of(ApiKey.JOIN_GROUP)) == 2)
        assert [node for node, api_key, _ in fakes.requests if api_key is ApiKey.JOIN_GROUP] == [0, 1]
        assert not cluster._connections.keys() & {(0, COORDINATOR), (0, JOIN)}
        await made.close(0)

    with_cluster(fakes, work)


@pytest.mark.spec("G10")
def test_what_is_said_of_an_earlier_coordinator_is_not_said_of_the_next(fake, with_cluster):
    async def work(cluster):
        membership = Membership(MemberSettings("g"))
        link = CoordinatorLink(cluster, membership, lambda: None)
        await link.find()
        before = await link.wait_until_found(NEVER_MS)
        link.lost("it hangs", before)
        assert not membership.lookup.is_known
        await link.find()
        link.lost("a connection to it could not be opened", before)
        assert membership.lookup.is_known

    with_cluster(fake, work)


@pytest.mark.spec("G10")
@pytest.mark.parametrize("breaks", ["find", "ask"])
def test_what_breaks_a_question_to_the_coordinator_is_raised_by_a_poll(fakes, with_cluster, breaks):
    fakes.topic("a", 0)
    serve_members(fakes)

    async def broken(*arguments):
        raise ValueError("broken")

    async def work(cluster):
        subscriptions = SubscriptionState()
        metadata = ConsumerMetadata(cluster, subscriptions, lambda: None)
        made = ConsumerCoordinator(cluster, GroupConfig(group_id="g"), subscriptions, metadata, lambda: None)
        subscriptions.subscribe(["a"])
        if breaks == "find":
            made._link._finder.node = broken
        else:
            made._link.ask = broken
        with pytest.raises(ClientError, match="broken"):
            await poll_until(made, lambda: False)
        await made.close(0)

    with_cluster(fakes, work)
