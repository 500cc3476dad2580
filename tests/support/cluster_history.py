"""The events that clients of a cluster saw, and the check that the cluster kept its promises. Pure.

The code that runs clients appends events as they happen, in the order of time; `violations` checks the whole history. A
record is known by its producer and by its number, which grows by each send of this producer to this partition. Times
are seconds on any one clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

#: A topic's name and a partition's number.
Place = tuple[str, int]
#: A producer's name and the number it gave the record.
Value = tuple[str, int]

#: What is said of records whose partition was not read at the end, since it did not recover.
NO_LOG_READ = "no log of the partition was read"
#: How many lines `describe` shows of each kind.
SHOWN_OF_A_KIND = 5


class BrokenPromise(StrEnum):
    """A promise that was broken."""

    LOST = "an acknowledged record is lost"
    LOST_READ = "a record that was read is lost"
    REORDERED = "records of one producer are out of order"
    DUPLICATE = "a record of an idempotent producer is there twice"
    TWO_VALUES = "an offset had two values"
    INVENTED = "a record that nobody sent"
    READ_BACK = "a consumer read backwards"
    SKIPPED = "a consumer skipped records"
    END_BACK = "the end offset went back"
    REPLICAS_DIFFER = "replicas differ"
    OWNED_TWICE = "a partition of a settled group has two owners"
    NOT_OWNED = "a partition of a settled group has no owner"
    COMMIT_BACK = "a committed offset went back"


class Producing(NamedTuple):
    """The promises to a producer from now on; the event comes before its first `RecordSent`.

    With `all_replicas` (acks=all) acknowledged records are kept; an idempotent producer's arrive once and in order.
    """

    at_s: float
    producer: str
    all_replicas: bool = True
    idempotent: bool = True


class RecordSent(NamedTuple):
    """A producer handed a record to its client."""

    at_s: float
    producer: str
    place: Place
    number: int


#: Of an acknowledgement that did not say where the record is.
UNKNOWN_OFFSET = -1


class Acknowledged(NamedTuple):
    """The cluster acknowledged a record at an offset.

    A client that lost the answer may learn by that to a later request that the record is there, but not where.
    """

    at_s: float
    producer: str
    place: Place
    number: int
    offset: int


class Positioned(NamedTuple):
    """A consumer begins to read at an offset: assigned, sought, reset. Its next read may be anywhere from there on."""

    at_s: float
    consumer: str
    place: Place
    offset: int


class Read(NamedTuple):
    """A consumer received a record, in the order in which it received them."""

    at_s: float
    consumer: str
    place: Place
    offset: int
    value: Value


class EndSeen(NamedTuple):
    """ListOffsets (latest, of committed records) answered an observer, which asked at `began_s`.

    One observer is one client with one view of the metadata: an end must not go back for it. Another client that
    still asks a deposed leader may see an older end, as in Kafka.
    """

    at_s: float
    observer: str
    place: Place
    offset: int
    began_s: float


class Took(NamedTuple):
    """A member of a group was assigned partitions (in addition to those it owns)."""

    at_s: float
    group: str
    member: str
    places: tuple[Place, ...]


class GaveUp(NamedTuple):
    """A member gave up partitions or lost them; None for all: it left, or its process ended."""

    at_s: float
    group: str
    member: str
    places: tuple[Place, ...] | None


class GroupSettled(NamedTuple):
    """From now on until `GroupDisturbed` each of these partitions has exactly one owner."""

    at_s: float
    group: str
    places: tuple[Place, ...]


class GroupDisturbed(NamedTuple):
    """Members, coordinators or brokers fail from now on: the group may rebalance."""

    at_s: float
    group: str


class Committed(NamedTuple):
    """A commit that was begun at `began_s` was acknowledged."""

    at_s: float
    group: str
    place: Place
    offset: int
    began_s: float


class CommitSeen(NamedTuple):
    """OffsetFetch, begun at `began_s`, answered with this offset; -1 for none.

    A deposed coordinator that has not heard of it answers from what it knows, as in Kafka. An `observer` that may ask
    one is named: what it sees must not go back for itself. Without a name it asks the present coordinator.
    """

    at_s: float
    group: str
    place: Place
    offset: int
    began_s: float
    observer: str = ""


class ReplicaLog(NamedTuple):
    """A replica at the end, when all is well: the records from its first offset on to its high watermark.

    The leader's is the log that all else is compared with; one of each partition has to be there.
    """

    at_s: float
    place: Place
    broker: int
    leads: bool
    start: int
    end: int
    records: Mapping[int, Value]
    #: Producer id and epoch of the records, by their offsets, where a client may raise its epoch by itself.
    writers: Mapping[int, tuple[int, int]] | None = None

    def is_sent_anew(self, first: int, again: int) -> bool:
        """Whether the client raised its epoch between the two offsets, and sent the record again as a new one.

        librdkafka does that to records that may be there already when a request for another partition is refused as
        out of order (its issue 4953): no broker can know that these are the same.
        """
        if self.writers is None:
            return False
        (producer_id, epoch), (later_id, later_epoch) = self.writers[first], self.writers[again]
        return producer_id == later_id and epoch < later_epoch


Event = (
    Producing
    | RecordSent
    | Acknowledged
    | Positioned
    | Read
    | EndSeen
    | Took
    | GaveUp
    | GroupSettled
    | GroupDisturbed
    | Committed
    | CommitSeen
    | ReplicaLog
)


class Violation(NamedTuple):
    """A promise that was broken, seen at `at_s`: what happened, in words."""

    kind: BrokenPromise
    at_s: float
    place: Place | None
    what: str

    def __str__(self) -> str:
        where = "" if self.place is None else f"{name_of(self.place)} "
        return f"{self.at_s:.3f} {where}{self.kind}: {self.what}"


def name_of(place: Place) -> str:
    """`orders-0`, as Kafka's logs name it."""
    return f"{place[0]}-{place[1]}"


def violations(events: Iterable[Event]) -> list[Violation]:
    """All that is wrong with a history, in the order of time; empty if it kept all promises."""
    history = list(events)
    found = [*_Records(history).check(), *_Reads(history).check(), *_ends(history), *_commits(history)]
    found += _Ownership().check(history)
    return sorted(found, key=lambda each: each.at_s)


def describe(found: Iterable[Violation]) -> str:
    """A line for each violation, a few of each kind, and how many there are."""
    by_kind: dict[BrokenPromise, list[Violation]] = defaultdict(list)
    for each in found:
        by_kind[each.kind].append(each)
    lines = []
    for kind, each_kind in by_kind.items():
        lines.append(f"{kind}: {len(each_kind)}")
        lines += [f"  {each}" for each in each_kind[:SHOWN_OF_A_KIND]]
    return "\n".join(lines)


def acknowledged_count(events: Iterable[Event], since_s: float, until_s: float) -> int:
    """How many records were acknowledged after `since_s` and not after `until_s`."""
    return sum(isinstance(each, Acknowledged) and since_s < each.at_s <= until_s for each in events)


class _Records:
    """Records against the logs at the end: lost, out of order, twice, never sent, two at one offset."""

    def __init__(self, history: list[Event]) -> None:
        self.history = history
        self.producers = {each.producer: each for each in history if isinstance(each, Producing)}
        self.sent = {(each.place, each.producer, each.number) for each in history if isinstance(each, RecordSent)}
        self.leaders = {each.place: each for each in history if isinstance(each, ReplicaLog) and each.leads}
        self.kept = {place: set(log.records.values()) for place, log in self.leaders.items()}

    def check(self) -> Iterator[Violation]:
        """Everything that is wrong with them."""
        yield from self._values()
        yield from self._lost()
        for log in self.leaders.values():
            yield from self._order(log)
        for each in self.history:
            if isinstance(each, ReplicaLog) and not each.leads:
                yield from self._replica(each)

    def _keeps(self, producer: str) -> bool:
        declared = self.producers.get(producer)
        return declared is None or declared.all_replicas

    def _values(self) -> Iterator[Violation]:
        """Each offset has one value, whoever saw it whenever. What acks=1 acknowledges may be overwritten."""
        first: dict[tuple[Place, int], tuple[Value, str]] = {}
        for each in self.history:
            seen: Iterable[tuple[int, Value]] = ()
            match each:
                case Acknowledged() if each.offset != UNKNOWN_OFFSET and self._keeps(each.producer):
                    seen, where = [(each.offset, (each.producer, each.number))], f"acknowledged to {each.producer}"
                case Read():
                    seen, where = [(each.offset, each.value)], f"read by {each.consumer}"
                case ReplicaLog() if each.leads:
                    seen, where = each.records.items(), f"in the log of {each.broker}"
                case _:
                    continue
            for offset, value in seen:
                known, known_where = first.setdefault((each.place, offset), (value, where))
                if known != value:
                    what = f"offset {offset} is {_said(value)} {where}, and was {_said(known)} {known_where}"
                    yield Violation(BrokenPromise.TWO_VALUES, each.at_s, each.place, what)

    def _lost(self) -> Iterator[Violation]:
        for each in self.history:
            if isinstance(each, Acknowledged) and self._keeps(each.producer):
                kind, value, who = BrokenPromise.LOST, (each.producer, each.number), each.producer
            elif isinstance(each, Read):
                kind, value, who = BrokenPromise.LOST_READ, each.value, each.consumer
            else:
                continue
            log = self.leaders.get(each.place)
            if log is None:
                yield Violation(kind, each.at_s, each.place, f"{_said(value)}: {NO_LOG_READ}")
            elif each.offset == UNKNOWN_OFFSET and log.start == 0 and value not in self.kept[each.place]:
                yield Violation(kind, each.at_s, each.place, f"{_said(value)} is not in the log of {log.broker}")
            elif each.offset >= log.start and each.offset not in log.records:
                what = f"offset {each.offset} ({_said(value)}, {who}) is not in the log of {log.broker}, end {log.end}"
                yield Violation(kind, each.at_s, each.place, what)

    def _order(self, log: ReplicaLog) -> Iterator[Violation]:
        last: dict[str, tuple[int, int]] = {}
        at: dict[Value, int] = {}
        for offset in sorted(log.records):
            value = producer, number = log.records[offset]
            if (log.place, producer, number) not in self.sent:
                yield Violation(BrokenPromise.INVENTED, log.at_s, log.place, f"{_said(value)} at offset {offset}")
            declared = self.producers.get(producer)
            if declared is not None and not declared.idempotent:
                continue
            if value in at:
                if log.is_sent_anew(at[value], offset):
                    continue
                what = f"{_said(value)} is at the offsets {at[value]} and {offset}"
                yield Violation(BrokenPromise.DUPLICATE, log.at_s, log.place, what)
                continue
            at[value] = offset
            before, before_at = last.get(producer, (-1, -1))
            if number < before:
                what = f"{_said(value)} is at offset {offset}, behind its number {before} at {before_at}"
                yield Violation(BrokenPromise.REORDERED, log.at_s, log.place, what)
            else:
                last[producer] = number, offset

    def _replica(self, log: ReplicaLog) -> Iterator[Violation]:
        leader = self.leaders.get(log.place)
        if leader is None:
            return
        start, end = max(log.start, leader.start), max(log.end, leader.end)
        differing = [offset for offset in range(start, end) if log.records.get(offset) != leader.records.get(offset)]
        if differing:
            offset = differing[0]
            mine, its = log.records.get(offset), leader.records.get(offset)
            what = f"{len(differing)} offsets, the first {offset}: {_said(mine)} on {log.broker}, "
            what += f"{_said(its)} on its leader {leader.broker}"
            yield Violation(BrokenPromise.REPLICAS_DIFFER, log.at_s, log.place, what)


class _Reads:
    """Each consumer reads forward, and leaves nothing out that the log holds."""

    def __init__(self, history: list[Event]) -> None:
        self.history = history
        self.offsets = {
            each.place: sorted(each.records) for each in history if isinstance(each, ReplicaLog) and each.leads
        }

    def check(self) -> Iterator[Violation]:
        """Everything that is wrong with them."""
        next_of: dict[tuple[str, Place], int] = {}
        for each in self.history:
            if isinstance(each, Positioned):
                next_of[each.consumer, each.place] = each.offset
            elif isinstance(each, Read):
                expected = next_of.get((each.consumer, each.place))
                next_of[each.consumer, each.place] = each.offset + 1
                if expected is None:
                    continue
                if each.offset < expected:
                    what = f"{each.consumer} read {each.offset} where {expected} was next"
                    yield Violation(BrokenPromise.READ_BACK, each.at_s, each.place, what)
                elif each.offset > expected and (missed := self._between(each.place, expected, each.offset)):
                    what = f"{each.consumer} read {each.offset} where {expected} was next: {missed} records left out"
                    yield Violation(BrokenPromise.SKIPPED, each.at_s, each.place, what)

    def _between(self, place: Place, first: int, end: int) -> int:
        offsets = self.offsets.get(place, [])
        return bisect_right(offsets, end - 1) - bisect_right(offsets, first - 1)


def _ends(history: list[Event]) -> Iterator[Violation]:
    """For each observer, an end that was asked for after another one was known is not below it."""
    known: dict[tuple[str, Place], _Maximum] = defaultdict(_Maximum)
    for each in history:
        if isinstance(each, EndSeen):
            maximum = known[each.observer, each.place]
            before = maximum.before(each.began_s)
            if each.offset < before:
                what = f"{each.observer} saw {before}, and later {each.offset}"
                yield Violation(BrokenPromise.END_BACK, each.at_s, each.place, what)
            maximum.add(each.at_s, each.offset)


def _commits(history: list[Event]) -> Iterator[Violation]:
    """A commit, or a look at it, that began after a commit was acknowledged is not below that one."""
    known: dict[tuple[str, str, Place], _Maximum] = defaultdict(_Maximum)
    for each in history:
        if isinstance(each, Committed | CommitSeen):
            observer = "" if isinstance(each, Committed) else each.observer
            maximum = known[each.group, observer, each.place]
            before = maximum.before(each.began_s)
            if each.offset < before:
                verb = "committed" if isinstance(each, Committed) else "was told"
                what = f"group {each.group} {verb} {each.offset} after {before} was committed"
                yield Violation(BrokenPromise.COMMIT_BACK, each.at_s, each.place, what)
            maximum.add(each.at_s, each.offset)


class _Maximum:
    """The largest of the values that were known at a time; times are given in order."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._largest: list[int] = []

    def add(self, at_s: float, value: int) -> None:
        """The value is known since this time."""
        if not self._largest or value > self._largest[-1]:
            self._times.append(at_s)
            self._largest.append(value)

    def before(self, at_s: float) -> int:
        """The largest that was known before this time; -1 if none was."""
        at = bisect_right(self._times, at_s)
        return self._largest[at - 1] if at else -1


class _Ownership:
    """Owners of partitions, while groups are settled."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, Place], set[str]] = defaultdict(set)
        self._settled: dict[str, tuple[Place, ...]] = {}

    def check(self, history: list[Event]) -> Iterator[Violation]:
        """Everything that is wrong with them."""
        for each in history:
            match each:
                case Took():
                    for place in each.places:
                        self._owners[each.group, place].add(each.member)
                    yield from self._look(each.group, each.places, each.at_s)
                case GaveUp():
                    yield from self._given_up(each)
                case GroupSettled():
                    self._settled[each.group] = each.places
                    yield from self._look(each.group, each.places, each.at_s)
                case GroupDisturbed():
                    self._settled.pop(each.group, None)
                case _:
                    pass

    def _given_up(self, gone: GaveUp) -> Iterator[Violation]:
        places = gone.places
        if places is None:
            places = tuple(place for (group, place) in self._owners if group == gone.group)
        held = tuple(place for place in places if gone.member in self._owners[gone.group, place])
        for place in held:
            self._owners[gone.group, place].discard(gone.member)
        yield from self._look(gone.group, held, gone.at_s)

    def _look(self, group: str, places: tuple[Place, ...], at_s: float) -> Iterator[Violation]:
        for place in places:
            if place not in self._settled.get(group, ()):
                continue
            owners = sorted(self._owners[group, place])
            if len(owners) > 1:
                yield Violation(BrokenPromise.OWNED_TWICE, at_s, place, f"group {group}: {', '.join(owners)}")
            elif not owners:
                yield Violation(BrokenPromise.NOT_OWNED, at_s, place, f"group {group}")


def _said(value: Value | None) -> str:
    return "nothing" if value is None else f"{value[0]}#{value[1]}"
