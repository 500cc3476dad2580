"""The task of the mirror: it reads one partition's range of the source, and sends its records to the target.

One idempotent producer sends the records of a partition in their order, and all are acknowledged before the task ends.
A task that runs again sends its records again. Repeated records are counted: those up to the newest sync, which says
how far finished batches came, and those that the target has after it, which only an unfinished batch can have sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow

from ottla.client.errors import DeliveryError, RecordTooLargeError
from ottla.client.model import EARLIEST, LATEST, TopicPartition
from ottla.client.producer.bulk_future import BulkFuture, FirstFailure
from ottla.spark.errors import one_sentence
from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.mirroring.ends import DEFAULTS, MirrorEnd, source_of, target_of
from ottla.spark.pipelines.mirroring.naming import MirrorNames
from ottla.spark.pipelines.mirroring.origins import sent_by, with_origin, without_returning
from ottla.spark.pipelines.mirroring.topics import TopicFollower
from ottla.spark.pipelines.mirroring.translation import Sync, SyncHistory
from ottla.spark.source.planning import PartitionRange
from ottla.spark.versions import Versioned
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.client.producer.bulk_future import OffsetRange
    from ottla.client.sync import Admin, Client, Producer
    from ottla.spark.pipelines.settings.model import MirrorSettings
    from ottla.spark.source.options import ReadOptions

SYNC_EVERY = 100
"""Records between syncs within a batch: MirrorMaker 2's `offset.lag.max`."""

RESULT = "topic STRING, partition INT, upstream LONG, downstream LONG, records LONG, repeated LONG"
"""The rows of a task: the syncs of its partition, oldest first; the last one has the numbers of records."""

RESULT_NAMES = [column.partition(" ")[0] for column in RESULT.split(", ")]

#: What a broker refuses a record for, whoever sends it.
_OF_A_RECORD = (
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.INVALID_RECORD,
)
#: Target topics, by cluster, that a worker process knows to have enough partitions.
_ready: dict[tuple[str, str], int] = {}


@dataclass
class CopiedRange:
    """The outcome of one range: `repeated` of its `records` had been sent before, by this batch or an earlier one."""

    partition: TopicPartition
    syncs: SyncHistory = field(default_factory=SyncHistory)
    records: int = 0
    repeated: int = 0

    def rows(self) -> list[dict[str, Any]]:
        """As rows of `RESULT`."""
        if not self.records:
            return []
        common = {"topic": self.partition.topic, "partition": self.partition.partition}
        rows = [common | sync._asdict() | {"records": 0, "repeated": 0} for sync in self.syncs.syncs]
        rows[-1] |= {"records": self.records, "repeated": self.repeated}
        return rows


class CopyTask(Versioned):
    """Copies ranges. `newest` are the newest syncs; `may_repeat` says whether a driver before may have sent this batch.

    It travels to the workers.
    """

    def __init__(
        self,
        mirror: MirrorSettings,
        reading: Mapping[str, str],
        newest: Mapping[TopicPartition, Sync],
        *,
        may_repeat: bool,
    ) -> None:
        self._mirror = mirror
        self._reading = dict(reading)
        self._newest = dict(newest)
        self._may_repeat = may_repeat

    def copy_all(self, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        """Copy the ranges that are the rows of `batches`; gives rows of `RESULT`. Raises as `copy`."""
        types = {"topic": pyarrow.string(), "partition": pyarrow.int32()}
        schema = pyarrow.schema([(name, types.get(name, pyarrow.int64())) for name in RESULT_NAMES])
        for batch in batches:
            for row in batch.to_pylist():
                copied = self.copy(PartitionRange(row["topic"], row["partition"], row["start"], row["end"]))
                yield pyarrow.RecordBatch.from_pylist(copied.rows(), schema=schema)

    @one_sentence
    def copy(self, wanted: PartitionRange) -> CopiedRange:
        """Copy one range. Raises ClientError, DeliveryError, DataLossError."""
        from ottla.spark.source.options import parse_read_options

        options = parse_read_options({**self._reading, "includeHeaders": "true"}, streaming=True)
        names = names_of(self._mirror)
        partition = TopicPartition(wanted.topic, wanted.partition)
        remote = TopicPartition(names.remote_topic(wanted.topic), wanted.partition)
        target = target_of(self._mirror)
        _make_ready(source_of(self._mirror), target, names, partition)
        newest = self._newest.get(partition)
        sent_before = 0
        if self._may_repeat or _is_second_attempt():
            with target.client() as client:
                sent_before = _records_after(client, remote, newest, names)
        with target.producer(DEFAULTS) as producer:
            sending = RangeSender(producer, partition, remote, newest)
            for records in self._records(wanted, options, names):
                sending.send(records)
            copied = sending.finished()
        copied.repeated += min(sent_before, copied.records)
        return copied

    def _records(
        self, wanted: PartitionRange, options: ReadOptions, names: MirrorNames
    ) -> Iterator[pyarrow.RecordBatch]:
        """The records to send, with their final headers."""
        from ottla.spark.source.reading import read_as_written

        for batch in read_as_written(wanted, options):
            records = batch
            if names.carries_origin:
                records = with_origin(without_returning(batch, names.target_alias), names.source_alias)
            if len(records):
                yield _without_missing_times(records)


class RangeSender:
    """The records of one range on their way. What waits for its acknowledgement is bounded by `buffer.memory`."""

    def __init__(
        self,
        producer: Producer[bytes, bytes],
        partition: TopicPartition,
        remote: TopicPartition,
        newest: Sync | None,
    ) -> None:
        self._producer = producer
        self._remote = remote
        self._newest = newest
        self._copied = CopiedRange(partition)
        self._pending: deque[tuple[pyarrow.Int64Array, BulkFuture]] = deque()
        self._rows_to_sync = 0

    def send(self, records: pyarrow.RecordBatch) -> None:
        """Send records that are behind those sent so far."""
        offsets = records.column("offset")
        columns = ["key", "value", "timestamp", "headers"]
        future = BulkFuture()
        try:
            self._producer.send_arrow(
                records.select(columns), self._remote.topic, partition=self._remote.partition, into=future
            )
        except RecordTooLargeError as error:
            # A record that is too large for a request is a batch of its own: all before it were handed over.
            raise self._refused(FirstFailure(future.count, 1, error), offsets) from None
        self._pending.append((offsets, future))
        # The last one waits for `finished`, even where it is acknowledged by now: it gets the sync of its last record.
        while len(self._pending) > 1 and self._pending[0][1].done():
            self._acknowledged(*self._pending.popleft())

    def finished(self) -> CopiedRange:
        """Wait for all acknowledgements. Raises DeliveryError, PipelineError for a record that the target refuses."""
        failed: DeliveryError | None = None
        try:
            self._producer.flush()
        except DeliveryError as error:  # The futures know which of the records it was.
            failed = error
        while self._pending:
            self._acknowledged(*self._pending.popleft(), is_last=not self._pending)
        if failed is not None:
            raise failed
        return self._copied

    def _acknowledged(self, offsets: pyarrow.Int64Array, future: BulkFuture, *, is_last: bool = False) -> None:
        try:
            ranges = future.result()
        except DeliveryError:
            failure = future.first_failure()
            if failure is None or getattr(failure.error, "code", None) not in _OF_A_RECORD:
                raise
            raise self._refused(failure, offsets) from None
        count = len(offsets)
        for row in range(self._rows_to_sync, count, SYNC_EVERY):
            self._sync(Sync(offsets[row].as_py(), _offset_at(ranges, row)))
        self._rows_to_sync -= count
        if self._rows_to_sync < 0:
            self._rows_to_sync %= SYNC_EVERY
        self._copied.records += count
        if self._newest is not None:
            self._copied.repeated += _how_many_up_to(offsets, self._newest.upstream)
        if is_last:
            self._copied.syncs.add(Sync(offsets[count - 1].as_py(), _offset_at(ranges, count - 1)))

    def _refused(self, failure: FirstFailure, offsets: pyarrow.Int64Array) -> PipelineError:
        source = self._copied.partition
        first, last = (offsets[place].as_py() for place in (failure.place, failure.place + failure.count - 1))
        which, gone = f"the record {source}@{first}", "the source's records up to it"
        if failure.count > 1:  # The broker names none of its batch.
            which = f"one of the records {source}@{first} to {last}"
            gone = (
                f"all of the source's records up to {last}, of which good ones from {first} on are lost to the mirror"
            )
        return PipelineError(
            f"the target's topic {self._remote.topic} refuses {which} of the source: {failure.error}. Two ways on: let "
            "the target take it, by settings of its brokers or of the source's topic, which the mirror sets there too; "
            f"or delete {gone}, by delete_records({{{source}: {last + 1}}}) of an admin client, and the mirror "
            "continues behind what is gone"
        )

    def _sync(self, sync: Sync) -> None:
        """Add a sync, unless it says what the newest of the batch before says."""
        if self._newest != (sync.upstream - 1, sync.downstream - 1):
            self._copied.syncs.add(sync)


def names_of(mirror: MirrorSettings) -> MirrorNames:
    """The names that the settings give."""
    return MirrorNames(
        mirror.source_alias, mirror.target_alias, mirror.topics, mirror.groups, unchanged=mirror.unchanged_names
    )


def _offset_at(ranges: list[OffsetRange], row: int) -> int:
    """The offset of the record in place `row` of those sent together."""
    for each in ranges:
        if row < each.record_count:
            return each.start + row
        row -= each.record_count
    raise AssertionError("every record has an offset")


def _how_many_up_to(offsets: pyarrow.Int64Array, last: int) -> int:
    import pyarrow.compute as compute

    return int(compute.sum(compute.less_equal(offsets, last)).as_py() or 0)


def _without_missing_times(records: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """Records of the oldest format have no time (-1): they get that of sending, as MirrorMaker 2 does it."""
    import pyarrow.compute as compute

    times = records.column("timestamp")
    is_missing = compute.less(times.cast("int64"), 0)
    if not compute.any(is_missing).as_py():
        return records
    place = records.schema.get_field_index("timestamp")
    return records.set_column(place, "timestamp", compute.if_else(is_missing, None, times))


def _records_after(client: Client, remote: TopicPartition, newest: Sync | None, names: MirrorNames) -> int:
    """How many records a mirror has sent behind the newest sync."""
    end = client.offsets_at([remote], LATEST)[remote]
    start = client.offsets_at([remote], EARLIEST)[remote]
    if newest is not None:
        start = max(start, newest.downstream + 1)
    if end <= start:
        return 0
    if not names.carries_origin:
        return end - start  # The mirror is the only writer of such a topic.
    batches = client.read_range_arrow(remote, start, end, include_headers=True, timestamp_unit=None)
    return sum(sent_by(batch, names.source_alias) for batch in batches)


def _make_ready(source: MirrorEnd, target: MirrorEnd, names: MirrorNames, partition: TopicPartition) -> None:
    """Make sure that the target has the partition: a topic may be newer than the last refresh."""
    remote = names.remote_topic(partition.topic)
    known = (target.bootstrap_servers, remote)
    if _ready.get(known, 0) > partition.partition:
        return
    with target.admin() as target_admin:
        if _partitions(target_admin, remote) <= partition.partition:
            with source.admin() as source_admin:
                TopicFollower(source_admin, target_admin, names).follow([partition.topic])
        _ready[known] = _partitions(target_admin, remote)


def _partitions(admin: Admin, topic: str) -> int:
    """How many partitions a topic has; 0 where it does not exist."""
    if topic not in admin.list_topics():
        return 0
    return len(admin.describe_topics([topic])[topic].partitions)


def _is_second_attempt() -> bool:
    """Whether Spark runs this task again."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0
