"""The design with a coordinator (Kafka 0.9 and later), played through a script of churn."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from ottla.assign.assignor import PartitionAssignor
from ottla.groups.group import GroupLimits
from ottla.sim.churn_script import Action, ChurnScript, Turn
from ottla.sim.consumption import Consumption
from ottla.sim.design import CHANGES, DesignResult, Recorder
from ottla.sim.group_consumer import MemberTimes, SimulatedConsumer
from ottla.sim.group_coordinator import SimulatedCoordinator
from ottla.sim.group_stage import GroupStage, MemberPlace, Weather
from ottla.sim.ownership import Ownership


class CoordinatorDesign:
    """One group of real group state machines and simulated members; `run` may be called once."""

    def __init__(
        self, name: str, assignor: Callable[[], PartitionAssignor], times: MemberTimes, weather: Weather, seed: int
    ) -> None:
        self._name = name
        self._assignor = assignor
        self._times = times
        self._weather = weather
        self._chance = random.Random(seed)
        self._places: dict[str, MemberPlace] = {}
        self._stage: GroupStage
        self._recorder: Recorder
        self._consumption: Consumption
        self._requests_before: Counter[str] = Counter()
        self._unanswered_before: Counter[str] = Counter()

    def run(self, script: ChurnScript) -> DesignResult:
        """Play the script to its end. Raises `Wrong` if an invariant of the group is violated."""
        self._recorder = Recorder(self._name, script.partitions)
        self._consumption = self._recorder.consumption
        self._stage = GroupStage(
            self._assignor,
            script.partitions,
            self._weather,
            self._chance,
            self._times,
            GroupLimits(),
            self._listen,
        )
        for name in script.members:
            self._places[name] = self._stage.start_member(name=name)
        timetable = self._stage.timetable
        timetable.at(script.begin_ms, self._begin)
        for turn in script.turns:
            timetable.at(turn.at_ms, partial(self._play, turn))
        while self._stage.now_ms < script.end_ms:
            self._stage.step()
        return self._end(script.end_ms)

    def _listen(self, coordinator: SimulatedCoordinator) -> Ownership:
        return _Witnessed(coordinator, self._claimed, self._released)

    def _begin(self) -> None:
        self._consumption.begin(self._stage.now_ms)
        self._requests_before = self._stage.requests.copy()
        self._unanswered_before = self._stage.unanswered.copy()
        self._recorder.result.rebalances = 0

    def _end(self, now_ms: int) -> DesignResult:
        result = self._recorder.end(now_ms)
        result.requests = self._stage.requests - self._requests_before
        result.tries = result.requests["JoinGroup"]
        unanswered = self._stage.unanswered - self._unanswered_before
        result.uncertain = sum(unanswered[kind] for kind in CHANGES)
        return result

    def _play(self, turn: Turn) -> None:
        self._recorder.turn(turn)
        stage, now_ms = self._stage, self._stage.now_ms
        if turn.action is Action.START:
            self._places[turn.member] = stage.start_member(name=turn.member)
        elif turn.action is Action.GROW:
            stage.grow(turn.by)
            self._consumption.grown(stage.partitions, now_ms)
        elif turn.action in (Action.LEAVE, Action.DIE):
            stage.end_member(self._places.pop(turn.member), leaves=turn.action is Action.LEAVE)
            self._consumption.gone(turn.member, now_ms)
        elif turn.action is Action.FREEZE:
            stage.freeze(self._places[turn.member], turn.for_ms)
            self._consumption.halted(turn.member, now_ms)
            stage.timetable.at(now_ms + turn.for_ms, partial(self._thawed, turn.member))
        elif turn.action is Action.CUT:
            stage.cut(self._places[turn.member], turn.for_ms)
        # The failure of a broker that does not hold the group has no effect.

    def _thawed(self, member: str) -> None:
        self._consumption.resumed(member, self._stage.now_ms)

    def _claimed(self, member: SimulatedConsumer, partitions: Iterable[int]) -> None:
        self._recorder.result.rebalances += 1
        self._consumption.claimed(member.name, partitions, self._stage.now_ms)

    def _released(self, member: SimulatedConsumer, partitions: Iterable[int]) -> None:
        self._consumption.released(member.name, partitions, self._stage.now_ms)


class _Witnessed(Ownership):
    """Detects two owners in one generation, and passes all changes on."""

    def __init__(
        self,
        coordinator: SimulatedCoordinator,
        claimed: Callable[[SimulatedConsumer, Iterable[int]], None],
        released: Callable[[SimulatedConsumer, Iterable[int]], None],
    ) -> None:
        super().__init__(lambda: coordinator.member_ids & coordinator.joined, coordinator.story)
        self._claimed = claimed
        self._released = released

    def claimed(self, member: SimulatedConsumer, partitions: Iterable[int]) -> None:
        """See `Ownership.claimed`."""
        super().claimed(member, partitions)
        self._claimed(member, partitions)

    def released(self, member: SimulatedConsumer, partitions: Iterable[int]) -> None:
        """See `Ownership.released`."""
        super().released(member, partitions)
        self._released(member, partitions)
