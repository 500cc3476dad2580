"""The states of a group, how every request is answered in each, and the transitions: one table.

The group state machine (`ottla.groups.classic.machine`) looks up its rules here and may make no other transition; the
diagrams of the documentation are drawn from `RULES`. Before the rules of a state apply, a request is checked against
the membership, and refused alike in every state:

- a group id that is empty: `INVALID_GROUP_ID` (offset commit and fetch, describe and delete allow it);
- a `group.instance.id` that belongs to another member id: `FENCED_INSTANCE_ID`; an unknown one, or a member id that is
  not in the group: `UNKNOWN_MEMBER_ID`;
- sync, heartbeat, commit with another generation than the group's: `ILLEGAL_GENERATION`;
- join and sync with a protocol type or protocol that the group does not share: `INCONSISTENT_GROUP_PROTOCOL`;
- offset delete in a group with members that are not consumers: `NON_EMPTY_GROUP`.

A join without member id makes a new member in every state but `DEAD`: from version 4 on it gets the id to rejoin
with (`MEMBER_ID_REQUIRED`), a static member and an older version are added at once. Offset fetches are
answered in every state with what is committed.

Source: Apache Kafka 3.9, `kafka.coordinator.group.GroupState` and `GroupCoordinator`.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ottla.wire.errors import ErrorCode


class GroupState(Enum):
    """The state of a group, named as in DescribeGroups."""

    EMPTY = "Empty"
    """No members. The group stays while it has offsets, or until the next expiry run.

    Join: a new member begins a rebalance, after `group.initial.rebalance.delay.ms`. Sync, heartbeat, leave:
    `UNKNOWN_MEMBER_ID`. Commit: accepted without a generation (simple consumers, admin tools).
    Delete: the group goes with its offsets.
    """

    PREPARING_REBALANCE = "PreparingRebalance"
    """Members are asked to rejoin, and their joins are parked until all have joined, or the join deadline passes.

    Join: parked. Sync: `REBALANCE_IN_PROGRESS`. Heartbeat: `REBALANCE_IN_PROGRESS`, and the session is renewed. Leave:
    the member goes, which may complete the join. Commit: accepted from members of the previous generation, so that
    they can commit before they revoke partitions. Delete: `NON_EMPTY_GROUP`.
    """

    COMPLETING_REBALANCE = "CompletingRebalance"
    """The generation has begun and the leader computes the assignment (older name: AwaitingSync).

    Join: a member with unchanged metadata whose response was lost gets it again at once, the leader with the member
    list; changed metadata begins another rebalance. Sync: parked until the leader's has come and is written.
    Heartbeat: no error, and the session is renewed. Leave: another rebalance. Commit: `REBALANCE_IN_PROGRESS`.
    Delete: `NON_EMPTY_GROUP`.
    """

    STABLE = "Stable"
    """Everybody has, or may fetch, an assignment.

    Join: a follower with unchanged metadata is answered at once; the leader, or changed metadata, begins a rebalance.
    Sync: answered at once. Heartbeat: no error, and the session is renewed. Leave: a rebalance. Commit: accepted from
    members of the generation. Delete: `NON_EMPTY_GROUP`.
    """

    DEAD = "Dead"
    """There is no such group: not yet, or not any more.

    Join with a member id, sync, heartbeat, leave: `UNKNOWN_MEMBER_ID`. Commit: with a generation `ILLEGAL_GENERATION`;
    without one it makes the group. Describe: an empty description. Delete: `GROUP_ID_NOT_FOUND`.
    """


class JoinRule(Enum):
    """How a JoinGroup of a known member is handled."""

    REFUSE = "UNKNOWN_MEMBER_ID"
    PARK = "parked until the join completes"
    RESEND = "answered again when its metadata is unchanged, else a rebalance"
    RESEND_TO_FOLLOWER = "answered at once for a follower with unchanged metadata, else a rebalance"


class SyncRule(Enum):
    """How a SyncGroup of the right generation is handled."""

    REFUSE = "UNKNOWN_MEMBER_ID"
    REBALANCE_IN_PROGRESS = "REBALANCE_IN_PROGRESS"
    PARK = "parked until the leader's"
    ANSWER = "answered at once"


class CommitRule(Enum):
    """How an OffsetCommit of a member of the right generation is handled."""

    ACCEPT = "accepted"
    ACCEPT_AND_RENEW = "accepted, and the session is renewed"
    REBALANCE_IN_PROGRESS = "REBALANCE_IN_PROGRESS"
    REFUSE = "ILLEGAL_GENERATION"


class LeaveRule(Enum):
    """The effect of a member's removal, by its own request or because its session expired."""

    NOTHING = "no effect"
    TRY_TO_COMPLETE = "may complete the join"
    REBALANCE = "a rebalance"


class OffsetDeleteRule(Enum):
    """How an OffsetDelete is handled."""

    DELETE = "deleted"
    DELETE_UNSUBSCRIBED = "deleted; `GROUP_SUBSCRIBED_TO_TOPIC` for topics that a member subscribes to"
    REFUSE = "GROUP_ID_NOT_FOUND"


class StateRules(NamedTuple):
    """One row of the table: the handling of requests in a state, and the transitions out of it with their causes."""

    join: JoinRule
    sync: SyncRule
    heartbeat: ErrorCode
    commit: CommitRule
    leave: LeaveRule
    delete: ErrorCode
    delete_offsets: OffsetDeleteRule
    exits: dict[GroupState, str]


RULES: dict[GroupState, StateRules] = {
    GroupState.EMPTY: StateRules(
        JoinRule.REFUSE,
        SyncRule.REFUSE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        CommitRule.ACCEPT,
        LeaveRule.NOTHING,
        ErrorCode.NONE,
        OffsetDeleteRule.DELETE,
        {
            GroupState.PREPARING_REBALANCE: "a first member joins",
            GroupState.DEAD: "deleted, or its last offset expired",
        },
    ),
    GroupState.PREPARING_REBALANCE: StateRules(
        JoinRule.PARK,
        SyncRule.REBALANCE_IN_PROGRESS,
        ErrorCode.REBALANCE_IN_PROGRESS,
        CommitRule.ACCEPT_AND_RENEW,
        LeaveRule.TRY_TO_COMPLETE,
        ErrorCode.NON_EMPTY_GROUP,
        OffsetDeleteRule.DELETE_UNSUBSCRIBED,
        {
            GroupState.COMPLETING_REBALANCE: "all members joined, or the join deadline passed with some",
            GroupState.EMPTY: "the last member went",
            GroupState.DEAD: "leadership of the partition went",
        },
    ),
    GroupState.COMPLETING_REBALANCE: StateRules(
        JoinRule.RESEND,
        SyncRule.PARK,
        ErrorCode.NONE,
        CommitRule.REBALANCE_IN_PROGRESS,
        LeaveRule.REBALANCE,
        ErrorCode.NON_EMPTY_GROUP,
        OffsetDeleteRule.DELETE_UNSUBSCRIBED,
        {
            GroupState.STABLE: "the leader's assignment is written",
            GroupState.PREPARING_REBALANCE: (
                "a member joined, left, changed its metadata, expired or did not sync; the assignment was not written"
            ),
            GroupState.DEAD: "leadership of the partition went",
        },
    ),
    GroupState.STABLE: StateRules(
        JoinRule.RESEND_TO_FOLLOWER,
        SyncRule.ANSWER,
        ErrorCode.NONE,
        CommitRule.ACCEPT_AND_RENEW,
        LeaveRule.REBALANCE,
        ErrorCode.NON_EMPTY_GROUP,
        OffsetDeleteRule.DELETE_UNSUBSCRIBED,
        {
            GroupState.PREPARING_REBALANCE: (
                "a member joined, left, changed its metadata, expired or did not sync, or the leader joined again"
            ),
            GroupState.DEAD: "leadership of the partition went",
        },
    ),
    GroupState.DEAD: StateRules(
        JoinRule.REFUSE,
        SyncRule.REFUSE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        CommitRule.REFUSE,
        LeaveRule.NOTHING,
        ErrorCode.GROUP_ID_NOT_FOUND,
        OffsetDeleteRule.REFUSE,
        {},
    ),
}
