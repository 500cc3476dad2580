"""Groups through churn, on virtual time: nothing goes wrong on the way, and in the end they settle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from ottla.assign.assignor import AbstractPartitionAssignor, MemberSubscription, PartitionAssignor
from ottla.assign.consumer_protocol import Partitions
from ottla.assign.cooperative import CooperativeStickyAssignor
from ottla.assign.registry import BUILT_IN
from ottla.groups.events import OffsetCommit
from ottla.groups.machine import GroupMachine
from ottla.groups.records import OffsetRecord
from ottla.groups.shard import GroupShard
from ottla.sim.group_churn import ChurnPlan, GroupChurn
from ottla.sim.group_coordinator import Wrong
from ottla.sim.group_member import MemberTimes
from ottla.wire.errors import ErrorCode

MOST_GENERATIONS = 3
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


def run(churn: GroupChurn, steps: int) -> int:
    """So many steps of churn, then rest; the number of generations that the group took to settle."""
    while churn.steps < steps:
        churn.step()
    churn.stop()
    return churn.settle()


@pytest.mark.spec("G3", "G9", "G10", "G11")
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("assignor", BUILT_IN)
def test_small_groups(assignor: str, seed: int) -> None:
    churn = GroupChurn(seed, wild(BUILT_IN[assignor], 8, 12), WILD_TIMES)
    assert run(churn, 15_000) <= MOST_GENERATIONS
    assert sum(churn.coordinator.committed.values()) > 100, "there was something to lose"


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


# Planted bugs, which the checks must find


def found(assignor: Callable[[], PartitionAssignor], seeds: int = 10) -> str:
    """What goes wrong with one of some seeds; the empty text where all goes well."""
    for seed in range(seeds):
        try:
            run(GroupChurn(seed, wild(assignor, 8, 12), WILD_TIMES), 4_000)
        except Wrong as wrong:
            return str(wrong)
    return ""


def test_without_a_bug_nothing_is_found() -> None:
    assert found(CooperativeStickyAssignor, seeds=3) == ""


class Hasty(CooperativeStickyAssignor):
    """Gives partitions to their new owners while the old ones still have them."""

    def held_back(self, *_: object) -> Mapping[int, str]:
        return {}


def test_two_owners_at_once_are_found() -> None:
    assert "is owned by" in found(Hasty)


def test_commits_of_strangers_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def lenient(self: GroupMachine, event: OffsetCommit, now_ms: int) -> ErrorCode | None:
        return None

    monkeypatch.setattr(GroupMachine, "_commit_refusal", lenient)
    told = found(BUILT_IN["range"])
    assert "who is no member, was taken" in told or "a commit of generation" in told


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
    monkeypatch.setattr("ottla.sim.group_churn.SETTLING_LIMIT_MS", 60_000)
    assert "the group does not settle: 0 of" in found(Idle, seeds=1)
