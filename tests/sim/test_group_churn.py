"""Groups through churn, on virtual time: nothing goes wrong on the way, and in the end they settle."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from ottla.assign.assignor import AbstractPartitionAssignor, MemberSubscription, PartitionAssignor
from ottla.assign.consumer_protocol import Partitions
from ottla.assign.cooperative import CooperativeStickyAssignor
from ottla.assign.registry import BUILT_IN
from ottla.groups.classic.group import Group
from ottla.groups.classic.machine import GroupMachine
from ottla.groups.events import OffsetCommit
from ottla.groups.records import GroupMetadataValue, OffsetRecord
from ottla.groups.shard import GroupShard
from ottla.sim.group_consumer import MemberTimes
from ottla.sim.group_stage import Ownership
from ottla.sim.witness import Witness, Wrong
from ottla.wire.errors import ErrorCode
from support.group_churn import ChurnPlan, GroupChurn

#: A member that stood still may come back in a rebalance: two of them, each in two phases with a cooperative assignor.
MOST_GENERATIONS = 4
WILD_TIMES = MemberTimes(
    session_timeout_ms=6_000, heartbeat_interval_ms=500, max_poll_interval_ms=4_000, auto_commit_interval_ms=300
)


def calm(assignor: Callable[[], PartitionAssignor], members: int, partitions: int) -> ChurnPlan:
    return ChurnPlan(assignor, members=members, partitions=partitions)


def wild(assignor: Callable[[], PartitionAssignor], members: int, partitions: int) -> ChurnPlan:
    """Much happens at once: lost messages, short pauses, crashes of the coordinator."""
    return ChurnPlan(
        assignor,
        members=members,
        partitions=partitions,
        delay_ms=(0, 200),
        loss=0.03,
        action_interval_ms=300,
        down_ms=(50, 500),
        loading_ms=(0, 300),
        frozen_ms=(500, 9_000),
        initial_rebalance_delay_ms=0,
        weights={"start": 40, "leave": 8, "die": 8, "freeze": 8, "crash": 5, "grow": 1},
    )


def static(assignor: Callable[[], PartitionAssignor], members: int, partitions: int) -> ChurnPlan:
    """As wild; most members are static and come back, some while their old selves still live; appends fail."""
    weights = {"start": 40, "leave": 8, "die": 8, "freeze": 8, "crash": 5, "return": 16, "fail": 5}
    return replace(wild(assignor, members, partitions), static_share=0.7, weights=weights)


def sleepy(assignor: Callable[[], PartitionAssignor], members: int, partitions: int) -> ChurnPlan:
    """Now and then a member stands still for longer than its session; nothing else happens."""
    plan = ChurnPlan(assignor, members=members, partitions=partitions, loss=0.0, action_interval_ms=5_000)
    return replace(plan, weights={"start": 1, "freeze": 10}, frozen_ms=(7_000, 15_000))


def run(churn: GroupChurn, steps: int) -> int:
    """So many steps of churn, then rest; the number of generations that the group took to settle."""
    while churn.steps < steps:
        churn.step()
    churn.stop()
    return churn.settle()


@pytest.mark.slow
@pytest.mark.spec("G3", "G9", "G10", "G11")
@pytest.mark.parametrize("seed", range(7))
@pytest.mark.parametrize("assignor", BUILT_IN)
def test_small_groups(assignor: str, seed: int) -> None:
    churn = GroupChurn(seed, wild(BUILT_IN[assignor], 8, 12), WILD_TIMES)
    assert run(churn, 15_000) <= MOST_GENERATIONS
    assert sum(churn.coordinator.committed.values()) > 100, "there was something to lose"


@pytest.mark.slow
@pytest.mark.spec("G2", "G3", "G10", "G11")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("assignor", BUILT_IN)
def test_static_members_come_back_and_appends_fail(assignor: str, seed: int) -> None:
    churn = GroupChurn(seed, static(BUILT_IN[assignor], 8, 12), WILD_TIMES)
    assert run(churn, 6_000) <= MOST_GENERATIONS
    assert min(churn.turns["return"], churn.turns["fail"], churn.answers["FENCED_INSTANCE_ID"]) >= 5


@pytest.mark.spec("G10")
def test_everything_happens() -> None:
    turns: Counter[str] = Counter()
    answers: Counter[str] = Counter()
    for seed in range(4):
        churn = GroupChurn(seed, wild(BUILT_IN["sticky"], 12, 20), WILD_TIMES)
        run(churn, 10_000)
        turns += churn.turns
        answers += churn.answers
    assert all(turns[action] >= 5 for action in ("start", "leave", "die", "freeze", "crash", "grow")), turns
    expected = ("NONE", "MEMBER_ID_REQUIRED", "REBALANCE_IN_PROGRESS", "UNKNOWN_MEMBER_ID")
    assert all(answers[error] >= 5 for error in (*expected, "COORDINATOR_LOAD_IN_PROGRESS")), answers


@pytest.mark.slow
@pytest.mark.spec("G3", "G9", "G10", "G11")
@pytest.mark.parametrize("assignor", BUILT_IN)
def test_200_members_share_500_partitions(assignor: str) -> None:
    churn = GroupChurn(7, calm(BUILT_IN[assignor], 200, 500))
    assert run(churn, 40_000) <= MOST_GENERATIONS
    assert len(churn.members) > 150


@pytest.mark.slow
@pytest.mark.spec("G2", "G3", "G10", "G11")
def test_200_members_of_which_most_are_static_share_500_partitions() -> None:
    plan = replace(static(BUILT_IN["cooperative-sticky"], 200, 500), action_interval_ms=500, frozen_ms=(1_000, 25_000))
    churn = GroupChurn(7, plan)
    assert run(churn, 30_000) <= MOST_GENERATIONS
    assert churn.answers["FENCED_INSTANCE_ID"] > 0


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.spec("G2", "G3", "G10", "G11")
@pytest.mark.parametrize("assignor", BUILT_IN)
def test_many_small_groups_with_static_members(assignor: str) -> None:
    for seed in range(100, 160):
        assert run(GroupChurn(seed, static(BUILT_IN[assignor], 8, 12), WILD_TIMES), 6_000) <= MOST_GENERATIONS, seed


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.spec("G3", "G9", "G10", "G11")
@pytest.mark.parametrize("assignor", BUILT_IN)
def test_a_million_steps(assignor: str) -> None:
    """250,000 steps with each assignor: ten groups of 200 members, and fifteen small ones that fare worse."""
    steps = 0
    for seed in range(10):
        churn = GroupChurn(seed, calm(BUILT_IN[assignor], 200, 500))
        assert run(churn, 16_000) <= MOST_GENERATIONS, seed
        steps += churn.steps
    for seed in range(15):
        churn = GroupChurn(seed, wild(BUILT_IN[assignor], 20, 50), WILD_TIMES)
        assert run(churn, 6_000) <= MOST_GENERATIONS, seed
        steps += churn.steps
    assert steps >= 250_000


def test_a_seed_makes_the_same_run_again() -> None:
    runs = [GroupChurn(3, wild(BUILT_IN["sticky"], 8, 12), WILD_TIMES) for _ in range(2)]
    generations = [run(churn, 3_000) for churn in runs]
    assert generations[0] == generations[1]
    assert runs[0].coordinator.story() == runs[1].coordinator.story()
    assert (runs[0].steps, runs[0].now_ms) == (runs[1].steps, runs[1].now_ms)


TELL = """
from sim.test_group_churn import *
churn = GroupChurn(3, static(BUILT_IN["cooperative-sticky"], 8, 12), WILD_TIMES)
print(run(churn, 3_000), churn.steps, churn.now_ms, sorted(churn.coordinator.committed.items()))
print(churn.coordinator.story())
"""


@pytest.mark.slow
def test_a_seed_makes_the_same_run_in_any_process() -> None:
    """Nothing hangs on the order of a set, which each process has its own of."""
    path = os.pathsep.join(filter(None, sys.path))
    told = {
        subprocess.run(
            [sys.executable, "-c", TELL],
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=240,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1


# Planted bugs, which the checks must find


def found(
    assignor: Callable[[], PartitionAssignor],
    seeds: int = 10,
    plan: Callable[[Callable[[], PartitionAssignor], int, int], ChurnPlan] = wild,
    words: str = "",
) -> str:
    """What goes wrong with the first of some seeds that says so in these words; the empty text where none does."""
    for seed in range(seeds):
        try:
            run(GroupChurn(seed, plan(assignor, 8, 12), WILD_TIMES), 4_000)
        except Wrong as wrong:
            if words in str(wrong):
                return str(wrong)
    return ""


def test_without_a_bug_nothing_is_found() -> None:
    assert found(CooperativeStickyAssignor, seeds=3) == ""


class Hasty(CooperativeStickyAssignor):
    """Gives partitions to their new owners while the old ones still have them."""

    def held_back(self, *_: object) -> Mapping[int, str]:
        return {}


def test_two_owners_at_once_are_found_by_their_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ownership, "claimed", lambda *_: None)
    monkeypatch.setattr(Ownership, "released", lambda *_: None)
    assert found(Hasty, words="was taken")


def test_two_owners_at_once_are_found_by_their_own_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Witness, "_commit_answered", lambda *_: None)
    # A commit that goes back may show it first, and about every third seed has two owners at one moment.
    assert found(Hasty, seeds=40, words="is owned by")


def test_commits_of_strangers_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def lenient(self: GroupMachine, event: OffsetCommit, now_ms: int) -> ErrorCode | None:
        return None

    monkeypatch.setattr(GroupMachine, "_commit_refusal", lenient)
    told = found(BUILT_IN["range"])
    assert "which is not a member, was taken" in told or "a commit of generation" in told


def test_lost_commits_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    replay = GroupShard.replay

    def forgetful(self: GroupShard, record: object, log_offset: int, producer_id: int = -1) -> None:
        if not (self.loading and isinstance(record, OffsetRecord) and record.partition == 5):
            replay(self, record, log_offset, producer_id)  # type: ignore[arg-type]

    monkeypatch.setattr(GroupShard, "replay", forgetful)
    assert "partition 5" in found(BUILT_IN["range"])


class Idle(AbstractPartitionAssignor):
    """Gives nothing to anybody."""

    name = "idle"

    def assign_partitions(
        self, partition_counts: Mapping[str, int], subscriptions: Mapping[str, MemberSubscription]
    ) -> dict[str, Partitions]:
        return {member_id: {} for member_id in subscriptions}


def test_a_group_that_never_settles_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("support.group_churn.SETTLING_LIMIT_MS", 60_000)
    assert "the group does not settle: 0 of" in found(Idle, seeds=1)


class Generous(AbstractPartitionAssignor):
    """Gives the first partition to everybody."""

    name = "generous"

    def assign_partitions(
        self, partition_counts: Mapping[str, int], subscriptions: Mapping[str, MemberSubscription]
    ) -> dict[str, Partitions]:
        return {member_id: dict.fromkeys(partition_counts, (0,)) for member_id in subscriptions}


def test_a_partition_that_is_given_twice_is_found() -> None:
    assert "gives ('t', 0) to" in found(Generous, seeds=1)


def test_members_that_are_silent_and_stay_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The books are in order: the deadline of a member is only put off when it has come."""

    def patient(self: GroupMachine, name: str, step: object, now_ms: int) -> None:
        self.deadlines.set(name, now_ms + 3_600_000)

    monkeypatch.setattr(GroupMachine, "_session_deadline", patient)
    assert "last heard of at" in found(BUILT_IN["range"], plan=sleepy)


def test_generations_that_go_back_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    restore = Group._restore

    def forgetful(self: Group, value: GroupMetadataValue) -> None:
        restore(self, value)
        self.generation_id = max(1, value.generation - 2)

    monkeypatch.setattr(Group, "_restore", forgetful)
    told = found(BUILT_IN["range"])
    assert "begins after" in told or "is written after" in told or "was taken in" in told


def test_heartbeats_that_say_nothing_of_a_rebalance_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(self: GroupMachine, *_: object) -> ErrorCode:
        return ErrorCode.NONE

    monkeypatch.setattr(GroupMachine, "heartbeat", silent)
    monkeypatch.setattr("support.group_churn.SETTLING_LIMIT_MS", 60_000)
    told = found(BUILT_IN["cooperative-sticky"])
    assert "does not settle" in told
