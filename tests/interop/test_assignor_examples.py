"""The examples of requirements A1 to A5 with Apache Kafka's own consumers, with ottla's, and with both in one group."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from support.group_members import GroupMember
from support.ottla_server import OttlaServer
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

#: No session ends by chance: members leave, or are killed when a test is over.
SESSION_MS = 45_000
TIMEOUT_S = 60.0
SETTLED_TIMEOUT_S = 80.0
#: All members of a group have to come before its first rebalance ends, and a busy machine starts Java in seconds.
FIRST_REBALANCE_MS = 8_000

#: What Java's consumer, and ottla's, say to a member that has no assignor in common with the others.
REFUSED = re.compile("protocols are incompatible with those of existing members|INCONSISTENT_GROUP_PROTOCOL")

Start = Callable[..., GroupMember]


@pytest.fixture
def ottla_server(tmp_path: Path) -> Iterator[OttlaServer]:
    """Our broker, which waits long for the first members of a group."""
    delay = {"group.initial.rebalance.delay.ms": str(FIRST_REBALANCE_MS)}
    server = OttlaServer(tmp_path / "ottla", overrides=delay)
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture
def topics(ottla_server: OttlaServer) -> Callable[..., None]:
    """Makes topics: `topics(A=3, B=1)`."""
    admin = AdminClient({"bootstrap.servers": ottla_server.bootstrap})

    def make(**partitions: int) -> None:
        made = admin.create_topics([NewTopic(name, count, 1) for name, count in partitions.items()])
        for one in made.values():
            one.result(TIMEOUT_S)

    return make


#: Whose consumers the members of the group are, in turn.
MAKES = {"java": ["java"], "ottla": ["ottla"], "both": ["ottla", "java"]}


@pytest.fixture(
    params=[
        pytest.param("java", marks=[pytest.mark.needs_kafka, pytest.mark.long]),
        pytest.param("ottla", marks=pytest.mark.long),
        pytest.param("both", marks=pytest.mark.needs_kafka),
    ]
)
def start(request: pytest.FixtureRequest, ottla_server: OttlaServer, tmp_path: Path) -> Iterator[Start]:
    """Starts a consumer: its name, the topics that it subscribes to, its assignors."""
    members: list[GroupMember] = []
    makes = MAKES[request.param]

    def make(name: str, subscribed: Sequence[str], *assignors: str) -> GroupMember:
        member = GroupMember(
            makes[len(members) % len(makes)],
            name,
            tmp_path / "members",
            bootstrap=ottla_server.bootstrap,
            group="examples",
            topic=",".join(subscribed),
            assignors=assignors,
            session_ms=SESSION_MS,
        )
        members.append(member)
        return member

    yield make
    for member in members:
        member.kill9()


def wait_until_owned(expected: Mapping[GroupMember, set[object]]) -> None:
    """Until every member owns just that. They join within the delay of a group's first rebalance: in one generation."""

    def owned() -> bool:
        return all(member.owned() == partitions for member, partitions in expected.items())

    wait_until(owned, lambda: "\n".join(member.story() for member in expected), SETTLED_TIMEOUT_S, 0.1)


def rebalances(member: GroupMember) -> int:
    """How many assignments the member was told."""
    return sum(event["event"] == "assigned" for event in member.events())


@pytest.mark.spec("A1")
def test_range(topics: Callable[..., None], start: Start) -> None:
    topics(t=4)
    members = [start(name, ["t"], "range") for name in ("c0", "c1", "c2")]
    wait_until_owned(dict(zip(members, [{0, 1}, {2}, {3}], strict=True)))


@pytest.mark.spec("A2")
def test_round_robin(topics: Callable[..., None], start: Start) -> None:
    topics(A=3, B=3, C=3)
    first = start("C0", ["A", "B"], "roundrobin")
    second = start("C1", ["B", "C"], "roundrobin")
    wait_until_owned({first: {"A-0", "A-1", "A-2", "B-1"}, second: {"B-0", "B-2", "C-0", "C-1", "C-2"}})


@pytest.mark.spec("A3")
def test_sticky(topics: Callable[..., None], start: Start) -> None:
    topics(T0=2, T1=2, T2=2, T3=2)
    members = [start(name, ["T0", "T1", "T2", "T3"], "sticky") for name in ("C0", "C1", "C2")]
    shares: list[set[object]] = [{"T0-0", "T1-1", "T3-0"}, {"T0-1", "T2-0", "T3-1"}, {"T1-0", "T2-1"}]
    wait_until_owned(dict(zip(members, shares, strict=True)))
    members[1].leave()
    # Five stay, and those of C1 are shared out.
    wait_until_owned({members[0]: shares[0] | {"T0-1"}, members[2]: shares[2] | {"T2-0", "T3-1"}})


@pytest.mark.spec("A3")
def test_sticky_with_different_subscriptions(topics: Callable[..., None], start: Start) -> None:
    topics(T0=1, T1=2, T2=3)
    members = [
        start("C0", ["T0"], "sticky"),
        start("C1", ["T0", "T1"], "sticky"),
        start("C2", ["T0", "T1", "T2"], "sticky"),
    ]
    shares: list[set[object]] = [{0}, {"T1-0", "T1-1"}, {"T2-0", "T2-1", "T2-2"}]
    wait_until_owned(dict(zip(members, shares, strict=True)))
    members[0].leave()
    wait_until_owned({members[1]: shares[1] | {"T0-0"}, members[2]: shares[2]})


@pytest.mark.spec("A4")
def test_cooperative(topics: Callable[..., None], start: Start) -> None:
    topics(p=3)
    members = [start(name, ["p"], "cooperative-sticky") for name in ("consumer1", "consumer2")]
    wait_until_owned(dict(zip(members, [{0, 2}, {1}], strict=True)))
    before = [len(member.events()) for member in members]
    third = start("consumer3", ["p"], "cooperative-sticky")
    wait_until_owned({members[0]: {0}, members[1]: {1}, third: {2}})
    since = [event for member, first in zip(members, before, strict=True) for event in member.events()[first:]]
    revoked = [event["partitions"] for event in since if event["event"] == "revoked"]
    assert revoked == [[2]], "p0 and p1 were consumed throughout"


@pytest.mark.spec("A5")
def test_votes(ottla_server: OttlaServer, topics: Callable[..., None], start: Start) -> None:
    topics(v=4, w=4)
    members = [
        start("C0", ["v", "w"], "range", "roundrobin"),
        start("C1", ["v", "w"], "range", "roundrobin"),
        start("C2", ["v", "w"], "roundrobin"),
    ]
    # What all support wins, however many votes the other one has.
    wait_until_owned(dict(zip(members, [{"v-0", "v-3", "w-2"}, {"v-1", "w-0", "w-3"}, {"v-2", "w-1"}], strict=True)))
    before = [rebalances(member) for member in members]
    stranger = start("C3", ["v", "w"], "sticky")
    wait_until(lambda: not stranger.running, "the end of a consumer that has nothing in common with the group")
    assert REFUSED.search(stranger.err.read_text())
    assert [rebalances(member) for member in members] == before, "the others are not disturbed"
