"""The design with a coordinator (Kafka 0.9 and later), played through a script of churn."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from ottla.assign.assignor import PartitionAssignor
from ottla.groups.classic.group import GroupLimits
from ottla.groups.events import CommitResult, JoinResult, OffsetCommit, SyncGroup
from ottla.rebalance.designs.churn_script import Action, ChurnScript, Turn
from ottla.rebalance.designs.consumption import Consumption
from ottla.rebalance.designs.results import CHANGES, DesignResult, Recorder
from ottla.sim.group_consumer import MemberTimes, SimulatedConsumer
from ottla.sim.group_coordinator import Answered, SimulatedCoordinator
from ottla.sim.group_stage import GroupStage, MemberPlace, Ownership, Weather, errors_of
from ottla.wire.errors import ErrorCode

OUTDATED = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
"""With these the coordinator refuses a member whose generation or membership is over."""


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
        self._members: frozenset[str] = frozenset()

    def run(self, script: ChurnScript) -> DesignResult:
        """Play the script to its end. Raises `Wrong` if an invariant of the group is violated."""
        self._recorder = Recorder(self._name, script.partitions)
        self._consumption = self._recorder.consumption
        self._stage = GroupStage(
            self._assignor, script.partitions, self._weather, self._chance, self._times, GroupLimits(), self._listen
        )
        self._stage.on_response = self._responded
        for name in script.members:
            self._places[name] = self._stage.start_member(name=name)
        timetable = self._stage.timetable
        timetable.at(script.begin_ms, self._begin)
        for turn in script.turns:
            timetable.at(turn.at_ms, partial(self._play, turn))
        while self._stage.now_ms < script.end_ms:
            self._stage.step()
            self._note_lost()
        return self._end(script.end_ms)

    def _listen(self, coordinator: SimulatedCoordinator) -> CoordinatorDesign:
        self._ownership = Ownership(lambda: coordinator.member_ids & coordinator.joined, coordinator.story)
        return self

    def _begin(self) -> None:
        self._recorder.begin(self._stage.now_ms)
        self._requests_before = self._stage.requests.copy()
        self._unanswered_before = self._stage.unanswered.copy()
        result = self._recorder.result
        result.rebalances = result.tries = result.refused = 0
        result.stale_offsets_stored = result.stale_offsets_refused = 0

    def _end(self, now_ms: int) -> DesignResult:
        result = self._recorder.end(now_ms)
        result.requests = self._stage.requests - self._requests_before
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
            self._recorder.decisions.ended(turn.member)
        elif turn.action is Action.FREEZE:
            stage.freeze(self._places[turn.member], turn.for_ms)
            self._consumption.halted(turn.member, now_ms)
            stage.timetable.at(now_ms + turn.for_ms, partial(self._thawed, turn.member))
        elif turn.action is Action.CUT:
            stage.cut(self._places[turn.member], turn.for_ms)
        # The failure of a broker that does not hold the group has no effect.

    def _thawed(self, member: str) -> None:
        self._consumption.resumed(member, self._stage.now_ms)

    # What the coordinator sees

    def _note_lost(self) -> None:
        """Members that the coordinator has just removed from the group."""
        members = self._stage.coordinator.member_ids
        removed, self._members = self._members - members, members
        for name, place in self._places.items() if removed else ():
            if place.member.member_id in removed:
                self._consumption.lost(name, self._stage.now_ms)

    def _responded(self, member: SimulatedConsumer, answered: Answered) -> None:
        request, answer, result = answered.request, answered.answer, self._recorder.result
        if isinstance(answer, JoinResult):
            self._joined(member, answer)
        elif isinstance(request, SyncGroup) and request.assignments:
            self._recorder.decisions.ended(member.name)
        if isinstance(request, OffsetCommit) and isinstance(answer, CommitResult):
            is_member = request.member_id in self._stage.coordinator.member_ids
            result.stale_offsets_stored += 0 if is_member else answer.errors.count(ErrorCode.NONE)
            result.stale_offsets_refused += sum(error in OUTDATED for error in answer.errors)
        elif not isinstance(answer, dict):
            result.refused += any(error in OUTDATED for error in errors_of(answer))

    def _joined(self, member: SimulatedConsumer, answer: JoinResult) -> None:
        """A try of a member, unless it was only for its id; the leader decides, on the view that it gets."""
        self._recorder.result.tries += answer.error is not ErrorCode.MEMBER_ID_REQUIRED
        if answer.members:
            view = (sorted(each.member_id for each in answer.members), self._stage.partitions)
            self._recorder.decisions.decided(member.name, view)
        else:
            self._recorder.decisions.ended(member.name)

    def claimed(self, member: SimulatedConsumer, partitions: Iterable[int]) -> None:
        """See `OwnershipListener`. Raises `Wrong` for two owners in one generation."""
        self._ownership.claimed(member, partitions)
        self._recorder.result.rebalances += 1
        self._consumption.claimed(member.name, partitions, self._stage.now_ms)

    def released(self, member: SimulatedConsumer, partitions: Iterable[int]) -> None:
        """See `OwnershipListener`."""
        self._ownership.released(member, partitions)
        self._consumption.released(member.name, partitions, self._stage.now_ms)
