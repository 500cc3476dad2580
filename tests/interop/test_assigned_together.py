"""Groups that our assignors share with Java's: we lead a Java consumer, a Java consumer leads us."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from interop.raw import RawConnection
from interop.wire_json import Json
from ottla.assign.assignor import (
    ClusterMetadata,
    GroupMetadata,
    MemberSubscription,
    PartitionAssignor,
    RebalanceProtocol,
    SubscribedTopic,
)
from ottla.assign.consumer_protocol import (
    HIGHEST_VERSION,
    Assignment,
    Partitions,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from ottla.assign.registry import BUILT_IN, common_protocol
from support.brokers import RunningBroker
from support.group_members import GroupMember
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.slow]

NONE, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 0, 27, 79
REQUIREMENTS = {"range": "A1", "roundrobin": "A2", "sticky": "A3", "cooperative-sticky": "A4"}
PARTITIONS = 7
SESSION_MS = 10_000
#: Of the member that sends its heartbeats between other work.
BY_HAND_MS = 60_000
TIMEOUT_S = 60.0


class OurMember:
    """A member that assigns with one of our assignors, by hand: it rebalances when it is told to."""

    def __init__(self, raw: RawConnection, group: str, topic: str, assignor: PartitionAssignor) -> None:
        self.raw = raw
        self.group = group
        self.topic = topic
        self.assignor = assignor
        self.member_id = ""
        self.generation = -1
        self.owned: Partitions = {}
        #: What it gave everybody, when it led.
        self.planned: dict[str, Assignment] = {}

    def rebalance(self) -> None:
        """Join and sync, and lead if need be; once more for as long as it has to give something up."""
        if common_protocol([self.assignor]) is RebalanceProtocol.EAGER:
            self.owned = {}
        joined = self._join()
        self.generation = joined["generation_id"]
        leads = joined["leader"] == self.member_id
        self.planned = self._plan(joined["members"]) if leads else {}
        answer = self.raw.request(
            "SyncGroup",
            5,
            **self._me(),
            protocol_type="consumer",
            protocol_name=self.assignor.name,
            assignments=[
                {"member_id": member_id, "assignment": encode_assignment(one.partitions, one.user_data)}
                for member_id, one in self.planned.items()
            ],
        )
        if answer["error_code"] == REBALANCE_IN_PROGRESS:
            self.rebalance()
            return
        assert answer["error_code"] == NONE
        assignment = decode_assignment(answer["assignment"])
        assert isinstance(assignment, Assignment)
        given_up = {(t, p) for t, of in self.owned.items() for p in of} - {
            (t, p) for t, of in assignment.partitions.items() for p in of
        }
        self.assignor.on_assignment(assignment, GroupMetadata(self.group, self.generation, self.member_id))
        self.owned = assignment.partitions
        if given_up:
            self.rebalance()

    def follow(self) -> None:
        """A heartbeat, and what it asks for."""
        code = self.raw.request("Heartbeat", 4, **self._me())["error_code"]
        assert code in (NONE, REBALANCE_IN_PROGRESS)
        if code == REBALANCE_IN_PROGRESS:
            self.rebalance()

    def described(self) -> list[Json]:
        """The members as the coordinator tells them, with what they sent and got."""
        (group,) = self.raw.request("DescribeGroups", 5, groups=[self.group])["groups"]
        members: list[Json] = group["members"] if group["group_state"] == "Stable" else []
        return members

    def plan_for(self, metadata: dict[str, bytes]) -> dict[str, Assignment]:
        """What our assignor makes of what the members sent."""
        subscriptions = {}
        for member_id, data in metadata.items():
            subscription = decode_subscription(data)
            assert isinstance(subscription, Subscription)
            subscriptions[member_id] = MemberSubscription(subscription)
        return self.assignor.assign(ClusterMetadata({self.topic: SubscribedTopic(PARTITIONS)}), subscriptions)

    def _plan(self, members: list[Json]) -> dict[str, Assignment]:
        return self.plan_for({one["member_id"]: one["metadata"] for one in members})

    def _me(self) -> Json:
        return {"group_id": self.group, "generation_id": self.generation, "member_id": self.member_id}

    def _join(self) -> Json:
        metadata = encode_subscription(
            [self.topic],
            self.assignor.subscription_user_data([self.topic]),
            HIGHEST_VERSION,
            owned_partitions=self.owned,
            generation_id=self.generation,
        )
        body: Json = {
            "group_id": self.group,
            "session_timeout_ms": BY_HAND_MS,
            "rebalance_timeout_ms": BY_HAND_MS,
            "protocol_type": "consumer",
            "protocols": [{"name": self.assignor.name, "metadata": metadata}],
        }
        joined = self.raw.request("JoinGroup", 9, member_id=self.member_id, **body)
        if joined["error_code"] == MEMBER_ID_REQUIRED:
            self.member_id = joined["member_id"]
            joined = self.raw.request("JoinGroup", 9, member_id=self.member_id, **body)
        assert joined["error_code"] == NONE
        return joined


#: Round robin sends and gets what range does; it is left to long runs.
EVERYDAY = {"range", "sticky", "cooperative-sticky"}


def marks_of(name: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.spec(REQUIREMENTS[name]), *([] if name in EVERYDAY else [pytest.mark.long])]


@pytest.fixture(params=[pytest.param(name, marks=marks_of(name)) for name in BUILT_IN])
def ours(request: pytest.FixtureRequest, raw: RawConnection, broker: RunningBroker, unique: str) -> OurMember:
    """Our member of a group of its own, with each of our assignors; it has not joined yet."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (created,) = admin.create_topics([NewTopic(unique, PARTITIONS)], request_timeout=TIMEOUT_S).values()
    created.result(TIMEOUT_S)

    def coordinated() -> bool:
        return raw.request("FindCoordinator", 1, key=unique, key_type=0)["error_code"] == NONE

    wait_until(coordinated, "the coordinator")
    return OurMember(raw, unique, unique, BUILT_IN[request.param]())


@pytest.fixture
def java(ours: OurMember, broker: RunningBroker, tmp_path: Path) -> Iterator[GroupMember]:
    """A Java consumer of the same group and assignor, started."""
    member = GroupMember(
        "java",
        "java",
        tmp_path,
        bootstrap=broker.bootstrap,
        group=ours.group,
        topic=ours.topic,
        assignors=[ours.assignor.name],
        session_ms=SESSION_MS,
    )
    yield member
    if member.running:
        member.kill9()


def settled(ours: OurMember, java: GroupMember) -> bool:
    """Whether both have what the coordinator says, and the two together have everything."""
    ours.follow()
    got = {one["member_id"]: decode_assignment(one["member_assignment"]) for one in ours.described()}
    if len(got) != 2 or ours.member_id not in got:
        return False
    told = [one.partitions.get(ours.topic, ()) for one in got.values() if isinstance(one, Assignment)]
    mine = ours.owned.get(ours.topic, ())
    return (
        sorted(sum(told, ())) == list(range(PARTITIONS)) and java.owned() == set(range(PARTITIONS)) - set(mine) != set()
    )


def test_we_lead_a_java_consumer(ours: OurMember, request: pytest.FixtureRequest) -> None:
    ours.rebalance()
    assert sorted(ours.owned[ours.topic]) == list(range(PARTITIONS))
    java: GroupMember = request.getfixturevalue("java")
    wait_until(lambda: settled(ours, java), lambda: java.story())
    before = java.owned()
    assert len(before) in (PARTITIONS // 2, PARTITIONS // 2 + 1)
    assert len(ours.planned) == 2

    # The leader's join begins another rebalance, in which Java's consumer tells what it has.
    generation = ours.generation
    ours.rebalance()
    wait_until(lambda: settled(ours, java), lambda: java.story())
    assert ours.generation > generation
    assert java.owned() == before
    java.leave()
    wait_until(lambda: ours.follow() or len(ours.owned[ours.topic]) == PARTITIONS, "everything back")


def test_a_java_consumer_leads_us(ours: OurMember, java: GroupMember) -> None:
    wait_until(lambda: java.owned() == set(range(PARTITIONS)), lambda: java.story())
    ours.rebalance()
    wait_until(lambda: settled(ours, java), lambda: java.story())
    assert ours.planned == {}
    members = ours.described()
    plan = ours.plan_for({one["member_id"]: one["member_metadata"] for one in members})
    got = {one["member_id"]: decode_assignment(one["member_assignment"]) for one in members}
    assert {member_id: list(one.partitions.items()) for member_id, one in plan.items()} == {
        member_id: list(one.partitions.items()) for member_id, one in got.items() if isinstance(one, Assignment)
    }
