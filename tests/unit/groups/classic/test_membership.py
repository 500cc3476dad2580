"""Members, votes and what is counted as it changes."""

from __future__ import annotations

import pytest

from ottla.groups.classic.membership import GroupMembers, GroupMemberState


def member(member_id: str, *protocols: str, instance: str | None = None, rebalance: int = 10) -> GroupMemberState:
    return GroupMemberState(member_id, instance, "c", "/h", rebalance, 10, tuple((name, b"") for name in protocols))


def group(*members: GroupMemberState) -> GroupMembers:
    made = GroupMembers()
    for one in members:
        made.add(one)
    assert made.problems() == []
    return made


@pytest.mark.spec("A5")
@pytest.mark.parametrize(
    ("preferences", "chosen"),
    [
        (["ab", "ab"], "a"),
        (["ab", "ba", "ba"], "b"),
        (["ab", "ba"], "a"),
        (["abc", "cb", "bc"], "b"),
        (["a", "b"], None),
        (["aab", "b"], "b"),
    ],
)
def test_the_vote(preferences: list[str], chosen: str | None):
    members = group(*(member(f"m{number}", *names) for number, names in enumerate(preferences)))
    assert members.select_protocol() == chosen


@pytest.mark.spec("A5")
def test_a_vote_held_as_if_a_member_were_replaced():
    old = member("i-1", "a", "b", instance="i")
    members = group(old, member("m", "b", "a"))
    new = old.replaced_by("i-2")
    new.protocols = (("b", b""),)
    assert (members.select_protocol(), members.select_protocol((old, new))) == ("a", "b")


def test_supports():
    members = group(member("m1", "a", "b"), member("m2", "b", "c"))
    assert members.supports((("c", b""), ("b", b"")))
    assert not members.supports((("a", b""), ("c", b"")))
    members.update(members.get("m2"), (("a", b""),), 5, 5)  # type: ignore[arg-type]
    assert members.supports((("a", b""),))
    members.remove("m1")
    assert not members.supports((("b", b""),))
    assert members.problems() == []


def test_a_protocol_named_twice_counts_once():
    members = group(member("m1", "a", "a"), member("m2", "b", "a"))
    assert members.supports((("a", b""),))
    members.remove("m1")
    assert members.supports((("b", b""),))
    assert members.problems() == []


def test_leadership():
    members = group(member("m1", "a"), member("m2", "a"), member("m3", "a"))
    assert members.leader == "m1"
    members.remove("m1")
    assert members.leader == "m2"
    assert not members.elect_joined_leader()
    third = members.get("m3")
    assert third is not None
    assert members.park_join(third, "token") is None
    assert members.elect_joined_leader()
    assert members.leader == "m3"
    members.remove("m2")
    members.remove("m3")
    assert members.leader is None
    assert not members.elect_joined_leader()


def test_joins_are_counted():
    members = group(member("m1", "a"), member("m2", "a"))
    first, second = members
    assert not members.all_joined
    assert members.park_join(first, "t1") is None
    assert members.park_join(first, "t2") == "t1"
    members.park_join(second, "t3")
    assert (members.joining, members.all_joined) == (2, True)
    members.pending.add("m3")
    assert not members.all_joined
    assert (members.take_join(first), members.take_join(first)) == ("t2", None)
    members.remove("m2")
    members.remove("m3")
    assert (members.joining, members.pending) == (0, set())
    assert members.problems() == []


def test_a_static_member_is_replaced_in_its_place():
    old = member("i-1", "a", instance="i")
    members = group(old, member("m", "a"))
    members.replace(old, old.replaced_by("i-2"))
    assert [one.member_id for one in members] == ["i-2", "m"]
    assert (members.leader, members.static_member_id("i")) == ("i-2", "i-2")
    assert members.problems() == []
    members.remove("i-2")
    assert members.static_member_id("i") is None


def test_rebalance_timeout_is_the_largest():
    assert group(member("m1", "a", rebalance=5), member("m2", "a", rebalance=50)).rebalance_timeout_ms == 50
    assert group().rebalance_timeout_ms == 0


def test_metadata_of_a_protocol_that_is_not_supported_is_a_bug():
    with pytest.raises(KeyError):
        member("m", "a").metadata("b")
    with pytest.raises(KeyError):
        member("m", "a").vote({"b"})


def test_problems_are_found():
    members = group(member("m1", "a", instance="i"))
    (one,) = members
    one.join_token = "behind its back"
    one.protocols = (("b", b""),)
    one.group_instance_id = "j"
    members.leader = "nobody"
    members.pending.add("m1")
    assert len(members.problems()) == 5
