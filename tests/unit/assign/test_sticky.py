"""The sticky assignors: the examples that everybody knows, what members say of themselves, and odd members."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ottla.assign.assignor import (
    ClusterMetadata,
    GroupMetadata,
    MemberSubscription,
    PartitionAssignor,
    RebalanceProtocol,
    SubscribedTopic,
)
from ottla.assign.consumer_protocol import HIGHEST_VERSION, Assignment, Partitions, Subscription
from ottla.assign.cooperative import CooperativeStickyAssignor
from ottla.assign.sticky import StickyAssignor, decode_user_data, encode_user_data
from ottla.assign.sticky_general import earlier_owners
from ottla.assign.sticky_partitions import MemberData, NumberedPartitions, previous_owners


class Group:
    """Consumers with an assignor each, the first of which leads, and what they have."""

    def __init__(self, assignor: type[PartitionAssignor], topics: Mapping[str, int]) -> None:
        self._assignor = assignor
        self._cluster = ClusterMetadata({name: SubscribedTopic(count) for name, count in topics.items()})
        self._generation = 0
        self._members: dict[str, PartitionAssignor] = {}
        self._topics: dict[str, tuple[str, ...]] = {}
        self.owned: dict[str, Partitions] = {}

    def join(self, member_id: str, *topics: str) -> None:
        self._members[member_id] = self._assignor()
        self._topics[member_id] = topics or tuple(self._cluster.topics)
        self.owned[member_id] = {}

    def leave(self, member_id: str) -> None:
        for of_members in (self._members, self._topics, self.owned):
            del of_members[member_id]

    def rebalance(self) -> dict[str, set[str]]:
        """What everybody has then, as topic-partition texts."""
        cooperative = RebalanceProtocol.COOPERATIVE in self._assignor.supported_protocols
        sent = {
            member_id: MemberSubscription(
                Subscription(
                    HIGHEST_VERSION,
                    self._topics[member_id],
                    member.subscription_user_data(self._topics[member_id]),
                    self.owned[member_id] if cooperative else {},
                    self._generation or -1,
                    None,
                )
            )
            for member_id, member in self._members.items()
        }
        assigned = next(iter(self._members.values())).assign(self._cluster, sent)
        self._generation += 1
        for member_id, one in assigned.items():
            self.owned[member_id] = one.partitions
            self._members[member_id].on_assignment(one, GroupMetadata("g", self._generation, member_id))
        return {member_id: texts(one.partitions) for member_id, one in assigned.items()}


def texts(partitions: Partitions) -> set[str]:
    return {f"{topic}-{index}" for topic, indexes in partitions.items() for index in indexes}


@pytest.mark.spec("A3")
def test_equal_subscriptions_keep_what_they_had():
    group = Group(StickyAssignor, {"T0": 2, "T1": 2, "T2": 2, "T3": 2})
    for member_id in ("C0", "C1", "C2"):
        group.join(member_id)
    assert group.rebalance() == {
        "C0": {"T0-0", "T1-1", "T3-0"},
        "C1": {"T0-1", "T2-0", "T3-1"},
        "C2": {"T1-0", "T2-1"},
    }
    group.leave("C1")
    assert group.rebalance() == {"C0": {"T0-0", "T1-1", "T3-0", "T0-1"}, "C2": {"T1-0", "T2-1", "T2-0", "T3-1"}}


@pytest.mark.spec("A3")
def test_unequal_subscriptions_keep_what_they_had():
    group = Group(StickyAssignor, {"T0": 1, "T1": 2, "T2": 3})
    group.join("C0", "T0")
    group.join("C1", "T0", "T1")
    group.join("C2", "T0", "T1", "T2")
    assert group.rebalance() == {"C0": {"T0-0"}, "C1": {"T1-0", "T1-1"}, "C2": {"T2-0", "T2-1", "T2-2"}}
    group.leave("C0")
    assert group.rebalance() == {"C1": {"T1-0", "T1-1", "T0-0"}, "C2": {"T2-0", "T2-1", "T2-2"}}


@pytest.mark.spec("A4")
def test_what_moves_is_nobodys_for_one_rebalance():
    group = Group(CooperativeStickyAssignor, {"t": 3})
    group.join("consumer1")
    group.join("consumer2")
    assert group.rebalance() == {"consumer1": {"t-0", "t-2"}, "consumer2": {"t-1"}}
    group.join("consumer3")
    assert group.rebalance() == {"consumer1": {"t-0"}, "consumer2": {"t-1"}, "consumer3": set()}
    assert group.rebalance() == {"consumer1": {"t-0"}, "consumer2": {"t-1"}, "consumer3": {"t-2"}}


@pytest.mark.spec("A4")
def test_what_moves_between_unequal_members_is_nobodys_for_one_rebalance():
    group = Group(CooperativeStickyAssignor, {"t": 4, "u": 1})
    group.join("one", "t")
    assert group.rebalance() == {"one": {"t-0", "t-1", "t-2", "t-3"}}
    group.join("two", "t", "u")
    moving = group.rebalance()
    assert len(moving["one"]) + len(moving["two"]) == 4
    assert moving["two"] == {"u-0"}
    settled = group.rebalance()
    assert moving["one"] == settled["one"]
    assert settled["one"] | settled["two"] == {"t-0", "t-1", "t-2", "t-3", "u-0"}


def test_names_and_protocols():
    assert (StickyAssignor.name, CooperativeStickyAssignor.name) == ("sticky", "cooperative-sticky")
    assert StickyAssignor.supported_protocols == (RebalanceProtocol.EAGER,)
    assert CooperativeStickyAssignor.supported_protocols == (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)


@pytest.mark.parametrize("assignor", [StickyAssignor, CooperativeStickyAssignor])
def test_nothing_to_give_and_nobody_to_have_it(assignor: type[PartitionAssignor]):
    assert assignor().assign(ClusterMetadata({}), {}) == {}
    lone = {"m": MemberSubscription(Subscription(0, ("not-there",), None, {}, -1, None))}
    assert assignor().assign(ClusterMetadata({}), lone) == {"m": Assignment(0, {}, None)}
    mixed = lone | {"n": MemberSubscription(Subscription(0, (), None, {}, -1, None))}
    assert assignor().assign(ClusterMetadata({}), mixed) == {
        "m": Assignment(0, {}, None),
        "n": Assignment(0, {}, None),
    }


def test_user_data_of_sticky():
    assert StickyAssignor().subscription_user_data(["t"]) is None
    assignor = StickyAssignor()
    assignor.on_assignment(Assignment(0, {"t": (2, 0)}, None), GroupMetadata("g", 5, "m"))
    data = assignor.subscription_user_data(["t"])
    assert data is not None
    assert data.hex() == "00000001" + "0001" + b"t".hex() + "00000002" + "00000002" + "00000000" + "00000005"
    assert decode_user_data(data) == MemberData({"t": (2, 0)}, 5)
    assert decode_user_data(data[:-4]) == MemberData({"t": (2, 0)}, None)
    assert decode_user_data(data + b"more") == MemberData({"t": (2, 0)}, 5)


@pytest.mark.parametrize(
    "data",
    [
        b"\0",
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        b"\0\0\0\1",
        b"\0\0\0\1\xff\xff\0\0\0\0",
        b"\0\0\0\1\0\5t\0\0\0\0",
        b"\0\0\0\1\0\1t\0\0\0",
        b"\0\0\0\1\0\1t\xff\xff\xff\xff",
        b"\0\0\0\1\0\1t\x7f\xff\xff\xff\0\0\0\0",
    ],
)
def test_user_data_that_cannot_be_read_is_as_if_the_member_had_nothing(data: bytes):
    assert decode_user_data(data) == MemberData({}, -1)


def test_a_topic_may_stand_twice_in_user_data():
    one = encode_user_data({"t": (1,)}, 0)[4:-4]
    assert decode_user_data(b"\0\0\0\2" + one + one + b"\0\0\0\7") == MemberData({"t": (1, 1)}, 7)


def test_user_data_of_cooperative_sticky():
    assignor = CooperativeStickyAssignor()
    assert assignor.subscription_user_data(["t"]) == b"\xff\xff\xff\xff"
    assignor.on_assignment(Assignment(0, {}, None), GroupMetadata("g", 5, "m"))
    assert assignor.subscription_user_data(["t"]) == b"\0\0\0\5"


@pytest.mark.parametrize(
    ("stated", "user_data", "generation"),
    [(3, b"\0\0\0\5", 3), (-1, b"\0\0\0\5", 5), (-1, None, None), (-1, b"\0\0", -1), (0, None, 0)],
)
def test_where_cooperative_members_say_their_generation(stated: int, user_data: bytes | None, generation: int | None):
    sent = Subscription(HIGHEST_VERSION, ("t",), user_data, {"t": (1,)}, stated, None)
    assert CooperativeStickyAssignor().member_data(sent) == MemberData({"t": (1,)}, generation)


def test_earlier_owners_are_of_an_older_generation():
    numbered = NumberedPartitions(["t"], {"t": 4})
    data = {
        "new": MemberData({"t": (0,)}, 9),
        "old": MemberData({"t": (1, 2)}, 3),
        "older": MemberData({"t": (2, 3, 4), "gone": (0,)}, 2),
        "as old": MemberData({"t": (1,)}, 3),
        "unknown": MemberData({"t": (3,)}, None),
    }
    assert earlier_owners(numbered, data, 9) == {1: "old", 2: "old", 3: "older"}
    assert earlier_owners(numbered, data, 3) == {2: "older", 3: "older"}
    assert earlier_owners(numbered, {"unknown": data["unknown"]}, 0) == {3: "unknown"}
    assert earlier_owners(numbered, {"unknown": data["unknown"]}, -1) == {}


def test_claims_are_settled_by_generation():
    numbered = NumberedPartitions(["t"], {"t": 3})
    data = {"a": MemberData({"t": (0, 1, 2)}, 2), "b": MemberData({"t": (0,)}, 3), "c": MemberData({"t": (1, 0)}, 2)}
    settled = previous_owners(numbered, data, {"a": 2, "b": 3, "c": 2})
    assert settled.owned == {"a": [2], "b": [0], "c": []}
    assert settled.contested == {1}
