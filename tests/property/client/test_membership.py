"""A member among answers of any kind, in any order, late or never: it contradicts itself nowhere, and recovers."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.consumer.membership import (
    Assign,
    ClientState,
    FindCoordinator,
    MemberSettings,
    Membership,
    MemberState,
    Send,
)
from ottla.client.errors import BrokerError, ConnectionLostError
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupResponse
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

SETTINGS = MemberSettings("g", session_timeout_ms=10_000, heartbeat_interval_ms=3_000, max_poll_interval_ms=20_000)
ERRORS = [
    ErrorCode.NONE,
    ErrorCode.NONE,
    ErrorCode.NONE,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.MEMBER_ID_REQUIRED,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
]
STEPS = 150
CALM_STEPS = 400
"""So many steps suffice for it to be a member again, when all answers are good."""


class World:
    """A member, the time, and what it waits for: an answer to each may come at any time, or never."""

    def __init__(self, chance: random.Random, settings: MemberSettings = SETTINGS) -> None:
        self.member = Membership(settings)
        self.now_ms = 0.0
        self.open: list[object] = []
        self._chance = chance
        self._generation = 0
        self.member.start(0.0)

    def collect(self) -> None:
        """Take what it wants done, and look whether that may be."""
        member = self.member
        member.check_invariants()
        for action in member.actions:
            if isinstance(action, Send) and isinstance(action.request, HeartbeatRequest):
                assert member.state in (MemberState.COMPLETING_REBALANCE, MemberState.STABLE)
                assert action.request.generation_id == member.generation.generation_id
            self.open.append(action)
        member.actions.clear()
        assert member.state is not MemberState.PREPARING_REBALANCE or member.is_joining or member.rejoin_needed
        assert member.client_state is not ClientState.MEMBER or not member.has_lost_membership

    def poll(self) -> None:
        """The user polls."""
        member = self.member
        member.polled(self.now_ms)
        if member.failure is not None:
            member.failure = None
        elif member.assignment is not None:
            member.assignment_taken()
        elif member.can_join(self.now_ms):
            member.join([("range", b"")], self.now_ms)
            assert not member.can_join(self.now_ms), "one join at a time"

    def pass_time(self, most_ms: float) -> None:
        """To the next deadline, or not so far."""
        due = self.member.next_deadline_ms(self.now_ms)
        target = self.now_ms + most_ms
        self.now_ms = max(self.now_ms, target if due is None else min(due, target))
        self.member.wake(self.now_ms)
        after = self.member.next_deadline_ms(self.now_ms)
        assert after is None or after >= self.now_ms, "a deadline that has passed would be woken for again and again"

    def answer(self, *, calm: bool) -> None:
        """One of the answers that are to come, of any kind unless `calm`."""
        if not self.open:
            return
        action = self.open.pop(0 if calm else self._chance.randrange(len(self.open)))
        code = ErrorCode.NONE if calm else self._chance.choice(ERRORS)
        if isinstance(action, FindCoordinator):
            if code is ErrorCode.NONE:
                self.member.coordinator_found(self.now_ms)
            else:
                self.member.coordinator_not_found(BrokerError(code, "no coordinator"), self.now_ms)
        elif isinstance(action, Assign):
            self.member.assigned(action.answer, {})
        elif isinstance(action, Send):
            if not calm and self._chance.random() < 0.2:
                lost = ConnectionLostError("gone", retriable=True)
                self.member.request_failed(action.request, lost, self.now_ms)
            else:
                self.member.receive(action.request, self._answer_to(action.request, code), self.now_ms)

    def _answer_to(self, request: object, code: ErrorCode) -> object:
        if isinstance(request, JoinGroupRequest):
            self._generation += 1
            return JoinGroupResponse(
                error_code=code,
                generation_id=self._generation,
                protocol_name="range",
                leader=self._chance.choice(["m", "other"]),
                member_id=request.member_id or "m",
            )
        if isinstance(request, SyncGroupRequest):
            return SyncGroupResponse(error_code=code)
        return HeartbeatResponse(error_code=code) if isinstance(request, HeartbeatRequest) else LeaveGroupResponse()


@pytest.mark.spec("G10")
@given(seed=st.integers(0, 2**32 - 1), static=st.booleans())
def test_among_answers_of_any_kind(seed: int, static: bool) -> None:
    chance = random.Random(seed)
    world = World(chance, replace(SETTINGS, group_instance_id="i" if static else None))
    for _ in range(STEPS):
        step = chance.random()
        if step < 0.4:
            world.answer(calm=False)
        elif step < 0.7:
            world.poll()
        elif step < 0.97:
            world.pass_time(chance.choice([10, 500, 5_000, 30_000]))
        else:
            world.member.request_rejoin("by chance")
        world.collect()
    for _ in range(CALM_STEPS):
        world.answer(calm=True)
        world.collect()
        world.poll()
        world.collect()
        world.pass_time(50)
        world.collect()
    assert world.member.state is MemberState.STABLE
    assert world.member.client_state is ClientState.MEMBER
    world.member.leave("the consumer is being closed")
    world.member.stop()
    world.member.check_invariants()
    assert world.member.next_deadline_ms(world.now_ms) is None
