"""`ottla topic offsets` and `ottla topic delete-records`: where logs begin and end, and new beginnings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.cli.command import EXIT_REFUSED, NOT_CONFIRMED, CommandError, confirmed
from ottla.cli.record_options import parse_partitions, parse_position
from ottla.cli.terminal import Column, Terminal, count, numbers, write_json
from ottla.cli.topic import COMMAND
from ottla.client.admin.partitions import PartitionAdmin
from ottla.client.errors import BrokerError, ClientError, PartlyFailedError
from ottla.client.model import EARLIEST, LATEST, TopicPartition
from ottla.client.offsets import find_offsets, offsets_at
from ottla.ops.topic_reading import Position, PositionType, chosen_partitions, offset_at
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.peer.cluster import Cluster


@dataclass(frozen=True, slots=True)
class LogOffsets:
    """Offsets of a partition: its log's start and end, and that of a place, None where none is wanted."""

    partition: TopicPartition
    start: int
    end: int
    at: int | None


def _at(row: LogOffsets) -> str:
    return "" if row.at is None else str(row.at)


_LOG: tuple[Column[LogOffsets], ...] = (
    Column("TOPIC", lambda row: row.partition.topic, may_shrink=True),
    numbers("PARTITION", lambda row: str(row.partition.partition)),
    numbers("BEGINNING", lambda row: str(row.start)),
    numbers("END", lambda row: str(row.end)),
)


async def read_offsets(
    cluster: Cluster, topics: Sequence[str], partitions: Sequence[int] | None, position: Position | None
) -> list[LogOffsets]:
    """Offsets of partitions of topics. Raises UnknownTopicError, InvalidArgumentError for an unknown partition."""
    wanted: list[TopicPartition] = []
    for topic in await cluster.topics(list(topics), allow_auto_topic_creation=False):
        wanted += chosen_partitions(topic.name, [each.partition for each in topic.partitions], partitions)
    starts, ends = await offsets_at(cluster, wanted, EARLIEST), await offsets_at(cluster, wanted, LATEST)
    timed = {}
    if position is not None and position.type is PositionType.TIMESTAMP:
        timed = await find_offsets(cluster, dict.fromkeys(wanted, position.number))
    rows = []
    for each in wanted:
        late = timed.get(each)
        at = None if position is None else offset_at(position, starts[each], ends[each], late and late.offset)
        rows.append(LogOffsets(each, starts[each], ends[each], at))
    return rows


async def show_offsets(
    cluster: Cluster, topics: Sequence[str], partitions: str | None, at: str | None, *, as_json: bool
) -> int:
    """Show where the logs begin and end, and the offset of a place; returns the exit code."""
    position = None if at is None else parse_position("--at", at, cluster.clock.now_ms())
    rows = await read_offsets(cluster, topics, parse_partitions(partitions), position)
    if as_json:
        for row in rows:
            topic, partition = row.partition
            shown = {"topic": topic, "partition": partition, "log_start_offset": row.start, "log_end_offset": row.end}
            write_json(shown if at is None else {**shown, "at": row.at})
        return 0
    columns = [*_LOG, numbers("OFFSETS", lambda row: f"{row.end - row.start:,}"), numbers("AT", _at)]
    Terminal.standard_output().table(columns, rows)
    return 0


async def delete_records(
    cluster: Cluster, topic: str, partitions: str | None, before: str, *, yes: bool, as_json: bool
) -> int:
    """Show how many records would go, confirm, and delete them; returns the exit code."""
    position = parse_position("--before", before, cluster.clock.now_ms())
    rows = await read_offsets(cluster, [topic], parse_partitions(partitions), position)
    if position.type is PositionType.OFFSET:
        for row in rows:
            if position.number > row.end:
                raise CommandError(
                    f"--before {before}: {row.partition} ends at {row.end}; --before end deletes all of it, and "
                    "--partition chooses others"
                )
    offsets = {row.partition: row.at for row in rows if row.at is not None and row.at > row.start}
    if not as_json and not yes:
        Terminal.standard_output().table([*_LOG, numbers("NEW BEGINNING", _at)], rows)
    total = count(sum(row.at - row.start for row in rows if row.at is not None), "record")
    if offsets and not confirmed(f"Delete {total} for good?", yes=yes, as_json=as_json):
        if as_json:
            _write(rows, {})
        return COMMAND.report(NOT_CONFIRMED)
    code = 0
    deleted: dict[TopicPartition, int] = {}
    try:
        deleted = await PartitionAdmin(cluster).delete_records(offsets) if offsets else {}
    except BrokerError as problem:
        code = COMMAND.report(_with_cure(problem))
    except PartlyFailedError as problem:
        code, deleted = EXIT_REFUSED, dict(problem.values)
        for text in dict.fromkeys(map(_with_cure, problem.errors.values())):
            COMMAND.report(text)
    if as_json:
        _write(rows, deleted)
    elif code == 0:
        Terminal.standard_output().line(f"deleted: {total} of {topic}" if offsets else "there is nothing to delete")
    elif deleted:
        Terminal.standard_output().line(f"deleted in {', '.join(map(str, sorted(deleted)))}")
    return code


def _with_cure(problem: ClientError) -> str:
    if isinstance(problem, BrokerError) and problem.code == ErrorCode.POLICY_VIOLATION:
        return f"{problem}; a topic that is compacted only keeps the newest record of each key: send keys with null"
    return str(problem)


def _write(rows: Sequence[LogOffsets], deleted: dict[TopicPartition, int]) -> None:
    for row in rows:
        topic, partition = row.partition
        before = {"topic": topic, "partition": partition, "log_start_offset": row.start, "before": row.at}
        write_json({**before, "deleted": row.partition in deleted})
