"""A consumer group under churn: members join, leave, crash and freeze, connections break, the coordinator crashes.

After every step the group's invariants hold, no partition has two owners in the group, every request is answered at
most once and to its sender, and offsets committed by members only increase. After the churn the group settles.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from ottla.assign.assignor import PartitionAssignor
from ottla.groups.classic.group import GroupLimits
from ottla.sim.group_consumer import MemberTimes, SimulatedConsumer
from ottla.sim.group_coordinator import SimulatedCoordinator
from ottla.sim.group_stage import GroupStage, Ownership, Weather
from ottla.sim.witness import Wrong
from ottla.wire.errors import ErrorCode

#: A group that has not settled this long after the end of the churn is considered stuck.
SETTLING_LIMIT_MS = 600_000
MOST_PARTITIONS_ADDED = 10
#: A group is at rest when nothing has changed for this many heartbeat intervals.
REST_HEARTBEATS = 3
#: Share of restarts of static members in which the previous process is only frozen.
FROZEN_RETURNS = 0.3
APPEND_ERRORS = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.MESSAGE_TOO_LARGE,
)


@dataclass(frozen=True, slots=True)
class ChurnPlan:
    """Size of the group, and the churn. Times in milliseconds, probabilities from 0 to 1."""

    assignor: Callable[[], PartitionAssignor]
    members: int = 20
    partitions: int = 50
    delay_ms: tuple[int, int] = (1, 40)
    #: Probability that a message is lost, with its connection.
    loss: float = 0.01
    #: Average time between two random events.
    action_interval_ms: int = 500
    down_ms: tuple[int, int] = (100, 3_000)
    loading_ms: tuple[int, int] = (0, 1_000)
    frozen_ms: tuple[int, int] = (1_000, 25_000)
    initial_rebalance_delay_ms: int = 3_000
    #: Share of static members. The topic must not grow then: while a static leader is away nobody would notice.
    static_share: float = 0.0
    #: Relative frequency of each random event.
    weights: dict[str, int] = field(
        default_factory=lambda: {"start": 30, "leave": 8, "die": 8, "freeze": 6, "crash": 2, "grow": 1}
    )
    """Further events are `return` (a static member is restarted) and `fail` (an append fails)."""


class GroupChurn:
    """One run, determined by its seed. Call `step` repeatedly, then `stop` and `settle`."""

    def __init__(self, seed: int, plan: ChurnPlan, times: MemberTimes | None = None) -> None:
        self.plan = plan
        self._times = times or MemberTimes()
        self._chance = random.Random(seed)
        self.stage = GroupStage(
            plan.assignor,
            plan.partitions,
            Weather(plan.delay_ms, plan.loss),
            self._chance,
            self._times,
            GroupLimits(initial_rebalance_delay_ms=plan.initial_rebalance_delay_ms),
            _ownership,
        )
        self.coordinator = self.stage.coordinator
        self._numbers = 0
        #: Number of random events of each kind.
        self.turns: Counter[str] = Counter()
        for _ in range(plan.members):
            self._start()
        self.stage.timetable.at(self._next_action_ms(), self._act)

    @property
    def now_ms(self) -> int:
        """The virtual time."""
        return self.stage.now_ms

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self.stage.steps

    @property
    def partitions(self) -> int:
        """Current number of partitions."""
        return self.stage.partitions

    @property
    def answers(self) -> Counter[str]:
        """Number of responses with each error."""
        return self.stage.answers

    @property
    def members(self) -> list[SimulatedConsumer]:
        """The live members."""
        return list(self.stage.places)

    def step(self) -> None:
        """One message, one deadline, or one random event. Raises Wrong if an invariant is violated."""
        self.stage.step()

    def stop(self) -> None:
        """End the churn: from now on no member joins or leaves, and nothing fails."""
        self.stage.is_stormy = False
        self.coordinator.next_error = None
        for place in list(self.stage.places.values()):
            self.stage.thaw(place)

    def settle(self) -> int:
        """Continue until the group is at rest. Raises Wrong if it does not settle.

        Returns the number of generations that this took after the coordinator had expired all dead members: deaths
        before the end of the churn are noticed after it, when their sessions expire.
        """
        until_ms = self.now_ms + SETTLING_LIMIT_MS
        begun: int | None = None
        at_rest: tuple[int, int] | None = None
        while True:
            if not self.stage.is_settled():
                at_rest = None
            elif at_rest is None or at_rest[0] != self.coordinator.generation_id:
                rest_ms = REST_HEARTBEATS * self._times.heartbeat_interval_ms
                at_rest = (self.coordinator.generation_id, self.now_ms + rest_ms)
            elif self.now_ms > at_rest[1]:
                return 0 if begun is None else at_rest[0] - begun
            if self.now_ms > until_ms:
                raise Wrong(f"the group does not settle: {self.stage.unsettled()}\n{self.coordinator.story()}")
            if begun is None and self._all_deaths_are_known():
                begun = self.coordinator.generation_id
            self.step()

    def _all_deaths_are_known(self) -> bool:
        machine = self.coordinator.machine
        if self.coordinator.is_loading or machine is None:
            return False
        return machine.members.ids() <= {member.member_id for member in self.stage.places}

    # -- random events

    def _next_action_ms(self) -> int:
        return self.now_ms + 1 + int(self._chance.expovariate(1 / self.plan.action_interval_ms))

    def _act(self) -> None:
        if not self.stage.is_stormy:
            return
        weights, places = self.plan.weights, self.stage.places
        (action,) = self._chance.choices(list(weights), list(weights.values()))
        self.turns[action] += 1
        if action == "start":
            if len(places) < self.plan.members:
                self._start()
        elif action == "crash":
            self._crash()
        elif action == "grow":
            self.stage.grow(self._chance.randint(1, MOST_PARTITIONS_ADDED))
        elif action == "fail":
            self.coordinator.next_error = self._chance.choice(APPEND_ERRORS)
        elif action == "return":
            self._return()
        elif places:
            place = self._chance.choice(list(places.values()))
            if action == "freeze":
                self.stage.freeze(place, self._between(self.plan.frozen_ms))
            else:
                self.stage.end_member(place, leaves=action == "leave")
        self.stage.timetable.at(self._next_action_ms(), self._act)

    def _start(self, group_instance_id: str | None = None) -> None:
        self._numbers += 1
        if group_instance_id is None and self._chance.random() < self.plan.static_share:
            group_instance_id = f"static-{self._numbers}"
        self.stage.start_member(group_instance_id)

    def _crash(self) -> None:
        if self.coordinator.is_up and not self.coordinator.is_loading:
            self.stage.crash(self._between(self.plan.down_ms), self._between(self.plan.loading_ms))

    def _return(self) -> None:
        """Restart a static member; its previous process is dead, or frozen and about to be fenced."""
        static = [one for one in self.stage.places.values() if one.member.group_instance_id is not None]
        if not static:
            return
        old = self._chance.choice(static)
        if self._chance.random() < FROZEN_RETURNS:
            self.stage.freeze(old, self._between(self.plan.frozen_ms))
        else:
            self.stage.end_member(old, leaves=False)
        self._start(old.member.group_instance_id)

    def _between(self, limits: tuple[int, int]) -> int:
        return self._chance.randint(*limits)


def _ownership(coordinator: SimulatedCoordinator) -> Ownership:
    return Ownership(lambda: coordinator.member_ids & coordinator.joined, coordinator.story)
