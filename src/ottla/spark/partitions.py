"""Which partitions a reader reads, and where it starts and ends: the questions a driver asks the cluster."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.client.model import TopicPartition
from ottla.spark.offsets import EARLIEST, LATEST, Offsets
from ottla.spark.options import Bound, ConnectionOptions, OptionError, ReadOptions, Selection, TimestampMiss

if TYPE_CHECKING:
    from ottla.client.sync import Client

log = logging.getLogger(__name__)


class DataLossError(RuntimeError):
    """Records that the query has not read yet were deleted from the topic."""


def connect(connection: ConnectionOptions) -> Client:
    """A client of the cluster; the caller closes it."""
    from ottla.client.sync import Client

    return Client(
        bootstrap_servers=connection.bootstrap_servers,
        client_id=connection.client_id,
        request_timeout_ms=connection.request_timeout_ms,
    )


def selected_partitions(client: Client, selection: Selection) -> list[TopicPartition]:
    """The partitions that `subscribe`, `subscribePattern` or `assign` names, in order. Raises OptionError."""
    if selection.assigned:
        existing = client.partitions(sorted({each.topic for each in selection.assigned}))
        for each in selection.assigned:
            if each.partition not in existing[each.topic]:
                raise OptionError(
                    f"option assign: topic {each.topic} has no partition {each.partition}; "
                    f"it has {', '.join(map(str, existing[each.topic]))}"
                )
        return sorted(selection.assigned)
    topics = list(selection.topics) if selection.pattern is None else client.topics(selection.pattern)
    if not topics:
        return []
    found = client.partitions(topics)
    return [TopicPartition(topic, partition) for topic in sorted(found) for partition in sorted(found[topic])]


def latest_offsets(client: Client, partitions: Sequence[TopicPartition]) -> Offsets:
    """The offset after the last record of each partition."""
    return dict(client.offsets_at(partitions, LATEST)) if partitions else {}


def earliest_offsets(client: Client, partitions: Sequence[TopicPartition]) -> Offsets:
    """The offset of the first record of each partition."""
    return dict(client.offsets_at(partitions, EARLIEST)) if partitions else {}


def starting_offsets(client: Client, partitions: Sequence[TopicPartition], options: ReadOptions) -> Offsets:
    """Where a new query starts. Raises OptionError where partitions and options do not fit, or no record is as late."""
    found = _resolve(client, partitions, options.starting, "starting")
    missing = [each for each, offset in found.items() if offset is None]
    if missing and options.timestamp_miss is TimestampMiss.ERROR:
        raise OptionError(
            f"no record at or after the starting timestamp in {_names(missing)}; "
            "set startingOffsetsByTimestampStrategy to latest to start such partitions at their end"
        )
    latest = latest_offsets(client, missing)
    return {each: latest[each] if offset is None else offset for each, offset in found.items()}


def ending_offsets(client: Client, partitions: Sequence[TopicPartition], options: ReadOptions) -> Offsets:
    """Where a batch query ends; a partition without a record at or after an ending timestamp is read to its end."""
    found = _resolve(client, partitions, options.ending, "ending")
    latest = latest_offsets(client, [each for each, offset in found.items() if offset is None])
    return {each: latest[each] if offset is None else offset for each, offset in found.items()}


def check_retained(client: Client, start: Offsets, *, fail: bool) -> None:
    """Check that the records from `start` on still exist. Raises DataLossError if `fail`, else logs a warning."""
    earliest = earliest_offsets(client, list(start))
    lost = [each for each, offset in start.items() if offset < earliest[each]]
    if not lost:
        return
    detail = ", ".join(f"{each.topic}-{each.partition} wanted {start[each]}, has {earliest[each]}" for each in lost)
    if fail:
        raise DataLossError(
            f"records were deleted before they were read ({detail}); start anew from what is left, "
            "or set failOnDataLoss to false to go on without them"
        )
    log.warning("records were deleted before they were read, going on without them: %s", detail)


def check_not_made_anew(latest: Offsets, done: Offsets, *, fail: bool) -> None:
    """Check that the partitions read to `done` still exist and reach that far. Raises or warns as `check_retained`."""
    lost = [each for each, offset in done.items() if latest.get(each, -1) < offset]
    if not lost:
        return
    detail = ", ".join(
        f"{each.topic}-{each.partition} was read to {done[each]}, "
        + (f"ends at {latest[each]}" if each in latest else "is gone")
        for each in lost
    )
    if fail:
        raise DataLossError(
            f"a topic was deleted or made anew while it was read ({detail}); start anew with another checkpoint, "
            "or set failOnDataLoss to false to go on with what is there"
        )
    log.warning("a topic was deleted or made anew while it was read, going on with what is there: %s", detail)


def _resolve(
    client: Client, partitions: Sequence[TopicPartition], bound: Bound, side: str
) -> dict[TopicPartition, int | None]:
    """Offsets of a bound; None where a timestamp is later than every record."""
    if bound.names_partitions:
        _check_named(partitions, bound.offsets or bound.timestamps_ms, side)
    if bound.timestamp_ms is not None:
        return _at_time(client, partitions, bound.timestamp_ms)
    if bound.timestamps_ms:
        return {each: _at_time(client, [each], bound.timestamps_ms[each])[each] for each in partitions}
    wanted = bound.offsets or dict.fromkeys(partitions, bound.offset if bound.offset is not None else LATEST)
    found: dict[TopicPartition, int | None] = {each: wanted[each] for each in partitions if wanted[each] >= 0}
    found |= earliest_offsets(client, [each for each in partitions if wanted[each] == EARLIEST])
    found |= latest_offsets(client, [each for each in partitions if wanted[each] == LATEST])
    return found


def _at_time(
    client: Client, partitions: Sequence[TopicPartition], timestamp_ms: int
) -> dict[TopicPartition, int | None]:
    if not partitions:
        return {}
    found = client.offsets_at(partitions, timestamp_ms)
    return {each: offset if offset >= 0 else None for each, offset in found.items()}


def _check_named(partitions: Sequence[TopicPartition], named: Offsets, side: str) -> None:
    unnamed = [each for each in partitions if each not in named]
    unknown = [each for each in named if each not in set(partitions)]
    if unnamed:
        raise OptionError(f"the {side} offsets leave out {_names(unnamed)}; name every partition that is read")
    if unknown:
        raise OptionError(f"the {side} offsets name {_names(unknown)}, which the query does not read")


def _names(partitions: Sequence[TopicPartition]) -> str:
    return ", ".join(f"{each.topic}-{each.partition}" for each in partitions)
