"""Evidence of a rebalance: schema, causes, moves, pauses."""

from __future__ import annotations

import json

import pytest

from ottla.assign.consumer_protocol import encode_assignment, encode_subscription
from ottla.groups import evidence as module
from ottla.groups.classic.membership import GroupMemberState
from ottla.groups.classic.rebalancing import cause_of
from ottla.groups.evidence import (
    CAUSE_LIMIT,
    MEMBER_LIMIT,
    MOVED_LIMIT,
    Cause,
    CauseEntry,
    RebalanceRecorder,
    owned_partitions,
    partition_count_cause,
    rejoin_cause,
)

pytestmark = pytest.mark.spec("G10")


def member(
    member_id: str, partitions: list[int], instance: str | None = None, protocol: str = "range"
) -> GroupMemberState:
    assignment = encode_assignment({"t": partitions}) if partitions else b""
    metadata = ((protocol, encode_subscription(["t"])),)
    return GroupMemberState(member_id, instance, "client", "/host", 1, 1, metadata, assignment)


def recorder(before: dict[str, list[int]]) -> RebalanceRecorder:
    owned = {who: {("t", index): None for index in indexes} for who, indexes in before.items()}
    made = RebalanceRecorder("g", "consumer", 4, 1000, owned)
    made.add_cause(CauseEntry(Cause.MEMBER_JOINED, 1000, "c", None, "client", "/host", "why"))
    return made


def settled(made: RebalanceRecorder, at_ms: int = 1500) -> RebalanceRecorder:
    made.joined_at_ms, made.stable_at_ms, made.outcome = 1200, at_ms, "stable"
    return made


def test_every_field_of_the_schema():
    made = settled(recorder({"a": [0, 1], "b": [2]}))
    made.member_notified("a", 1100)
    for who in ("a", "b", "c"):
        made.joined(who, 1150)
        made.joined(who, 1180)
        made.synced(who, 1250)
        made.answered(who, 1500)
    closed = made.close(5, "range", "a", [member("a", [0]), member("b", [2]), member("c", [1])], 1500)
    value = json.loads(closed.encode())
    assert value == {
        "version": 1,
        "group": "g",
        "protocol_type": "consumer",
        "generation": 5,
        "previous_generation": 4,
        "outcome": "stable",
        "assignor": "range",
        "started_at_ms": 1000,
        "joined_at_ms": 1200,
        "stable_at_ms": 1500,
        "duration_ms": 500,
        "causes": [
            {
                "cause": "member_joined",
                "at_ms": 1000,
                "member_id": "c",
                "group_instance_id": None,
                "client_id": "client",
                "client_host": "/host",
                "detail": "why",
            }
        ],
        "cause_count": 1,
        "leader": "a",
        "members": [
            told_of("a", 1100, 400, before=2, after=1, kept=1, gained=0, given_up=1),
            told_of("b", None, 350, before=1, after=1, kept=1, gained=0, given_up=0),
            told_of("c", None, 350, before=0, after=1, kept=0, gained=1, given_up=0),
        ],
        "member_count": 3,
        "removed": [],
        "moved": [{"topic": "t", "partition": 1, "from": "a", "to": "c"}],
        "moved_count": 1,
        "kept_count": 2,
    }
    for name in value:
        assert name in (module.__doc__ or ""), f"{name} is not documented"
    for name in value["members"][0]:
        assert name in (module.__doc__ or ""), f"{name} is not documented"


def told_of(who: str, told: int | None, pause: int, **partitions: int) -> dict[str, object]:
    return {
        "member_id": who,
        "group_instance_id": None,
        "client_id": "client",
        "client_host": "/host",
        "told_at_ms": told,
        "joined_at_ms": 1150,
        "synced_at_ms": 1250,
        "answered_at_ms": 1500,
        "pause_ms": pause,
        "cooperative": False,
    } | {f"partitions_{name}": count for name, count in partitions.items()}


def test_who_went_and_where_its_partitions_are():
    made = settled(recorder({"a": [0], "b": [1]}))
    made.remove(CauseEntry(Cause.SESSION_EXPIRED, 1000, "b", None, "client", "/b"))
    value = made.close(5, "range", "a", [member("a", [0, 1])], 1500).value
    assert value["removed"] == [
        {
            "cause": "session_expired",
            "member_id": "b",
            "group_instance_id": None,
            "client_id": "client",
            "client_host": "/b",
        }
    ]
    assert value["moved"] == [{"topic": "t", "partition": 1, "from": "b", "to": "a"}]


def test_a_static_member_under_a_new_id_has_moved_nothing():
    made = settled(recorder({"i": [0, 1]}))
    value = made.close(5, "range", "i-2", [member("i-2", [0, 1], instance="i")], 1500).value
    assert (value["moved"], value["kept_count"]) == ([], 2)


def test_without_an_assignment_nothing_is_said_of_partitions():
    value = recorder({"a": [0]}).close(5, None, None, [member("a", [0])], 1500).value
    assert (value["outcome"], value["moved"], value["moved_count"]) == ("superseded", [], 0)
    assert value["members"][0]["partitions_after"] is None
    assert value["members"][0]["pause_ms"] is None


@pytest.mark.spec("A4")
def test_a_cooperative_member_pauses_only_for_what_it_gave_up():
    made = settled(recorder({"a": [0, 1], "b": [2]}))
    for who in ("a", "b"):
        made.joined(who, 1100)
        made.answered(who, 1500)
    members = [member("a", [0], protocol="cooperative-sticky"), member("b", [2], protocol="cooperative-sticky")]
    value = made.close(5, "cooperative-sticky", "a", members, 1500).value
    assert [(m["pause_ms"], m["cooperative"]) for m in value["members"]] == [(400, True), (0, True)]
    assert value["moved"] == [{"topic": "t", "partition": 1, "from": "a", "to": None}]
    assert value["moved_count"] == 0


def test_lists_are_bounded_and_counts_are_not():
    made = settled(recorder({"a": list(range(MOVED_LIMIT + 10))}))
    for number in range(CAUSE_LIMIT * 2):
        made.add_cause(CauseEntry(Cause.MEMBER_LEFT, number, f"m{number}"))
        made.remove(CauseEntry(Cause.MEMBER_LEFT, number, f"m{number}"))
    many = [member("b", list(range(MOVED_LIMIT + 10)))] + [member(f"x{n}", []) for n in range(MEMBER_LIMIT)]
    made.causes[0].detail = "x" * 1000
    value = made.close(5, "range", "b", many, 1500).value
    assert (len(value["members"]), value["member_count"]) == (MEMBER_LIMIT, MEMBER_LIMIT + 1)
    assert len(value["causes"][0]["detail"]) == 255
    assert (len(value["causes"]), value["cause_count"], len(value["removed"])) == (100, 201, 100)
    assert (len(value["moved"]), value["moved_count"]) == (MOVED_LIMIT, MOVED_LIMIT + 10)


@pytest.mark.parametrize(
    ("before", "after", "cause"),
    [
        (encode_subscription(["t"]), encode_subscription(["t", "u"]), Cause.SUBSCRIPTION_CHANGED),
        (encode_subscription(["t"]), encode_subscription(["t"], b"user data"), Cause.METADATA_CHANGED),
        (encode_subscription(["t"]), b"", Cause.METADATA_CHANGED),
        (
            encode_subscription(["t"], None, 1, owned_partitions={"t": [0, 1]}),
            encode_subscription(["t"], None, 1, owned_partitions={"t": [0]}),
            Cause.PARTITIONS_GIVEN_UP,
        ),
        (
            encode_subscription(["t"], None, 1, owned_partitions={"t": [0]}),
            encode_subscription(["t"], None, 1, owned_partitions={"t": [0, 1]}),
            Cause.METADATA_CHANGED,
        ),
    ],
)
def test_causes_of_a_rejoin(before: bytes, after: bytes, cause: Cause):
    assert rejoin_cause("consumer", before, after) is cause
    assert rejoin_cause("connect", before, after) is Cause.METADATA_CHANGED


def test_causes_of_changed_partition_counts():
    assert partition_count_cause(0, 3) is Cause.TOPIC_CREATED
    assert partition_count_cause(3, 0) is Cause.TOPIC_DELETED
    assert partition_count_cause(3, 6) is Cause.PARTITIONS_ADDED


def test_assignments_that_cannot_be_read_own_nothing():
    assert owned_partitions("consumer", b"\x00") == {}
    assert owned_partitions("connect", encode_assignment({"t": [0]})) == {}
    assert list(owned_partitions("consumer", encode_assignment({"t": [1, 0]}))) == [("t", 1), ("t", 0)]


def test_the_line_for_the_log():
    made = settled(recorder({"a": [0]}))
    made.add_cause(CauseEntry(Cause.MEMBER_LEFT, 1, "x"))
    line = made.close(5, "range", "a", [member("a", [0])], 1500).summary
    assert line == (
        "group g: generation 5 stable after 500 ms; member_joined c and 1 more; 1 members, 0 partitions moved"
    )


@pytest.mark.parametrize(
    ("reason", "detail"),
    [
        (None, None),
        ("lunch", "lunch"),
        ("rebalance failed due to MemberIdRequiredException", None),
        ("need to re-join with the given member-id: c-1-af3", None),
    ],
)
def test_the_second_round_of_a_first_join_is_no_cause(reason: str | None, detail: str | None):
    assert cause_of(Cause.MEMBER_JOINED, member("a", []), 1000, reason).detail == detail
