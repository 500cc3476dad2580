"""Random sequences of requests, lost answers, failing appends, time and restarts: what must hold, holds after each."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.assign.consumer_protocol import encode_assignment, encode_subscription
from ottla.groups.classic.group import GroupLimits
from ottla.groups.classic.states import GroupState
from ottla.groups.events import (
    DeleteGroup,
    ExpireMember,
    ExpireOffsets,
    Heartbeat,
    JoinGroup,
    JoinResult,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    PartitionsChanged,
    RequestRebalance,
    SyncGroup,
    TopicsDeleted,
)
from ottla.groups.records import StoredOffset
from ottla.wire.errors import ErrorCode
from scenarios.groups.world import GROUP, World
from support.random_cases import cases

PARTITIONS = 6
ERRORS = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.MESSAGE_TOO_LARGE)


class Member:
    """A client that does what it is told, most of the time."""

    def __init__(self, name: str, rng: random.Random) -> None:
        self.name = name
        self.rng = rng
        self.member_id = ""
        self.generation = -1
        self.instance = f"static-{name}" if rng.random() < 0.3 else None
        self.version = rng.choice([0, 3, 4, 8, 9])
        self.protocols = rng.choice([("range",), ("range", "sticky"), ("sticky", "range"), ("range", "roundrobin")])
        self.topics = ["t"]
        self.members: list[str] = []
        self.waiting: object | None = None


class Churn:
    """Members that join, sync, commit, crash and come back, driven by one seed."""

    def __init__(self, seed: int, members: int = 5) -> None:
        self.rng = random.Random(seed)
        delay_ms = self.rng.choice([0, 0, 500])
        size = self.rng.choice([3, 1000, 1000])
        self.world = World(GroupLimits(min_session_timeout_ms=1000, initial_rebalance_delay_ms=delay_ms, max_size=size))
        self.members = [Member(f"m{number}", self.rng) for number in range(members)]
        self.sequence = 0
        self.tokens: dict[object, Member] = {}

    def step(self, actions: list[tuple[Callable[[Member], None], int]]) -> None:
        act = self.rng.choices([action for action, _ in actions], [weight for _, weight in actions])[0]
        act(self.rng.choice(self.members))
        self.take_answers()

    def all_actions(self) -> list[tuple[Callable[[Member], None], int]]:
        return [
            (self.go_on, 60),
            (self.forget, 4),
            (self.leave, 4),
            (self.commit, 8),
            (self.stale, 6),
            (self.change, 3),
            (self.time, 12),
            (self.fail, 3),
            (self.restart, 2),
            (self.admin, 3),
            (self.intervene, 3),
        ]

    def token(self, member: Member) -> object:
        self.sequence += 1
        token = (member.name, self.sequence)
        self.tokens[token] = member
        return token

    def go_on(self, member: Member) -> None:
        """What a well-behaved client does next."""
        if member.waiting is not None and self.rng.random() < 0.9:
            return
        if not member.member_id or member.generation < 0:
            self.join(member)
        elif self.rng.random() < 0.6:
            self.sync(member)
        else:
            self.heartbeat(member)

    def join(self, member: Member) -> None:
        member.waiting = token = self.token(member)
        self.world.submit(
            JoinGroup(
                token,
                GROUP,
                member.member_id,
                member.instance,
                member.name,
                "/h",
                self.rng.choice([3000, 6000]),
                self.rng.choice([4000, 9000]),
                "consumer",
                tuple((name, encode_subscription(member.topics)) for name in member.protocols),
                str(self.sequence),
                None,
                member.version >= 4,
                member.version >= 9,
            )
        )

    def sync(self, member: Member) -> None:
        assignments = {}
        if member.members:
            for number in range(PARTITIONS):
                who = member.members[number % len(member.members)]
                assignments.setdefault(who, []).append(number)
        member.waiting = token = self.token(member)
        self.world.submit(
            SyncGroup(
                token,
                GROUP,
                member.generation,
                member.member_id,
                member.instance,
                assignments={who: encode_assignment({"t": numbers}) for who, numbers in assignments.items()},
            )
        )

    def heartbeat(self, member: Member) -> None:
        self.world.submit(Heartbeat(self.token(member), GROUP, member.generation, member.member_id, member.instance))

    def forget(self, member: Member) -> None:
        """Crash: a new process knows its instance id only."""
        member.member_id, member.generation, member.waiting = "", -1, None

    def leave(self, member: Member) -> None:
        self.world.submit(
            LeaveGroup(self.token(member), GROUP, [LeavingMember(member.member_id, member.instance, "bye")])
        )

    def commit(self, member: Member) -> None:
        simple = self.rng.random() < 0.3
        value = StoredOffset(self.sequence, 0, "", self.world.now_ms)
        topic = self.rng.choice(["t", "other"])
        self.world.submit(
            OffsetCommit(
                self.token(member),
                GROUP,
                -1 if simple else member.generation,
                "" if simple else member.member_id,
                None if simple else member.instance,
                [(topic, self.rng.randrange(3), value)],
            )
        )

    def stale(self, member: Member) -> None:
        generation, member.generation = member.generation, member.generation - 1
        self.rng.choice([self.sync, self.heartbeat, self.commit])(member)
        member.generation = generation

    def change(self, member: Member) -> None:
        member.topics = self.rng.choice([["t"], ["t", "other"]])
        member.generation = -1
        if self.rng.random() < 0.3:
            self.world.submit(PartitionsChanged(GROUP, {"t": (3, 6)}))

    def time(self, member: Member) -> None:
        self.world.advance(self.rng.choice([1, 100, 1000, 3000, 10_000]))

    def fail(self, member: Member) -> None:
        self.world.next_error = self.rng.choice(ERRORS)

    def restart(self, member: Member) -> None:
        self.world.restart()
        for other in self.members:
            other.waiting = None

    def admin(self, member: Member) -> None:
        choice = self.rng.randrange(3)
        if choice == 0:
            self.world.submit(DeleteGroup(self.token(member), GROUP))
        elif choice == 1:
            self.world.submit(ExpireOffsets(GROUP, 5000))
        else:
            self.world.submit(TopicsDeleted(GROUP, frozenset({"other"})))

    def intervene(self, member: Member) -> None:
        if self.rng.random() < 0.5:
            self.world.submit(RequestRebalance(GROUP))
        else:
            self.world.submit(ExpireMember(GROUP, member.member_id))

    def take_answers(self, lost: float = 0.1) -> None:
        for reply in self.world.take().replies:
            member = self.tokens.pop(reply.token)
            if member.waiting == reply.token:
                member.waiting = None
            if self.rng.random() < lost:
                continue
            self.hear(member, reply.result)

    def hear(self, member: Member, result: object) -> None:
        error = getattr(result, "error", ErrorCode.NONE)
        if isinstance(result, JoinResult) and error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            member.member_id = result.member_id
            if error is ErrorCode.NONE:
                member.generation = result.generation_id
                member.members = [other.member_id for other in result.members]
        elif error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED):
            member.member_id, member.generation = "", -1
        elif error in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
            member.generation = -1


def durable(world: World) -> tuple[object, ...]:
    """What a coordinator that loads the log must know, as the live one knows it."""
    restored = world.restored().machines.get(GROUP)
    if restored is None or (restored.is_blank and not restored.offsets):
        return (None,)
    assignments = {member.member_id: member.assignment for member in restored.members}
    return (
        restored.generation_id,
        restored.protocol_name,
        restored.members.leader,
        assignments,
        dict(restored.committed),
    )


def live(world: World) -> tuple[object, ...]:
    machine = world.machine
    if machine is None:
        return (None,)
    return (
        machine.generation_id,
        machine.protocol_name,
        machine.members.leader,
        {member.member_id: member.assignment for member in machine.members},
        dict(machine.committed),
    )


@pytest.mark.spec("G1", "G3", "G11")
@given(st.integers(0, 2**32), st.integers(1, 7))
@settings(max_examples=cases(60))
def test_invariants_hold_and_a_restart_loses_nothing_that_is_written(seed: int, members: int):
    churn = Churn(seed, members)
    actions = churn.all_actions()
    for _ in range(150):
        churn.step(actions)
        world = churn.world
        machine = world.machine
        failed_empty = machine is not None and machine.state is GroupState.EMPTY
        if machine is None:
            restored = world.restored().machines.get(GROUP)
            assert restored is None or restored.is_blank or not len(restored.members), world.restored()
        elif machine.state is GroupState.STABLE:
            assert durable(world) == live(world), machine.story()
        elif not failed_empty:
            assert durable(world)[-1] == live(world)[-1] or durable(world) == (None,), machine.story()


@pytest.mark.spec("G3")
@given(st.integers(0, 2**32), st.integers(1, 8))
@settings(max_examples=cases(40))
def test_a_group_settles_once_the_churn_stops(seed: int, members: int):
    churn = Churn(seed, members)
    actions = churn.all_actions()
    for _ in range(60):
        churn.step(actions)
    world = churn.world
    world.next_error = None
    for member in churn.members:
        member.topics, member.protocols = ["t"], ("range",)
        churn.forget(member)
    world.advance(20_000)
    churn.take_answers(lost=0)
    for member in churn.members:
        churn.forget(member)
    for _ in range(40):
        for member in churn.members:
            if member.waiting is None:
                if member.generation < 0:
                    churn.join(member)
                else:
                    churn.heartbeat(member)
                    if member.generation >= 0 and member.waiting is None:
                        churn.sync(member)
            churn.take_answers(lost=0)
        world.advance(200)
        churn.take_answers(lost=0)
    machine = world.machine
    assert machine is not None
    assert machine.state is GroupState.STABLE, machine.story()
    assert len(machine.members) == min(members, world.limits.max_size), machine.story()


@pytest.mark.spec("G8")
@given(st.integers(0, 2**32))
@settings(max_examples=cases(30))
def test_no_partition_has_two_owners_in_a_generation(seed: int):
    churn = Churn(seed, 5)
    actions = [(churn.go_on, 70), (churn.forget, 5), (churn.time, 10), (churn.leave, 3), (churn.restart, 1)]
    for _ in range(150):
        churn.step(actions)
        machine = churn.world.machine
        if machine is not None and machine.state is GroupState.STABLE:
            owned = [member.assignment for member in machine.members if member.assignment]
            assert len(set(owned)) == len(owned), machine.story()


@pytest.mark.spec("G2")
@given(st.integers(0, 2**32))
@settings(max_examples=cases(30))
def test_every_request_is_answered_exactly_once(seed: int):
    """The world refuses second answers; here, nothing stays open when everybody has gone."""
    churn = Churn(seed, 6)
    actions = [action for action in churn.all_actions() if action[0] != churn.restart]
    for _ in range(120):
        churn.step(actions)
    churn.world.next_error = None
    churn.world.advance(600_000)
    assert not churn.world.open_tokens
