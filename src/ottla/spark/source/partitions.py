"""Which partitions a reader reads, and where it starts and ends: the questions a driver asks the cluster."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from ottla.client.model import TopicPartition
from ottla.spark.errors import DataLossError, OptionError
from ottla.spark.source.offsets import EARLIEST, LATEST, Offsets
from ottla.spark.source.options import Bound, ReadOptions, RetryOptions, Selection, TimestampMiss

if TYPE_CHECKING:
    from ottla.client.sync import Client

log = logging.getLogger(__name__)

T = TypeVar("T")


def with_retries(retry: RetryOptions, work: Callable[[], T]) -> T:
    """Do the work, several times where the cluster does not answer. Raises the last error."""
    from ottla.client.errors import ClientError

    for attempt in range(1, retry.attempts + 1):
        try:
            return work()
        except ClientError as problem:
            if attempt == retry.attempts or not (problem.retriable or isinstance(problem, TimeoutError)):
                raise
            log.warning("attempt %d of %d to look up offsets: %s", attempt, retry.attempts, problem)
            time.sleep(retry.interval_ms / 1_000)
    raise AssertionError("there is at least one attempt")


TopicIds = dict[TopicPartition, UUID | None]
"""Partitions in order, and the id of the topic of each; None where the broker has none (before Kafka 2.8)."""


def selected_partitions(client: Client, selection: Selection) -> TopicIds:
    """The partitions that `subscribe`, `subscribePattern` or `assign` names. Raises OptionError."""
    if selection.assigned:
        existing = _existing(client, {each.topic for each in selection.assigned})
        for each in selection.assigned:
            if each not in existing:
                there = ", ".join(str(known.partition) for known in existing if known.topic == each.topic)
                raise OptionError(
                    f"option assign: topic {each.topic} has no partition {each.partition}; it has {there}"
                )
        return {each: existing[each] for each in sorted(selection.assigned)}
    return _existing(client, selection.topics if selection.pattern is None else _topics_with(client, selection.pattern))


def _existing(client: Client, topics: Iterable[str]) -> TopicIds:
    """All partitions of these topics. Raises UnknownTopicError."""
    names = sorted(topics)
    found = client.describe_topics(names) if names else {}
    return {
        TopicPartition(name, each.partition): found[name].topic_id for name in names for each in found[name].partitions
    }


def _topics_with(client: Client, pattern: str) -> list[str]:
    """The topics in whose name the pattern is found anywhere, as Spark's Kafka source has it; never internal ones."""
    wanted = re.compile(pattern)
    return [topic for topic in client.topics() if wanted.search(topic)]


def existing_partitions(client: Client, selection: Selection) -> TopicIds:
    """The same without partitions and topics that do not exist (any more), for reads that do without them."""
    from ottla.client.errors import UnknownTopicError

    try:
        return selected_partitions(client, selection)
    except (UnknownTopicError, OptionError) as missing:
        log.warning("continuing without what does not exist: %s", missing)
    if selection.pattern is not None:  # A topic was deleted while it was described.
        return selected_partitions(client, selection)
    topics = set(client.topics())
    if selection.assigned:
        found = _existing(client, {each.topic for each in selection.assigned} & topics)
        return {each: found[each] for each in sorted(selection.assigned) if each in found}
    return selected_partitions(client, Selection(topics=tuple(each for each in selection.topics if each in topics)))


def latest_offsets(client: Client, partitions: Sequence[TopicPartition], *, read_committed: bool = False) -> Offsets:
    """The offset after the last record of each partition; with `read_committed` the last stable offset."""
    return dict(client.offsets_at(partitions, LATEST, read_committed=read_committed)) if partitions else {}


def earliest_offsets(client: Client, partitions: Sequence[TopicPartition]) -> Offsets:
    """The offset of the first record of each partition."""
    return dict(client.offsets_at(partitions, EARLIEST)) if partitions else {}


def starting_offsets(client: Client, partitions: Sequence[TopicPartition], options: ReadOptions) -> Offsets:
    """Return a new query's start. Raises OptionError if partitions and options do not fit, or no record is so late."""
    found = _resolve(client, partitions, options, "starting")
    missing = [each for each, offset in found.items() if offset is None]
    if missing and options.starting.committed:
        raise OptionError(
            f"group {options.group_id} has no committed offset for {_names(missing)}; set kafka.auto.offset.reset to "
            "earliest or latest for such partitions"
        )
    if missing and options.timestamp_miss is TimestampMiss.ERROR:
        raise OptionError(
            f"no record at or after the starting timestamp in {_names(missing)}; "
            "set startingOffsetsByTimestampStrategy to latest to start such partitions at their end"
        )
    committed = options.fetch.read_committed
    latest = latest_offsets(client, partitions if committed else missing, read_committed=committed)
    starting = {each: latest[each] if offset is None else offset for each, offset in found.items()}
    if committed and (options.starting.timestamp_ms is not None or options.starting.timestamps_ms):
        # Records of an open transaction have timestamps as well.
        starting = {each: min(offset, latest[each]) for each, offset in starting.items()}
    return starting


def ending_offsets(client: Client, partitions: Sequence[TopicPartition], options: ReadOptions) -> Offsets:
    """Return a batch query's end; a partition without a record at or after an ending timestamp is read to its end.

    Raises DataLossError for an offset behind the end of its partition, with `fail_on_data_loss`.
    """
    found = _resolve(client, partitions, options, "ending")
    latest = latest_offsets(client, partitions, read_committed=options.fetch.read_committed)
    beyond = [each for each, offset in found.items() if offset is not None and offset > latest[each]]
    _report_loss(
        ", ".join(f"{each.topic}-{each.partition} up to {found[each]}, ends at {latest[each]}" for each in beyond),
        "records are wanted that are not there",
        "name ending offsets that are not beyond",
        fail=options.fail_on_data_loss,
    )
    return {each: latest[each] if offset is None else min(offset, latest[each]) for each, offset in found.items()}


def average_record_bytes(client: Client, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, float]:
    """Bytes in the log for each of its offsets, of partitions that have any."""
    sizes = client.partition_sizes(partitions)
    first, end = earliest_offsets(client, partitions), latest_offsets(client, partitions)
    return {each: sizes[each] / (end[each] - first[each]) for each in partitions if end[each] > first[each]}


def check_retained(client: Client, start: Offsets, *, fail: bool) -> None:
    """Check that the records from `start` on still exist. Raises DataLossError if `fail`, else logs a warning."""
    earliest = earliest_offsets(client, list(start))
    lost = [each for each, offset in start.items() if offset < earliest[each]]
    report_deleted(
        ", ".join(f"{each.topic}-{each.partition} wanted {start[each]}, has {earliest[each]}" for each in lost),
        fail=fail,
    )


def report_deleted(detail: str, *, fail: bool) -> None:
    """Report records deleted before they were read; nothing where `detail` is empty. Raises DataLossError if `fail`."""
    _report_loss(detail, "records were deleted before they were read", "start again from what is left", fail=fail)


def check_selected(selection: Selection, done: Offsets, *, fail: bool) -> None:
    """Check that the query still selects the partitions read to `done`. Raises or warns as `check_retained`."""
    left_out = [each for each in done if not selection.selects(each)]
    _report_loss(
        f"{_read_to(left_out, done)}; it has {selection}" if left_out else "",
        "the checkpoint has partitions that the query does not select any more",
        "select them again, or start again with another checkpoint",
        fail=fail,
    )


def check_identities(remade: Collection[str], done: Offsets, *, fail: bool) -> None:
    """Report topics that were deleted and made again. Raises or warns as `check_retained`."""
    _report_loss(
        _read_to([each for each in done if each.topic in remade], done),
        "a topic was deleted and made again while it was read: its id is another one",
        "start again with another checkpoint",
        fail=fail,
    )


def _read_to(partitions: Iterable[TopicPartition], done: Offsets) -> str:
    return ", ".join(f"{each} was read to {done[each]}" for each in partitions)


def check_not_recreated(latest: Offsets, done: Offsets, *, fail: bool) -> None:
    """Check that the partitions read to `done` still exist and reach that far. Raises or warns as `check_retained`."""
    lost = [each for each, offset in done.items() if latest.get(each, -1) < offset]
    detail = ", ".join(
        f"{each.topic}-{each.partition} was read to {done[each]}, "
        + (f"ends at {latest[each]}" if each in latest else "is gone")
        for each in lost
    )
    _report_loss(
        detail,
        "a topic was deleted or created again while it was read",
        "start again with another checkpoint",
        fail=fail,
    )


def _report_loss(detail: str, what: str, cure: str, *, fail: bool) -> None:
    if not detail:
        return
    if fail:
        raise DataLossError(f"{what} ({detail}); {cure}, or set failOnDataLoss to false to continue with what is there")
    log.warning("%s, continuing with what is there: %s", what, detail)


def _resolve(
    client: Client, partitions: Sequence[TopicPartition], options: ReadOptions, side: str
) -> dict[TopicPartition, int | None]:
    """Offsets of a bound; None where a timestamp is later than every record, or the group committed none."""
    bound = options.starting if side == "starting" else options.ending
    if bound.names_partitions:
        _check_named(partitions, bound.offsets or bound.timestamps_ms, side)
    if bound.timestamp_ms is not None:
        return _at_time(client, partitions, bound.timestamp_ms)
    if bound.timestamps_ms:
        by_time: dict[TopicPartition, int | None] = {}
        for moment in {bound.timestamps_ms[each] for each in partitions}:
            by_time |= _at_time(client, [each for each in partitions if bound.timestamps_ms[each] == moment], moment)
        return by_time
    found: dict[TopicPartition, int | None] = {}
    wanted = bound.offsets or dict.fromkeys(partitions, bound.offset if bound.offset is not None else LATEST)
    if bound.committed:
        wanted = _committed(client, partitions, options.group_id or "", bound)
        found = dict.fromkeys(each for each in partitions if each not in wanted)
    found |= {each: offset for each, offset in wanted.items() if offset >= 0}
    found |= earliest_offsets(client, [each for each in wanted if wanted[each] == EARLIEST])
    latest = [each for each in wanted if wanted[each] == LATEST]
    found |= latest_offsets(client, latest, read_committed=options.fetch.read_committed)
    return found


def _committed(client: Client, partitions: Sequence[TopicPartition], group: str, bound: Bound) -> Offsets:
    """Return the group's committed offsets, and the others' start; without a rule for those, they are left out."""
    found = {each: offset for each, offset in client.committed(group, partitions).items() if offset >= 0}
    if bound.offset is None:
        return found
    return {each: found.get(each, bound.offset) for each in partitions}


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
