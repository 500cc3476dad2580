"""Invariants of a group between two steps; tests check them after each."""

from __future__ import annotations

from ottla.groups.group import JOIN, SYNC, Group
from ottla.groups.states import GroupState

_SETTLED = (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)


def problems(group: Group) -> list[str]:
    """Violated invariants; empty if there are none."""
    return group.members.problems() + _of_state(group) + _of_parked(group) + _of_deadlines(group)


def _of_state(group: Group) -> list[str]:
    found = []
    state, size = group.state, len(group.members)
    if state in (GroupState.EMPTY, GroupState.DEAD) and size:
        found.append(f"{state.value} with {size} members")
    if state in _SETTLED:
        if not size:
            found.append(f"{state.value} without members")
        if group.generation_id <= 0:
            found.append(f"{state.value} in generation {group.generation_id}")
        if any(group.protocol_name not in dict(member.protocols) for member in group.members):
            found.append(f"{group.protocol_name} is not supported by all members")
    elif group.pending_sync:
        found.append(f"{len(group.pending_sync)} members should sync in {state.value}")
    if state is GroupState.COMPLETING_REBALANCE and group.members.leader not in group.pending_sync:
        found.append(f"the leader {group.members.leader} has handed in an assignment that is not there")
    found += [f"{member_id} should sync but is not a member" for member_id in group.pending_sync - group.members.ids()]
    return found


def _of_parked(group: Group) -> list[str]:
    found = []
    for member in group.members:
        if member.join_token is not None and group.state is not GroupState.PREPARING_REBALANCE:
            found.append(f"{member.member_id} waits for a join in {group.state.value}")
        if member.sync_token is not None and group.state is not GroupState.COMPLETING_REBALANCE:
            found.append(f"{member.member_id} waits for a sync in {group.state.value}")
        if member.is_new and member.join_token is None:
            found.append(f"{member.member_id} is new and does not wait for its first join")
    return found


def _of_deadlines(group: Group) -> list[str]:
    found = []
    deadlines = group.deadlines
    if (JOIN in deadlines) != (group.state is GroupState.PREPARING_REBALANCE):
        found.append(f"join deadline {deadlines.get(JOIN)} in {group.state.value}")
    if (SYNC in deadlines) != bool(group.pending_sync):
        found.append(f"sync deadline {deadlines.get(SYNC)}, {len(group.pending_sync)} have not synced")
    for member in group.members:
        waits = member.join_token is not None or member.sync_token is not None
        if member.member_id not in deadlines and not waits:
            found.append(f"{member.member_id} has no session deadline")
    found += [f"pending {member_id} has no deadline" for member_id in group.members.pending - deadlines.names()]
    known = {JOIN, SYNC} | group.members.ids() | group.members.pending
    found += [f"deadline of {name}, who is not a member" for name in deadlines.names() - known]
    return found
