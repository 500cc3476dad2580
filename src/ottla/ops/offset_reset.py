"""Offset resets of groups: planned first, for review, then committed.

The targets, and the handling of offsets outside the log, are those of Apache's
`kafka-consumer-groups --reset-offsets`, and so is the CSV of its `--export` and `--from-file`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from ottla.client.errors import InvalidArgumentError
from ottla.client.group_offsets import GroupOffsets
from ottla.client.model import EARLIEST, LATEST, NO_OFFSET, TopicPartition
from ottla.client.offsets import offsets_at
from ottla.peer.cluster import Cluster

UNQUOTED_MAX_CHARS = 24
"""Apache's tool quotes longer names, whatever characters they have."""
MOST_OFFSET = (1 << 63) - 1
WITH_GROUP, WITHOUT_GROUP = 4, 3


class Target(Enum):
    """The target of a reset of offsets."""

    EARLIEST = "earliest"
    LATEST = "latest"
    CURRENT = "current"
    """The committed offset; the end if there is none."""
    OFFSET = "offset"
    SHIFT = "shift"
    """A number of records forward, or back."""
    TIMESTAMP = "timestamp"
    """The first record with this timestamp (ms) or a later one; the end if there is none."""


@dataclass(slots=True, frozen=True)
class Reset:
    """A target with its number, or an offset for each partition."""

    target: Target
    value: int = 0
    offsets: Mapping[TopicPartition, int] | None = None


@dataclass(slots=True, frozen=True)
class PlannedOffset:
    """The old (None: none committed) and the new offset of one partition, limited to the log at that time."""

    partition: TopicPartition
    current_offset: int | None
    new_offset: int
    log_start_offset: int
    log_end_offset: int
    note: str = ""

    @property
    def lag(self) -> int:
        """Records left to read after the reset."""
        return max(0, self.log_end_offset - max(self.new_offset, self.log_start_offset))


async def plan_reset(
    cluster: Cluster, group: str, partitions: Sequence[TopicPartition], reset: Reset
) -> list[PlannedOffset]:
    """Compute the new offset of each partition; changes nothing.

    Raises InvalidArgumentError if a shift has no committed offset to start from, UnknownTopicError.
    """
    wanted = sorted(set(partitions))
    committed = {each: found.offset for each, found in (await GroupOffsets(cluster, group).fetch_all()).items()}
    starts = await offsets_at(cluster, wanted, EARLIEST)
    ends = await offsets_at(cluster, wanted, LATEST)
    timed = await offsets_at(cluster, wanted, reset.value) if reset.target is Target.TIMESTAMP else {}
    if reset.target is Target.SHIFT and (bare := [str(each) for each in wanted if each not in committed]):
        raise InvalidArgumentError(
            f"group {group} has committed nothing in {bare[0]}{f' and {len(bare) - 1} more' if bare[1:] else ''}, so "
            "there is nothing to shift; leave such partitions out, or reset them to another target"
        )
    return [
        _planned(each, reset, committed.get(each), starts[each], ends[each], timed.get(each, NO_OFFSET))
        for each in wanted
    ]


def _planned(
    partition: TopicPartition, reset: Reset, current: int | None, start: int, end: int, timed: int
) -> PlannedOffset:
    note = ""
    match reset.target:
        case Target.EARLIEST:
            new = start
        case Target.LATEST:
            new = end
        case Target.CURRENT:
            new, note = (end, "nothing committed: the end") if current is None else (current, "")
        case Target.TIMESTAMP:
            new, note = (end, "no record that late: the end") if timed == NO_OFFSET else (timed, "")
        case _:
            number = reset.value if reset.offsets is None else reset.offsets[partition]
            aim = number if reset.target is Target.OFFSET else (current or 0) + number
            new = min(max(aim, start), end)
            if new != aim:
                note = f"{aim} is before the start" if aim < start else f"{aim} is beyond the end"
    return PlannedOffset(partition, current, new, start, end, note)


def csv_lines(plans: Mapping[str, Sequence[PlannedOffset]]) -> Iterator[str]:
    """Yield the plans as CSV, as Apache's tool exports them: topic, partition, offset; group first if several."""
    for group, plan in plans.items():
        before = [group] if len(plans) > 1 else []
        for each in plan:
            values = [*before, each.partition.topic, str(each.partition.partition), str(each.new_offset)]
            yield ",".join(map(_quoted, values))


def _quoted(text: str) -> str:
    # Jackson's rule: only short texts are scanned, and any character up to the comma, or a backslash, requires quotes.
    if len(text) <= UNQUOTED_MAX_CHARS and all(char > "," and char != "\\" for char in text):
        return text
    return '"' + text.replace('"', '""') + '"'


def read_csv(lines: Iterable[str], groups: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    """Read offsets by group and partition from such lines; those of other groups are left out.

    Raises InvalidArgumentError with the line and what is wrong with it.
    """
    found: dict[str, dict[TopicPartition, int]] = {group: {} for group in groups}
    reader = csv.reader(lines, strict=True)
    try:
        for row in reader:
            if not row:
                continue
            group, partition, offset = _csv_row(row, groups, reader.line_num)
            if group in found:
                if partition in found[group]:
                    raise InvalidArgumentError(f"line {reader.line_num}: {partition} stands there twice")
                found[group][partition] = offset
    except csv.Error as error:
        raise InvalidArgumentError(f"line {reader.line_num}: {error}") from error
    return found


def _csv_row(row: Sequence[str], groups: Sequence[str], line: int) -> tuple[str, TopicPartition, int]:
    if len(row) == WITHOUT_GROUP and len(groups) == 1:
        row = [groups[0], *row]
    if len(row) != WITH_GROUP:
        shape = "group,topic,partition,offset" + (" or topic,partition,offset" if len(groups) == 1 else "")
        raise InvalidArgumentError(f"line {line} has {len(row)} values, but should be {shape}")
    group, topic, *numbers = (value.strip() for value in row)
    for name, number, most in zip(("partition", "offset"), numbers, ((1 << 31) - 1, MOST_OFFSET), strict=True):
        if not (number.isascii() and number.isdigit() and len(number) <= len(str(most)) and int(number) <= most):
            raise InvalidArgumentError(f"line {line}: the {name} {number[:40]!r} is not a number from 0 to {most}")
    return group, TopicPartition(topic, int(numbers[0])), int(numbers[1])
