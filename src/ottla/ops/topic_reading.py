"""Topics read from one place to another, with a synchronous consumer that is assigned their partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ottla.client.errors import ClientError, ClientTimeoutError, InvalidArgumentError
from ottla.client.model import OffsetAndTimestamp, TopicPartition
from ottla.client.sync import Consumer
from ottla.records.consumed import ConsumerRecord

Bytes = bytes | None
Records = list[ConsumerRecord[Bytes, Bytes]]

#: Wait for records at a time, ms; afterwards it is seen whether the end was reached.
POLL_MS: Final = 500


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


def offsets_of(
    consumer: Consumer[Bytes, Bytes], partitions: Sequence[TopicPartition], position: Position
) -> dict[TopicPartition, int]:
    """Offset of a position in each partition; the end is the last stable offset for a read_committed consumer."""
    starts, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    timed: Mapping[TopicPartition, OffsetAndTimestamp | None] = {}
    if position.type is PositionType.TIMESTAMP:
        timed = consumer.offsets_for_times(dict.fromkeys(partitions, position.number))
    found = {each: None if (at := timed.get(each)) is None else at.offset for each in partitions}
    return {each: offset_at(position, starts[each], ends[each], found[each]) for each in partitions}


class TopicReader:
    """Reads partitions from their starts, up to their ends where there are ends, else for ever.

    `partitions`: only these numbers; None: all, and new ones when the consumer's metadata are read again
    (`metadata.max.age.ms`).
    """

    def __init__(
        self,
        consumer: Consumer[Bytes, Bytes],
        topics: Sequence[str],
        partitions: Sequence[int] | None,
    ) -> None:
        self._consumer = consumer
        self._topics = topics
        self._numbers = partitions
        self._ends: dict[TopicPartition, int] | None = None

    def start(self, start: Position, until: Position | None) -> None:
        """Seek. Raises UnknownTopicError, InvalidArgumentError for a partition that is not there, ClientError."""
        partitions = [each for topic in self._topics for each in self._partitions_of(topic)]
        starts = offsets_of(self._consumer, partitions, start)
        if until is not None:
            self._ends = offsets_of(self._consumer, partitions, until)
            partitions = [each for each in partitions if starts[each] < self._ends[each]]
        self._consumer.assign(partitions)
        for each in partitions:
            self._consumer.seek(each, starts[each])

    def __iter__(self) -> Iterator[Records]:
        while self._consumer.assignment():
            records = list(self._consumer.poll(POLL_MS))
            if self._ends is None:
                self._take_new_partitions()
            else:
                ends = self._ends
                records = [each for each in records if each.offset < ends[TopicPartition(each.topic, each.partition)]]
                self._leave_finished(ends)
            if records:
                yield records

    def _partitions_of(self, topic: str) -> list[TopicPartition]:
        found = self._consumer.partitions_for(topic)
        if self._numbers is None:
            return found
        missing = [number for number in self._numbers if number >= len(found)]
        if missing:
            raise InvalidArgumentError(
                f"topic {topic} has no partition {missing[0]}; its partitions are 0 to {len(found) - 1}"
            )
        return [TopicPartition(topic, number) for number in self._numbers]

    def _leave_finished(self, ends: Mapping[TopicPartition, int]) -> None:
        before = self._consumer.assignment()
        left = [each for each in before if self._consumer.position(each) < ends[each]]
        if len(left) < len(before):
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
