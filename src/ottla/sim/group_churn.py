"""A consumer group through churn: members come, go, die and freeze, connections break, the coordinator crashes.

Messages take their time; requests and answers are lost with their connection; what was sent before on it may still
arrive. A request that a member sends again may so be taken twice. A member's messages keep their order, as on TCP.

After every step the group's invariants hold, no partition has two owners in the group, answers come once and to whoever
asked, and what was committed by members only grows. When the churn has stopped, the group settles.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from ottla.assign.assignor import PartitionAssignor
from ottla.groups.events import CommitResult, PartitionsChanged, Result
from ottla.groups.group import GroupLimits
from ottla.groups.states import GroupState
from ottla.sim.group_coordinator import Answered, SimulatedCoordinator
from ottla.sim.group_member import GROUP_ID, TOPIC, MemberTimes, Phase, Request, SimulatedMember
from ottla.sim.ownership import Ownership
from ottla.sim.timetable import Timetable
from ottla.sim.witness import Wrong
from ottla.wire.errors import ErrorCode

#: A group that has not settled so long after the end of the churn never will.
SETTLING_LIMIT_MS = 600_000
MOST_PARTITIONS_ADDED = 10
#: A group is at rest when nothing has changed for as long as so many heartbeats are apart.
REST_HEARTBEATS = 3
#: Of the static members that are started again: those whose old selves live.
FROZEN_RETURNS = 0.3
APPEND_ERRORS = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.MESSAGE_TOO_LARGE,
)


@dataclass(frozen=True, slots=True)
class ChurnPlan:
    """How large the group is, and what it has to go through. Times in milliseconds, chances from 0 to 1."""

    assignor: Callable[[], PartitionAssignor]
    members: int = 20
    partitions: int = 50
    delay_ms: tuple[int, int] = (1, 40)
    #: Of a message: to be lost, with its connection.
    loss: float = 0.01
    #: Between two turns of fate, on average.
    action_interval_ms: int = 500
    down_ms: tuple[int, int] = (100, 3_000)
    loading_ms: tuple[int, int] = (0, 1_000)
    frozen_ms: tuple[int, int] = (1_000, 25_000)
    initial_rebalance_delay_ms: int = 3_000
    #: Of the members: to be static. Topics must not grow then: nobody notices while a static leader is away.
    static_share: float = 0.0
    #: How often each turn of fate comes, in proportion.
    weights: dict[str, int] = field(
        default_factory=lambda: {"start": 30, "leave": 8, "die": 8, "freeze": 6, "crash": 2, "grow": 1}
    )
    """Besides these there are `return` (a static member is started again) and `fail` (an append)."""


def errors_of(result: Result) -> Iterable[ErrorCode]:
    """The error codes in an answer."""
    return result.errors if isinstance(result, CommitResult) else (result.error,)


@dataclass(eq=False)
class _Place:
    """A member and its connection. `link` counts the connections that it has had."""

    member: SimulatedMember
    link: int = 0
    is_frozen: bool = False
    #: What it will see when it goes on.
    held: list[Callable[[], None]] = field(default_factory=list)
    last_arrival_ms: int = 0
    last_answer_ms: int = 0
    wake_at_ms: int | None = None


class GroupChurn:
    """One run, made by its seed. Call `step` as often as wanted, then `stop` and `settle`."""

    def __init__(self, seed: int, plan: ChurnPlan, times: MemberTimes | None = None) -> None:
        self.plan = plan
        self.steps = 0
        self.coordinator = SimulatedCoordinator(
            GroupLimits(initial_rebalance_delay_ms=plan.initial_rebalance_delay_ms), self._answered
        )
        self.partitions = plan.partitions
        self._times = times or MemberTimes()
        self._chance = random.Random(seed)
        self._timetable = Timetable()
        self._ownership = Ownership(
            lambda: self.coordinator.member_ids & self.coordinator.joined, self.coordinator.story
        )
        self._places: dict[SimulatedMember, _Place] = {}
        #: Who asked, over which of its connections.
        self._asked: dict[int, tuple[Request, _Place, int]] = {}
        self._numbers = 0
        #: How often each error was answered.
        self.answers: Counter[str] = Counter()
        #: How often each turn of fate came.
        self.turns: Counter[str] = Counter()
        self._churning = True
        self._expiry_at_ms: int | None = None
        for _ in range(plan.members):
            self._start()
        self._timetable.at(self._next_action_ms(), self._act)

    @property
    def now_ms(self) -> int:
        """The virtual time."""
        return self._timetable.now_ms

    @property
    def members(self) -> list[SimulatedMember]:
        """Those that live."""
        return list(self._places)

    def step(self) -> None:
        """One message, one deadline, or one turn of fate. Raises Wrong where something must not be."""
        if not self._timetable.step():
            raise Wrong(f"nothing will ever happen any more\n{self.coordinator.story()}")
        self.steps += 1

    def stop(self) -> None:
        """The churn ends: from now on nobody comes or goes, and nothing breaks."""
        self._churning = False
        self.coordinator.next_error = None
        for place in list(self._places.values()):
            self._thaw(place)

    def settle(self) -> int:
        """Go on until the group is at rest. Raises Wrong where that never comes.

        Gives the number of generations that took once the coordinator knew of everybody who is gone: deaths before the
        end of the churn are noticed after it, when their sessions end.
        """
        until_ms = self.now_ms + SETTLING_LIMIT_MS
        begun: int | None = None
        at_rest: tuple[int, int] | None = None
        while True:
            if not self.is_settled():
                at_rest = None
            elif at_rest is None or at_rest[0] != self.coordinator.generation_id:
                rest_ms = REST_HEARTBEATS * self._times.heartbeat_interval_ms
                at_rest = (self.coordinator.generation_id, self.now_ms + rest_ms)
            elif self.now_ms > at_rest[1]:
                return 0 if begun is None else at_rest[0] - begun
            if self.now_ms > until_ms:
                raise Wrong(f"the group does not settle: {self._unsettled()}\n{self.coordinator.story()}")
            if begun is None and self._all_deaths_are_known():
                begun = self.coordinator.generation_id
            self.step()

    def _all_deaths_are_known(self) -> bool:
        machine = self.coordinator.machine
        if self.coordinator.is_loading or machine is None:
            return False
        return machine.members.ids() <= {member.member_id for member in self._places}

    def is_settled(self) -> bool:
        """Whether everybody is a member of one stable generation, and every partition has one owner."""
        return not self._unsettled()

    def _unsettled(self) -> str:
        machine = self.coordinator.machine
        if machine is None or machine.state is not GroupState.STABLE:
            return "it is not stable"
        late = [
            one.name
            for one in self._places
            if one.phase is not Phase.MEMBER or one.generation_id != machine.generation_id
        ]
        if late:
            return f"{len(late)} members are not in its generation, {late[0]} first"
        if len(machine.members) != len(self._places):
            return f"it has {len(machine.members)} members, and {len(self._places)} live"
        owned = sorted(partition for one in self._places for partition in one.owned)
        if owned != list(range(self.partitions)):
            return f"{len(owned)} of {self.partitions} partitions are owned"
        return ""

    # -- fate

    def _next_action_ms(self) -> int:
        return self.now_ms + 1 + int(self._chance.expovariate(1 / self.plan.action_interval_ms))

    def _act(self) -> None:
        if not self._churning:
            return
        weights = self.plan.weights
        (action,) = self._chance.choices(list(weights), list(weights.values()))
        self.turns[action] += 1
        if action == "start":
            if len(self._places) < self.plan.members:
                self._start()
        elif action == "crash":
            self._crash()
        elif action == "grow":
            self._grow()
        elif action == "fail":
            self.coordinator.next_error = self._chance.choice(APPEND_ERRORS)
        elif action == "return":
            self._return()
        elif self._places:
            place = self._chance.choice(list(self._places.values()))
            if action == "freeze":
                self._freeze(place)
            else:
                self._end(place, action)
        self._timetable.at(self._next_action_ms(), self._act)

    def _start(self, group_instance_id: str | None = None) -> None:
        self._numbers += 1
        if group_instance_id is None and self._chance.random() < self.plan.static_share:
            group_instance_id = f"static-{self._numbers}"
        member = SimulatedMember(
            f"m{self._numbers}",
            self.plan.assignor(),
            self._ownership,
            lambda: self.partitions,
            self._new_id,
            self._chance,
            self._times,
            group_instance_id,
        )
        place = self._places[member] = _Place(member)
        member.start(self.now_ms)
        self._pump(place)

    def _end(self, place: _Place, action: str) -> None:
        if place.is_frozen:
            action = "die"
        if action == "leave":
            place.member.leave()
            self._pump(place)
        else:
            place.member.die()
        place.link += 1
        del self._places[place.member]

    def _return(self) -> None:
        """A static member is started again; its old self is dead, or frozen and about to find out."""
        static = [one for one in self._places.values() if one.member.group_instance_id is not None]
        if not static:
            return
        old = self._chance.choice(static)
        if self._chance.random() < FROZEN_RETURNS:
            self._freeze(old)
        else:
            self._end(old, "die")
        self._start(old.member.group_instance_id)

    def _freeze(self, place: _Place) -> None:
        """The process stands still for a while, as in a long pause of its garbage collector."""
        if not place.is_frozen:
            place.is_frozen = True
            self._timetable.at(self.now_ms + self._between(self.plan.frozen_ms), partial(self._thaw, place))

    def _thaw(self, place: _Place) -> None:
        place.is_frozen = False
        held, place.held = place.held, []
        for call in held:
            call()

    def _crash(self) -> None:
        if not self.coordinator.is_up or self.coordinator.is_loading:
            return
        self.coordinator.crash()
        for place in list(self._places.values()):
            self._break(place)
        self._timetable.at(self.now_ms + self._between(self.plan.down_ms), self._load)

    def _load(self) -> None:
        self.coordinator.load()
        self._timetable.at(self.now_ms + self._between(self.plan.loading_ms), self._finish_loading)

    def _finish_loading(self) -> None:
        self.coordinator.finish_loading(self.now_ms)
        self._set_expiry()

    def _grow(self) -> None:
        before = self.partitions
        self.partitions += self._chance.randint(1, MOST_PARTITIONS_ADDED)
        if not self.coordinator.is_loading:
            event = PartitionsChanged(GROUP_ID, {TOPIC: (before, self.partitions)})
            self.coordinator.submit(event, self.now_ms)

    def _new_id(self) -> str:
        return f"{self._chance.getrandbits(64):016x}"

    def _between(self, limits: tuple[int, int]) -> int:
        return self._chance.randint(*limits)

    # -- messages

    def _pump(self, place: _Place) -> None:
        """Send what the member wants to send, and be there when it wants to be woken."""
        member = place.member
        for request in member.outbox:
            self._send(place, request)
        member.outbox.clear()
        due_ms = member.next_deadline_ms()
        if due_ms is not None and (place.wake_at_ms is None or due_ms < place.wake_at_ms):
            place.wake_at_ms = max(due_ms, self.now_ms)
            self._timetable.at(place.wake_at_ms, partial(self._wake, place, place.wake_at_ms))

    def _wake(self, place: _Place, at_ms: int) -> None:
        if place.wake_at_ms != at_ms:
            return
        place.wake_at_ms = None
        if self._is_away(place, partial(self._wake_again, place)):
            return
        place.member.wake(self.now_ms)
        self._pump(place)

    def _wake_again(self, place: _Place) -> None:
        if not self._is_away(place, partial(self._wake_again, place)):
            place.member.wake(self.now_ms)
            self._pump(place)

    def _is_away(self, place: _Place, later: Callable[[], None]) -> bool:
        """Whether the member sees nothing now: it is gone, or frozen, and then `later` happens."""
        if place.member not in self._places:
            return True
        if place.is_frozen:
            place.held.append(later)
        return place.is_frozen

    def _send(self, place: _Place, request: Request) -> None:
        arrival_ms = max(self.now_ms + self._between(self.plan.delay_ms), place.last_arrival_ms)
        if self._is_lost():
            self._timetable.at(arrival_ms, partial(self._broken, place, place.link))
            return
        place.last_arrival_ms = arrival_ms
        self._timetable.at(arrival_ms, partial(self._arrive, place, place.link, request))

    def _arrive(self, place: _Place, link: int, request: Request) -> None:
        if not self.coordinator.is_up:
            self._broken(place, link)
            return
        self._asked[id(request)] = (request, place, link)
        self.coordinator.take(request, self.now_ms)
        self._set_expiry()

    def _answered(self, answered: Answered) -> None:
        _, place, link = self._asked.pop(id(answered.request))
        if not isinstance(answered.answer, dict):
            self.answers.update(error.name for error in errors_of(answered.answer))
        if place.link != link:
            return
        at_ms = max(self.now_ms + self._between(self.plan.delay_ms), place.last_answer_ms)
        if self._is_lost():
            self._timetable.at(at_ms, partial(self._broken, place, link))
            return
        place.last_answer_ms = at_ms
        self._timetable.at(at_ms, partial(self._deliver, place, link, answered))

    def _deliver(self, place: _Place, link: int, answered: Answered) -> None:
        if place.link != link or self._is_away(place, partial(self._deliver, place, link, answered)):
            return
        place.member.receive(answered.request, answered.answer, self.now_ms)
        self._pump(place)
        if place.member.is_fenced:
            self._end(place, "die")

    def _is_lost(self) -> bool:
        return self._churning and self._chance.random() < self.plan.loss

    def _broken(self, place: _Place, link: int) -> None:
        if place.link == link:
            self._break(place)

    def _break(self, place: _Place) -> None:
        """The connection is gone; the member learns of it a little later."""
        place.link += 1
        self._timetable.at(self.now_ms + self._between(self.plan.delay_ms), partial(self._disconnected, place))

    def _disconnected(self, place: _Place) -> None:
        if self._is_away(place, partial(self._disconnected, place)):
            return
        place.member.disconnected(self.now_ms)
        self._pump(place)

    # -- the coordinator's time

    def _set_expiry(self) -> None:
        due_ms = self.coordinator.next_deadline_ms()
        if due_ms is not None and (self._expiry_at_ms is None or due_ms < self._expiry_at_ms):
            self._expiry_at_ms = max(due_ms, self.now_ms)
            self._timetable.at(self._expiry_at_ms, partial(self._expire, self._expiry_at_ms))

    def _expire(self, at_ms: int) -> None:
        if self._expiry_at_ms != at_ms:
            return
        self._expiry_at_ms = None
        if self.coordinator.is_up:
            self.coordinator.expire(self.now_ms)
        self._set_expiry()
