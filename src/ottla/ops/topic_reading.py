"""Topics read from one place to another, with a synchronous consumer that is assigned their partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ottla.client.errors import ClientError, ClientTimeoutError, InvalidArgumentError
from ottla.client.model import OffsetAndTimestamp, TopicPartition
from ottla.client.sync import Consumer
from ottla.env.threads import monotonic_s
from ottla.records.consumed import ConsumerRecord

Bytes = bytes | None
Records = list[ConsumerRecord[Bytes, Bytes]]

#: Wait for records at a time, ms; afterwards it is seen whether the end was reached.
POLL_MS: Final = 500
#: Partitions that a message names.
MOST_NAMED: Final = 5


class PositionType(Enum):
    """Types of positions in a partition."""

    BEGINNING = "beginning"
    END = "end"
    OFFSET = "offset"
    LAST = "last"
    """A number of offsets before the end."""
    TIMESTAMP = "timestamp"
    """The first record with this timestamp (ms) or a later one; the end if there is none."""


@dataclass(frozen=True, slots=True)
class Position:
    """A position in every partition: its type, and an offset, a number of offsets, or a timestamp (ms)."""

    type: PositionType
    number: int = 0

    def is_before(self, other: Position) -> bool:
        """Whether it is so in every partition, whatever there is; False where that cannot be known."""
        if self.type is not other.type:
            return False
        return self.number > other.number if self.type is PositionType.LAST else self.number < other.number


def offset_at(position: Position, start: int, end: int, at_timestamp: int | None) -> int:
    """Offset of a position, between a log's `start` and `end`; `at_timestamp` is that of the position's timestamp."""
    match position.type:
        case PositionType.BEGINNING:
            return start
        case PositionType.END:
            return end
        case PositionType.TIMESTAMP:
            return end if at_timestamp is None else at_timestamp
        case PositionType.OFFSET:
            aim = position.number
        case PositionType.LAST:
            aim = end - position.number
    return min(max(aim, start), end)


def chosen_partitions(topic: str, there: Sequence[int], numbers: Sequence[int] | None) -> list[TopicPartition]:
    """Partitions of a topic, those with these numbers or (None) all. Raises InvalidArgumentError if one is missing."""
    if missing := [number for number in numbers or () if number not in there]:
        raise InvalidArgumentError(
            f"topic {topic} has no partition {missing[0]}; its partitions are 0 to {len(there) - 1}"
        )
    return [TopicPartition(topic, number) for number in (sorted(there) if numbers is None else numbers)]


class TopicReader:
    """Reads partitions from their starts, up to their ends where there are ends, else for ever.

    An end by its number may be one that has yet to come. `on_wait` is called where no records came.
    `partitions`: only these numbers; None: all, and new ones when the consumer's metadata are read again
    (`metadata.max.age.ms`). `poll`, in place of the consumer's, may leave records out.
    """

    def __init__(
        self,
        consumer: Consumer[Bytes, Bytes],
        topics: Sequence[str],
        partitions: Sequence[int] | None,
        stall_s: float,
        on_wait: Callable[[], None],
        poll: Callable[[int], Iterable[ConsumerRecord[Bytes, Bytes]]] | None = None,
    ) -> None:
        self._consumer = consumer
        self._poll = consumer.poll if poll is None else poll
        self._topics = topics
        self._numbers = partitions
        self._stall_s = stall_s
        self._on_wait = on_wait
        self._ends: dict[TopicPartition, int] | None = None
        # First offsets that the logs do not have yet: records before them are passed over.
        self._firsts: dict[TopicPartition, int] = {}
        #: Offsets at which the reading of each partition began.
        self.starts: dict[TopicPartition, int] = {}
        self._positions: dict[TopicPartition, int] = {}
        self._reached: dict[TopicPartition, int] = {}
        self._moved_s = monotonic_s()
        self._waits_for_new_records = False

    def start(self, start: Position, until: Position | None) -> None:
        """Seek. Raises UnknownTopicError, InvalidArgumentError for a partition that is not there, ClientError."""
        partitions: list[TopicPartition] = []
        for topic in self._topics:
            there = [each.partition for each in self._consumer.partitions_for(topic)]
            partitions += chosen_partitions(topic, there, self._numbers)
        log_starts, log_ends = self._consumer.beginning_offsets(partitions), self._consumer.end_offsets(partitions)
        self.starts = starts = self._offsets_of(start, log_starts, log_ends)
        if until is not None:
            self._ends = self._offsets_of(until, log_starts, log_ends)
            if until.type is PositionType.OFFSET:
                self._waits_for_new_records = any(until.number > end for end in self._ends.values())
                self._ends = dict.fromkeys(partitions, until.number)
            partitions = [each for each in partitions if starts[each] < self._ends[each]]
        if start.type is PositionType.OFFSET:
            self._firsts = {each: start.number for each in partitions if starts[each] < start.number}
        self._consumer.assign(partitions)
        for each in partitions:
            self._consumer.seek(each, starts[each])

    def reached(self) -> dict[TopicPartition, tuple[int, int, int]]:
        """The start of each partition that has an end, the offset that its reading has reached, and its end."""
        ends = self._ends or {}
        found = {each: (start, max(start, ends[each])) for each, start in self.starts.items() if each in ends}
        return {each: (start, self._reached.get(each, start), end) for each, (start, end) in found.items()}

    def passed(self) -> tuple[int, int]:
        """Offsets that were passed, and all from the starts to the ends; compaction may have left fewer records."""
        found = self.reached().values()
        return sum(at - start for start, at, _ in found), sum(end - start for start, _, end in found)

    def __iter__(self) -> Iterator[Records]:
        while self._consumer.assignment():
            records = list(self._poll(POLL_MS))
            if self._firsts:
                firsts = self._firsts
                records = [
                    each for each in records if each.offset >= firsts.get(TopicPartition(each.topic, each.partition), 0)
                ]
            if self._ends is None:
                self._take_new_partitions()
            else:
                ends = self._ends
                records = [each for each in records if each.offset < ends[TopicPartition(each.topic, each.partition)]]
                self._leave_finished(ends)
            if records:
                yield records
                self._moved_s = monotonic_s()  # what is done with them is not waiting
            else:
                self._on_wait()

    def _offsets_of(
        self, position: Position, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Offset of a position in each partition; the end is the last stable offset for a read_committed consumer."""
        timed: Mapping[TopicPartition, OffsetAndTimestamp | None] = {}
        if position.type is PositionType.TIMESTAMP:
            timed = self._consumer.offsets_for_times(dict.fromkeys(starts, position.number))
        return {
            each: offset_at(position, start, ends[each], None if (at := timed.get(each)) is None else at.offset)
            for each, start in starts.items()
        }

    def _leave_finished(self, ends: Mapping[TopicPartition, int]) -> None:
        """Leave partitions that were read to their end. Raises ClientTimeoutError if none moves for `stall_s`."""
        positions = {each: self._consumer.position(each) for each in self._consumer.assignment()}
        self._reached |= {each: min(at, ends[each]) for each, at in positions.items()}
        now_s = monotonic_s()
        if positions != self._positions or self._waits_for_new_records:
            self._positions, self._moved_s = positions, now_s
        elif now_s - self._moved_s > self._stall_s:
            named = ", ".join(
                f"{each} at offset {at} of {ends[each]}" for each, at in sorted(positions.items())[:MOST_NAMED]
            )
            raise ClientTimeoutError(
                f"nothing was read for {self._stall_s:g} s, and these are not at their end: {named}; see whether their "
                "leaders answer (ottla topic describe), and whether the topic was deleted"
            )
        left = [each for each, at in positions.items() if at < ends[each]]
        if len(left) < len(positions):
            self._consumer.assign(left)

    def _take_new_partitions(self) -> None:
        if self._numbers is not None:
            return
        before = self._consumer.assignment()
        try:
            found = [each for topic in self._topics for each in self._consumer.partitions_for(topic, POLL_MS)]
        except ClientError as problem:
            if problem.retriable or isinstance(problem, ClientTimeoutError):
                return
            raise
        new = [each for each in found if each not in before]
        if new:
            self._consumer.assign([*before, *new])
            self._consumer.seek_to_beginning(new)
