"""What would move if a group changed."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ottla.assign.assignor import (
    AbstractPartitionAssignor,
    MemberSubscription,
    RebalanceProtocol,
    SubscribedTopic,
)
from ottla.assign.consumer_protocol import Partitions
from ottla.assign.registry import BUILT_IN
from ottla.assign.simulation import (
    MOST_ROUNDS,
    GroupChange,
    Impossible,
    Outcome,
    SimulatedGroup,
    SimulatedMember,
    newcomers,
    owners,
    settle,
    simulate,
)


def group_of(topics: Mapping[str, int], *members: str) -> SimulatedGroup:
    """All members subscribe to all topics and own nothing yet."""
    return SimulatedGroup(
        {name: SubscribedTopic(count) for name, count in topics.items()},
        {name: SimulatedMember(tuple(topics)) for name in members},
    )


def outcome_of(group: SimulatedGroup, change: GroupChange, assignor: str) -> Outcome:
    outcome = simulate(group, change, BUILT_IN[assignor])
    assert isinstance(outcome, Outcome), outcome
    return outcome


@pytest.mark.spec("A1")
def test_range_moves_what_its_rule_moves() -> None:
    outcome = outcome_of(group_of({"t": 4}, "a", "b"), GroupChange(joining={"c": SimulatedMember(("t",))}), "range")
    assert outcome.before == {"a": {"t": (0, 1)}, "b": {"t": (2, 3)}}
    assert outcome.after == {"a": {"t": (0, 1)}, "b": {"t": (2,)}, "c": {"t": (3,)}}
    assert (outcome.kept, outcome.moved, outcome.taken_over, outcome.paused) == (3, 1, 0, 4)
    assert not outcome.cooperative
    assert len(outcome.rounds) == 1
    assert outcome.spread == (1, 2)


@pytest.mark.spec("A3")
def test_sticky_keeps_what_it_can_when_a_member_leaves() -> None:
    group = group_of({f"T{number}": 2 for number in range(4)}, "C0", "C1", "C2")
    sticky = outcome_of(group, GroupChange(leaving=("C1",)), "sticky")
    assert (sticky.kept, sticky.moved, sticky.taken_over) == (5, 0, 3)
    assert outcome_of(group, GroupChange(leaving=("C1",)), "roundrobin").kept == 3


@pytest.mark.spec("A4")
def test_cooperative_members_stop_only_what_moves() -> None:
    members = {"consumer1": SimulatedMember(("p",), {"p": (0, 2)}), "consumer2": SimulatedMember(("p",), {"p": (1,)})}
    group = SimulatedGroup({"p": SubscribedTopic(3)}, members)
    change = GroupChange(joining={"consumer3": SimulatedMember(("p",))})
    outcome = outcome_of(group, change, "cooperative-sticky")
    first, second = (owners(assigned) for assigned in outcome.rounds)
    assert first == {("p", 0): "consumer1", ("p", 1): "consumer2"}, "what moves is given up first"
    assert second == {("p", 0): "consumer1", ("p", 1): "consumer2", ("p", 2): "consumer3"}
    assert (outcome.kept, outcome.moved, outcome.paused) == (2, 1, 1)
    assert outcome.settled
    assert outcome_of(group, change, "sticky").paused == 3


@pytest.mark.parametrize("assignor", BUILT_IN)
def test_new_partitions_are_nobodys_loss(assignor: str) -> None:
    group = settle(group_of({"t": 2}, "a", "b"), BUILT_IN[assignor])
    outcome = outcome_of(group, GroupChange(partitions={"t": 4}), assignor)
    assert (outcome.first_owned, outcome.unowned) == (2, 0)
    assert outcome.kept + outcome.moved == 2


def test_a_topic_that_nobody_knows_has_no_partitions() -> None:
    group = SimulatedGroup({}, {"a": SimulatedMember(("t",))})
    assert outcome_of(group, GroupChange(), "range").after == {"a": {}}
    assert outcome_of(group, GroupChange(partitions={"t": 1}), "range").after == {"a": {"t": (0,)}}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (GroupChange(leaving=("z",)), "z cannot leave: it is not a member; members are a, b"),
        (GroupChange(joining={"a": SimulatedMember(("t",))}), "a cannot join: it is a member already"),
        (GroupChange(partitions={"t": 1}), "topic t has 2 partitions and cannot have fewer (1)"),
        (GroupChange(leaving=("a", "b")), "no member would be left in the group"),
    ],
)
def test_what_cannot_be(change: GroupChange, told: str) -> None:
    assert simulate(group_of({"t": 2}, "a", "b"), change, BUILT_IN["range"]) == Impossible(told)


def test_newcomers_have_names_of_their_own() -> None:
    group = group_of({"t": 2, "u": 1}, "new-1", "b")
    assert newcomers(group, 2) == {"new-2": SimulatedMember(("t", "u")), "new-3": SimulatedMember(("t", "u"))}


class Restless(AbstractPartitionAssignor):
    """A cooperative assignor that never leaves a partition where it is."""

    name = "restless"
    supported_protocols = (RebalanceProtocol.COOPERATIVE,)

    def assign_partitions(
        self, partition_counts: Mapping[str, int], subscriptions: Mapping[str, MemberSubscription]
    ) -> dict[str, Partitions]:
        first, *others = sorted(subscriptions, key=lambda one: bool(subscriptions[one].subscription.owned_partitions))
        return {first: {"t": (0,)}, **{name: {} for name in others}}


def test_who_never_settles_is_found_out() -> None:
    group = SimulatedGroup(
        {"t": SubscribedTopic(1)}, {"a": SimulatedMember(("t",), {"t": (0,)}), "b": SimulatedMember(("t",))}
    )
    outcome = simulate(group, GroupChange(), Restless)
    assert isinstance(outcome, Outcome)
    assert len(outcome.rounds) == MOST_ROUNDS
    assert not outcome.settled
