"""A consumer group in the simulator: members, their connections, a coordinator, and all events that can happen to them.

Messages have a latency; requests and responses are lost with their connection, but messages sent earlier on it may
still arrive. So a retried request may be handled twice. A member's messages stay in order, as on TCP. The events are
chosen elsewhere: at random (`tests/support/group_churn.py`), or by a script (`rebalance.designs.coordinator`).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush

from ottla.assign.assignor import PartitionAssignor
from ottla.groups.classic.group import GroupLimits
from ottla.groups.classic.states import GroupState
from ottla.groups.events import CommitResult, PartitionsChanged, Result
from ottla.sim.group_consumer import GROUP_ID, TOPIC, MemberTimes, OwnershipListener, Request, SimulatedConsumer
from ottla.sim.group_coordinator import Answered, SimulatedCoordinator
from ottla.sim.witness import Wrong
from ottla.wire.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Weather:
    """Network conditions: latency (milliseconds, from, to), and the probability of loss."""

    delay_ms: tuple[int, int] = (1, 40)
    loss: float = 0.0
    #: Latency factor of the slowest possible member, relative to the fastest.
    slowest: float = 1.0

    def slowness(self, member: str) -> float:
        """The latency factor of this member; computed from its name, so the same in every run and design."""
        return float(self.slowest ** random.Random(member).random())


def errors_of(result: Result) -> Iterable[ErrorCode]:
    """The error codes in a response."""
    return result.errors if isinstance(result, CommitResult) else (result.error,)


class Timetable:
    """Calls by time, milliseconds; those of one moment in the order in which they were added."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._entries: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0

    def at(self, at_ms: int, call: Callable[[], None]) -> None:
        """Add a call; one in the past is run next."""
        self._sequence += 1
        heappush(self._entries, (max(at_ms, self.now_ms), self._sequence, call))

    def step(self) -> bool:
        """Run the next call; False if there is none."""
        if not self._entries:
            return False
        self.now_ms, _, call = heappop(self._entries)
        call()
        return True


class Ownership:
    """The rebalance listener of all members; detects two owners at once.

    Members that the coordinator has removed may still believe that they own partitions, until they are notified (their
    commits are refused): they are not counted. Nor are static members whose place was kept while they did not join.
    `member_ids` returns the members that joined the current generation.
    """

    def __init__(self, member_ids: Callable[[], frozenset[str]], story: Callable[[], str]) -> None:
        self._member_ids = member_ids
        self._story = story
        self._owners: dict[int, list[SimulatedConsumer]] = {}

    def claimed(self, member: SimulatedConsumer, partitions: Iterable[int]) -> None:
        """See `OwnershipListener`. Raises Wrong if another member of the group owns one of them."""
        present = self._member_ids()
        for partition in partitions:
            owners = self._owners.setdefault(partition, [])
            for other in owners:
                if other.member_id in present and member.member_id in present:
                    raise Wrong(
                        f"partition {partition} is owned by {other.name} (generation {other.generation_id}) and by "
                        f"{member.name} (generation {member.generation_id})\n{self._story()}"
                    )
            owners.append(member)

    def released(self, member: SimulatedConsumer, partitions: Iterable[int]) -> None:
        """See `OwnershipListener`."""
        for partition in partitions:
            self._owners[partition].remove(member)


@dataclass(eq=False)
class MemberPlace:
    """A member and its connection. `link` counts its connections so far."""

    member: SimulatedConsumer
    slowness: float = 1.0
    link: int = 0
    is_frozen: bool = False
    is_cut: bool = False
    #: Messages and timers deferred until it continues.
    held: list[Callable[[], None]] = field(default_factory=list)
    last_arrival_ms: int = 0
    last_answer_ms: int = 0
    wake_at_ms: int | None = None


class GroupStage:
    """The simulated group and its environment. Events are its methods (`start_member` to `grow`); `step` runs their
    effects.
    """

    def __init__(
        self,
        assignor: Callable[[], PartitionAssignor],
        partitions: int,
        weather: Weather,
        chance: random.Random,
        times: MemberTimes,
        limits: GroupLimits,
        listener: Callable[[SimulatedCoordinator], OwnershipListener],
    ) -> None:
        self.steps = 0
        self.coordinator = SimulatedCoordinator(limits, self._answered)
        self.partitions = partitions
        self.timetable = Timetable()
        #: The live members.
        self.places: dict[SimulatedConsumer, MemberPlace] = {}
        #: Number of responses with each error.
        self.answers: Counter[str] = Counter()
        #: Number of requests of each kind that have reached the coordinator.
        self.requests: Counter[str] = Counter()
        #: Number of requests of each kind that were lost, or their responses: the member does not know the result.
        self.unanswered: Counter[str] = Counter()
        #: Called with each response of the coordinator as it is made, and the member whose request it answers.
        self.on_response: Callable[[SimulatedConsumer, Answered], None] = lambda _member, _answered: None
        #: Whether messages can be lost.
        self.is_stormy = True
        self._assignor = assignor
        self._weather = weather
        self._chance = chance
        self._times = times
        self._listener = listener(self.coordinator)
        #: The sender of each request, and which of its connections it used.
        self._in_flight: dict[int, tuple[Request, MemberPlace, int]] = {}
        self._numbers = 0
        self._expiry_at_ms: int | None = None

    @property
    def now_ms(self) -> int:
        """The virtual time."""
        return self.timetable.now_ms

    def is_settled(self) -> bool:
        """Whether all are members of one stable generation, and every partition has one owner."""
        return not self.unsettled()

    def unsettled(self) -> str:
        """Why the group is not at rest, as text; empty if it is."""
        machine = self.coordinator.machine
        if machine is None or machine.state is not GroupState.STABLE:
            return "it is not stable"
        late = [one.name for one in self.places if not one.is_stable or one.generation_id != machine.generation_id]
        if late:
            return f"{len(late)} members are not in its generation, {late[0]} first"
        if len(machine.members) != len(self.places):
            return f"it has {len(machine.members)} members, and {len(self.places)} live"
        owned = sorted(partition for one in self.places for partition in one.owned)
        if owned != list(range(self.partitions)):
            return f"{len(owned)} of {self.partitions} partitions are owned"
        return ""

    def step(self) -> None:
        """One message, one deadline, or one scheduled event. Raises Wrong if an invariant is violated."""
        if not self.timetable.step():
            raise Wrong(f"nothing will ever happen any more\n{self.coordinator.story()}")
        self.steps += 1

    # -- events

    def start_member(self, group_instance_id: str | None = None, name: str | None = None) -> MemberPlace:
        """Start a member, called `name` (or by its number)."""
        self._numbers += 1
        member = SimulatedConsumer(
            name or f"m{self._numbers}",
            self._assignor(),
            self._listener,
            lambda: self.partitions,
            self._new_id,
            self._chance,
            self._times,
            group_instance_id,
        )
        place = self.places[member] = MemberPlace(member, self._weather.slowness(member.name))
        member.start(self.now_ms)
        self._pump(place)
        return place

    def end_member(self, place: MemberPlace, *, leaves: bool) -> None:
        """A member leaves or crashes; one that is frozen or cut off can only crash."""
        if leaves and not place.is_frozen and not place.is_cut:
            place.member.leave()
            self._pump(place)
        else:
            place.member.die()
        place.link += 1
        del self.places[place.member]

    def freeze(self, place: MemberPlace, for_ms: int) -> None:
        """Pause the process for a while, as by a long garbage collection."""
        if not place.is_frozen:
            place.is_frozen = True
            self.timetable.at(self.now_ms + for_ms, partial(self.thaw, place))

    def thaw(self, place: MemberPlace) -> None:
        """Resume the process; it handles what arrived meanwhile."""
        place.is_frozen = False
        held, place.held = place.held, []
        for call in held:
            call()

    def cut(self, place: MemberPlace, for_ms: int) -> None:
        """Cut the member off from the coordinator for a while; the process continues."""
        if not place.is_cut:
            place.is_cut = True
            self._break(place)
            self.timetable.at(self.now_ms + for_ms, partial(setattr, place, "is_cut", False))

    def crash(self, down_ms: int, loading_ms: int) -> None:
        """Crash the coordinator; it restarts after a while, and then takes a while to load its log."""
        if not self.coordinator.is_up or self.coordinator.is_loading:
            return
        self.coordinator.crash()
        for place in list(self.places.values()):
            self._break(place)
        self.timetable.at(self.now_ms + down_ms, partial(self._load, loading_ms))

    def _load(self, loading_ms: int) -> None:
        self.coordinator.load()
        self.timetable.at(self.now_ms + loading_ms, self._finish_loading)

    def _finish_loading(self) -> None:
        self.coordinator.finish_loading(self.now_ms)
        self._set_expiry()

    def grow(self, by: int) -> None:
        """The topic gets more partitions."""
        before = self.partitions
        self.partitions += by
        if not self.coordinator.is_loading:
            event = PartitionsChanged(GROUP_ID, {TOPIC: (before, self.partitions)})
            self.coordinator.submit(event, self.now_ms)

    def _new_id(self) -> str:
        return f"{self._chance.getrandbits(64):016x}"

    def _delay_ms(self, place: MemberPlace) -> int:
        return round(self._chance.randint(*self._weather.delay_ms) * place.slowness)

    # -- messages

    def _pump(self, place: MemberPlace) -> None:
        """Send the member's requests, and schedule its next wake-up."""
        member = place.member
        for request in member.outbox:
            self._send(place, request)
        member.outbox.clear()
        due_ms = member.next_deadline_ms(self.now_ms)
        if due_ms is not None and (place.wake_at_ms is None or due_ms < place.wake_at_ms):
            place.wake_at_ms = max(due_ms, self.now_ms)
            self.timetable.at(place.wake_at_ms, partial(self._wake, place, place.wake_at_ms))

    def _wake(self, place: MemberPlace, at_ms: int) -> None:
        if place.wake_at_ms != at_ms:
            return
        place.wake_at_ms = None
        self._wake_again(place)

    def _wake_again(self, place: MemberPlace) -> None:
        if not self._is_away(place, partial(self._wake_again, place)):
            place.member.wake(self.now_ms)
            self._pump(place)

    def _is_away(self, place: MemberPlace, later: Callable[[], None]) -> bool:
        """Whether the member handles nothing now: it is dead, or frozen, and then `later` is deferred."""
        if place.member not in self.places:
            return True
        if place.is_frozen:
            place.held.append(later)
        return place.is_frozen

    def _send(self, place: MemberPlace, request: Request) -> None:
        arrival_ms = max(self.now_ms + self._delay_ms(place), place.last_arrival_ms)
        if place.is_cut or self._is_lost():
            self._lose(request)
            self.timetable.at(arrival_ms, partial(self._broken, place, place.link))
            return
        place.last_arrival_ms = arrival_ms
        self.timetable.at(arrival_ms, partial(self._arrive, place, place.link, request))

    def _arrive(self, place: MemberPlace, link: int, request: Request) -> None:
        if not self.coordinator.is_up:
            self._lose(request)
            self._broken(place, link)
            return
        self.requests[type(request).__name__] += 1
        self._in_flight[id(request)] = (request, place, link)
        self.coordinator.take(request, self.now_ms)
        self._set_expiry()

    def _answered(self, answered: Answered) -> None:
        _, place, link = self._in_flight.pop(id(answered.request))
        self.on_response(place.member, answered)
        if not isinstance(answered.answer, dict):
            self.answers.update(error.name for error in errors_of(answered.answer))
        if place.link != link:
            self._lose(answered.request)
            return
        at_ms = max(self.now_ms + self._delay_ms(place), place.last_answer_ms)
        if place.is_cut or self._is_lost():
            self._lose(answered.request)
            self.timetable.at(at_ms, partial(self._broken, place, link))
            return
        place.last_answer_ms = at_ms
        self.timetable.at(at_ms, partial(self._deliver, place, link, answered))

    def _deliver(self, place: MemberPlace, link: int, answered: Answered) -> None:
        if place.link != link:
            self._lose(answered.request)
            return
        if self._is_away(place, partial(self._deliver, place, link, answered)):
            return
        place.member.receive(answered.request, answered.answer, self.now_ms)
        self._pump(place)
        if place.member.is_fenced:
            self.end_member(place, leaves=False)

    def _lose(self, request: Request) -> None:
        self.unanswered[type(request).__name__] += 1

    def _is_lost(self) -> bool:
        return self.is_stormy and self._chance.random() < self._weather.loss

    def _broken(self, place: MemberPlace, link: int) -> None:
        if place.link == link:
            self._break(place)

    def _break(self, place: MemberPlace) -> None:
        """Break the connection; the member notices a little later."""
        place.link += 1
        self.timetable.at(self.now_ms + self._delay_ms(place), partial(self._disconnected, place))

    def _disconnected(self, place: MemberPlace) -> None:
        if self._is_away(place, partial(self._disconnected, place)):
            return
        place.member.disconnected(self.now_ms)
        self._pump(place)

    # -- the coordinator's timers

    def _set_expiry(self) -> None:
        due_ms = self.coordinator.next_deadline_ms()
        if due_ms is not None and (self._expiry_at_ms is None or due_ms < self._expiry_at_ms):
            self._expiry_at_ms = max(due_ms, self.now_ms)
            self.timetable.at(self._expiry_at_ms, partial(self._expire, self._expiry_at_ms))

    def _expire(self, at_ms: int) -> None:
        if self._expiry_at_ms != at_ms:
            return
        self._expiry_at_ms = None
        if self.coordinator.is_up:
            self.coordinator.expire(self.now_ms)
        self._set_expiry()
