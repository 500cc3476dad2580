"""The reader of `spark.readStream`.

Offsets in the group. Spark calls `commit(end)` of a Python stream only when it plans the batch after `end`, so never
for the last one. It does ask `latestOffset(start)` again after each batch, the last included, and `start` is then what
the query has finished. So that is what is committed to the group. The promise: a group's committed offset is never
ahead of what the query has finished, and it follows at the next planning, that is at once while the query runs (with a
trigger interval, at its next tick; with `availableNow`, before the query ends). A query that is stopped between the end
of a batch and the next planning leaves its group behind by that one batch until it runs again. Spark itself resumes
from its checkpoint and never from the group.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ottla.client.model import TopicPartition
from ottla.env.clock import Clock, SystemClock
from ottla.spark.connection import connect
from ottla.spark.errors import one_sentence
from ottla.spark.source.commits import GroupCommits
from ottla.spark.source.identities import TopicIdentities
from ottla.spark.source.offsets import Offsets, from_json, to_json
from ottla.spark.source.options import ReadOptions
from ottla.spark.source.partitions import (
    TopicIds,
    average_record_bytes,
    check_identities,
    check_not_recreated,
    check_retained,
    check_selected,
    earliest_offsets,
    existing_partitions,
    latest_offsets,
    report_deleted,
    selected_partitions,
    starting_offsets,
    with_retries,
)
from ottla.spark.source.planning import Admission, PartitionRange, limit_offsets, plan_ranges
from ottla.spark.source.reading import read_rows
from ottla.spark.versions import Versioned

if TYPE_CHECKING:
    import pyarrow

    from ottla.client.sync import Client

T = TypeVar("T")


class StreamReader(Versioned, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the batches of a stream, and commits what is finished to the group; see the module's promise."""

    def __init__(self, options: ReadOptions, clock: Clock | None = None) -> None:
        self._options = options
        self._admission = Admission(options.limits, SystemClock() if clock is None else clock)
        self._commits = GroupCommits(options.group_id)
        self._client: Client | None = None
        self._latest: Offsets = {}
        self._last_batch_ends_at: Offsets | None = None
        self._identities = TopicIdentities()
        self._found: TopicIds = {}

    @one_sentence
    def initialOffset(self) -> dict[str, dict[str, int]]:
        """Return a new query's start."""
        return to_json(self._with_retries(lambda: starting_offsets(self._connected(), self._chosen(), self._options)))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return a limit by `maxOffsetsPerTrigger`, else `minOffsetsPerTrigger`: a limit of Spark's can hold one."""
        limits = self._options.limits
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        return ReadAllAvailable() if limits.min_offsets is None else ReadMinRows(limits.min_offsets)

    @one_sentence
    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of an `availableNow` query at what is there now."""
        self._last_batch_ends_at = self._with_retries(self._newest)

    @one_sentence
    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, dict[str, int]]:
        """The end of the next batch; and commit `start`, up to which the query has finished. Raises DataLossError."""
        done = from_json(start)
        self._commits.commit(self._connected(), done)
        newest, takes_out = self._checked(done)
        self._latest = newest
        if isinstance(limit, ReadAllAvailable):
            return to_json(newest)
        known = self._with_new_partitions(done, newest)
        # A query with `availableNow` must come to its end, and a loss is reported once.
        if self._last_batch_ends_at is None and not takes_out and self._admission.waits(known, newest):
            return to_json(done)
        return to_json(limit_offsets(known, newest, limit.max_rows) if isinstance(limit, ReadMaxRows) else newest)

    def _checked(self, done: Offsets) -> tuple[Offsets, bool]:
        """Return the topics' ends, after reporting what is lost of them. Raises DataLossError.

        A recreated topic is left out of one batch, which takes it out of the checkpoint; then it is a new one. The
        second result says whether the batch takes out such a topic, or partitions that are not selected any more.
        """
        fail, selection = self._options.fail_on_data_loss, self._options.selection
        check_selected(selection, done, fail=fail)
        selected = {each: offset for each, offset in done.items() if selection.selects(each)}
        newest = self._last_batch_ends_at
        if newest is None:
            newest = self._with_retries(lambda: self._newest_after(selected))
        remade = self._identities.recreated(self._found, done)
        check_identities(remade, done, fail=fail)
        newest = {each: offset for each, offset in newest.items() if each.topic not in remade}
        check_not_recreated(
            newest, {each: offset for each, offset in selected.items() if each.topic not in remade}, fail=fail
        )
        return newest, bool(remade) or len(selected) < len(done)

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:
        """The end of the topic as it was last seen."""
        return to_json(self._latest) if self._latest else None

    @one_sentence
    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[PartitionRange]:
        """The ranges of one batch. Raises DataLossError."""
        return self.ranges(from_json(start), from_json(end))

    def ranges(self, done: Offsets | None, last: Offsets) -> list[PartitionRange]:
        """The ranges of the batch that follows `done`, None for a query's first one. Raises DataLossError."""

        def planned() -> list[PartitionRange]:
            started = starting_offsets(self._connected(), self._chosen(), self._options) if done is None else done
            return self._ranges(started, last)

        return self._with_retries(planned)

    def _ranges(self, done: Offsets, last: Offsets) -> list[PartitionRange]:
        fail, split = self._options.fail_on_data_loss, self._options.split
        first = self._with_new_partitions(done, last)
        missed = [each for each in last if each not in done and 0 < first[each] < last[each]]
        report_deleted(", ".join(f"{each}, a new partition, begins at {first[each]}" for each in missed), fail=fail)
        pending = {each: first[each] for each in last if last[each] > first[each]}
        check_retained(self._connected(), pending, fail=fail)
        sizes = average_record_bytes(self._connected(), list(pending)) if split.max_bytes is not None else None
        return plan_ranges(first, last, split, sizes)

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """The rows of one range."""
        return read_rows(partition, self._options)

    @one_sentence
    def commit(self, end: Mapping[str, Any]) -> None:
        """Commit `end`; Spark calls this when it plans the next batch."""
        self._commits.commit(self._connected(), from_json(end))

    def stop(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _travelling_state(self) -> dict[str, Any]:
        return super()._travelling_state() | {"_client": None, "_commits": GroupCommits(self._options.group_id)}

    def _connected(self) -> Client:
        if self._client is None:
            self._client = connect(self._options.connection)
        return self._client

    def _with_retries(self, work: Callable[[], T]) -> T:
        return with_retries(self._options.retry, work)

    def _chosen(self) -> list[TopicPartition]:
        choose = selected_partitions if self._options.fail_on_data_loss else existing_partitions
        self._found = choose(self._connected(), self._options.selection)
        return list(self._found)

    def _newest(self) -> Offsets:
        return latest_offsets(self._connected(), self._chosen(), read_committed=self._options.fetch.read_committed)

    def _newest_after(self, done: Offsets) -> Offsets:
        """The newest offsets, asked for again while they are lower than what was read: a new leader may not know."""
        from ottla.client.errors import UnknownTopicError

        retry = self._options.retry
        try:
            newest = self._newest()
        except UnknownTopicError:  # Of a topic that was read before there is more to say.
            there = existing_partitions(self._connected(), self._options.selection)
            check_not_recreated(latest_offsets(self._connected(), list(there)), done, fail=True)
            raise
        for _ in range(1, retry.attempts):
            if all(newest.get(each, -1) >= offset for each, offset in done.items()):
                break
            time.sleep(retry.interval_ms / 1_000)
            newest = self._newest()
        return newest

    def _with_new_partitions(self, known: Offsets, wanted: Offsets) -> Offsets:
        """`known`, and for partitions that appeared since then the earliest offset there is."""
        fresh = [each for each in wanted if each not in known]
        return known | earliest_offsets(self._connected(), fresh)
