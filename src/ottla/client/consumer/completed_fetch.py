"""The fetched data of one partition, decoded step by step into records or Arrow rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from ottla.client.configs.consumer import ConsumerConfig
from ottla.client.consumer.aborted import application_batches, committed_batches
from ottla.client.consumer.subscription_state import PartitionState
from ottla.client.errors import (
    ClientError,
    CorruptBatchError,
    DeserializationOrigin,
    RecordDeserializationError,
    RecordTimestampError,
)
from ottla.client.fetcher import batches_from, damaged
from ottla.client.model import TopicPartition
from ottla.client.serialization import Deserializer, deserialize_function
from ottla.records.batch import BatchHeader, check_crc
from ottla.records.consumed import ConsumerRecord, Deserialize, decode_consumed
from ottla.records.errors import BatchError, TimestampRangeError

if TYPE_CHECKING:
    import pyarrow

Records = list[ConsumerRecord[Any, Any]]

OFFSET_COLUMN = 4
MAX_ROWS = 1 << 30
"""Higher than the number of records in any fetch."""


@dataclass(slots=True, frozen=True)
class Decoding:
    """How batches are decoded: deserializers (None leaves bytes), and whether checksums are verified."""

    key: Deserialize | None = None
    value: Deserialize | None = None
    check_crcs: bool = True
    read_committed: bool = False

    @classmethod
    def of(cls, config: ConsumerConfig, deserializers: Iterable[Deserializer[Any]]) -> Self:
        """For the deserializers of keys and of values, and the consumer's settings."""
        key, value = map(deserialize_function, deserializers)
        return cls(key, value, config.check_crcs, config.isolation_level == "read_committed")


class CompletedFetch:
    """The batches of one fetched partition. `position` is the next offset to return, `end` the one after the last.

    It is valid as long as `state` is the state of the assigned partition and `seeks` has not changed since the
    request was sent. If `error` is set, it has no data; the error is raised after everything before it was read.
    """

    __slots__ = (
        "_at",
        "_buffer",
        "_checked",
        "_cut_short",
        "_decoding",
        "_failed",
        "_headers",
        "_index",
        "_records",
        "_rows",
        "end",
        "end_epoch",
        "epoch",
        "error",
        "fetch_offset",
        "partition",
        "position",
        "released",
        "seeks",
        "size_bytes",
        "state",
        "torn",
    )

    def __init__(
        self,
        partition: TopicPartition,
        state: PartitionState,
        seeks: int,
        fetch_offset: int,
        data: memoryview,
        decoding: Decoding,
        aborted: Sequence[tuple[int, int]] = (),
        error: ClientError | None = None,
    ) -> None:
        self.partition = partition
        self.state = state
        self.seeks = seeks
        self.fetch_offset = self.position = self.end = fetch_offset
        self.epoch = self.end_epoch = -1
        self.size_bytes = len(data)
        self.released = False
        #: Set while records are decoded: if that was interrupted, only `rewind` makes it consistent again.
        self.torn = False
        self.error = error
        self._buffer = data
        self._decoding = decoding
        self._headers: list[BatchHeader] = []
        self._at = 0
        self._checked = 0
        self._records: Records = []
        self._index = 0
        self._rows: pyarrow.RecordBatch | None = None
        #: Whether `_rows` end before a record that Arrow cannot hold, within what `_at` has passed.
        self._cut_short = False
        self._failed: ClientError | None = None
        if error is None:
            self._split(aborted)

    def _split(self, aborted: Sequence[tuple[int, int]]) -> None:
        what = f"reading {self.partition} from offset {self.fetch_offset}"
        try:
            self._buffer, headers = batches_from(self._buffer, self.fetch_offset)
            if self._decoding.read_committed:
                kept, looked_at = committed_batches(self._buffer, headers, aborted)
                headers = headers[:looked_at]
            else:
                kept = application_batches(headers)
        except BatchError as error:
            self.error = damaged(what, error)
            return
        if len(kept) < len(headers) and self._decoding.check_crcs:
            kept = self._with_damaged(kept, headers)
        self._headers = kept
        self.end, self.end_epoch = headers[-1].next_offset, headers[-1].partition_leader_epoch

    def _with_damaged(self, kept: list[BatchHeader], headers: list[BatchHeader]) -> list[BatchHeader]:
        """`kept`, and damaged batches among those left out: their error is raised in their place."""
        places = {header.position for header in kept}
        return [header for header in headers if header.position in places or not check_crc(self._buffer, header)]

    def has_more(self) -> bool:
        """Whether there is anything left to return, by the partition's position."""
        position = self.state.position
        return self.state.is_fetchable and not (self.released and position is not None and position.offset >= self.end)

    @property
    def is_drained(self) -> bool:
        """Whether nothing is left: no record, and no move of the position."""
        return self.position >= self.end and self.error is None

    def take(self, most: int) -> Records:
        """Return the next records, at most `most`; none if only the position moved. Raises what `_decode` raises."""
        if self._rows is not None:
            self.rewind(self.position)
        records, index = self._records, self._index
        while index >= len(records):
            if not self._decode_next():
                return []
            records, index = self._records, self._index
        if index == 0 and len(records) <= most:
            taken = records
            self._records = []
            self._index = 0
        else:
            taken = records[index : index + most]
            self._index = index + len(taken)
        header = self._headers[self._at]
        if self._index >= len(self._records) and self._failed is None:
            self._at += 1
            self._moved_behind(header)
        else:
            self.position, self.epoch = taken[-1].offset + 1, header.partition_leader_epoch
        return taken

    def take_rows(self, most: int, *, include_headers: bool = False) -> list[pyarrow.RecordBatch]:
        """Return the next records as one Arrow record batch of at most `most` rows; none if only the position moved.

        The columns are those of `ottla.records.arrow`; deserializers are not used. Raises CorruptBatchError, and
        RecordTimestampError at a record whose timestamp Arrow cannot hold.
        """
        if self._records or self._failed is not None:
            self.rewind(self.position)
        while self._rows is None:
            if self._at >= len(self._headers):
                self.position, self.epoch = self.end, self.end_epoch
                return []
            self._rows = self._decode_rows(most, include_headers)
        whole = self._rows
        taken = whole.slice(0, most)
        has_more = taken.num_rows < whole.num_rows
        if has_more or self._cut_short:
            offset = int(taken.column(OFFSET_COLUMN)[-1].as_py())
            self.position = offset + 1
            self.epoch = next(each.partition_leader_epoch for each in self._headers if each.next_offset > offset)
        if has_more:
            self._rows = whole.slice(most)
        elif self._cut_short:
            self.rewind(self.position)
        else:
            self._rows = None
            self._moved_behind(self._headers[self._at - 1])
        return [taken]

    def _decode_rows(self, most: int, include_headers: bool) -> pyarrow.RecordBatch | None:
        """Decode whole batches from the current one on, until there are `most` rows; None if they had no rows.

        What comes before a record or batch that cannot be read is returned first.
        """
        from ottla.records.arrow import ArrowRows

        first, count = self._at, len(self._headers)
        rows = ArrowRows(
            *self.partition, self.position, self.end, rows_per_batch=MAX_ROWS, include_headers=include_headers
        )
        at = first
        try:
            while at < count and not (at > first and rows.count >= most) and not rows.full:
                self._check(at)
                rows.add(self._buffer, self._headers[at])
                at += 1
        except (BatchError, CorruptBatchError) as error:
            if at == first:
                raise self._unreadable(self._headers[at], error) from error
        gathered = rows.count
        try:
            made = next(rows.take(), None)
        except TimestampRangeError as error:
            cure = f"seek to {error.offset + 1} to leave it out, or read it with poll"
            raise RecordTimestampError(self.partition, error.offset, error.timestamp, cure) from error
        self._at = at
        if made is None:
            self._moved_behind(self._headers[at - 1])
        else:
            self._cut_short = made.num_rows < gathered
        return made

    def _moved_behind(self, header: BatchHeader) -> None:
        """Set the position behind a finished batch; behind the whole fetch if it is the last one."""
        if self._at >= len(self._headers):
            self.position, self.epoch = self.end, self.end_epoch
        else:
            self.position, self.epoch = header.next_offset, header.partition_leader_epoch

    def _decode_next(self) -> bool:
        """Decode the current batch; False at the end. Raises CorruptBatchError, RecordDeserializationError."""
        if self._failed is not None:
            raise self._failed
        while self._at < len(self._headers):
            header = self._headers[self._at]
            self._check(self._at)
            self._records, self._index = self._decode(header), 0
            if self._records:
                return True
            self._at += 1  # compaction may leave a batch without records from the position on
            self.position = header.next_offset
        self.position, self.epoch = self.end, self.end_epoch
        return False

    def _check(self, at: int) -> None:
        header = self._headers[at]
        if self._checked > at:
            return
        if self._decoding.check_crcs and not check_crc(self._buffer, header):
            raise CorruptBatchError(
                f"the batch at offset {header.base_offset} of {self.partition} has a wrong checksum; seek to "
                f"{header.next_offset} to leave it out"
            )
        self._checked = at + 1

    def _unreadable(self, header: BatchHeader, error: Exception) -> ClientError:
        if isinstance(error, ClientError):
            return error
        return CorruptBatchError(
            f"the batch at offset {header.base_offset} of {self.partition} cannot be read ({error}); seek to "
            f"{header.next_offset} to leave it out"
        )

    def _decode(self, header: BatchHeader) -> Records:
        topic, partition = self.partition
        decoding = self._decoding
        try:
            return decode_consumed(self._buffer, header, topic, partition, self.position, decoding.key, decoding.value)
        except BatchError as error:
            raise self._unreadable(header, error) from error
        except Exception:
            if decoding.key is None and decoding.value is None:
                raise
        return self._decode_up_to_failure(header)

    def _decode_up_to_failure(self, header: BatchHeader) -> Records:
        """Return the records before the one whose deserializer fails; its error is raised after they were returned."""
        topic, partition = self.partition
        whole: Records = []
        for record in decode_consumed(self._buffer, header, topic, partition, self.position):
            origin = DeserializationOrigin.KEY
            try:
                key = _made(self._decoding.key, topic, record.headers, record.key)
                origin = DeserializationOrigin.VALUE
                value = _made(self._decoding.value, topic, record.headers, record.value)
            except Exception as error:
                self._failed = RecordDeserializationError(self.partition, record, origin, error)
                self._failed.__cause__ = error
                break
            whole.append(record._replace(key=key, value=value))
        if not whole and self._failed is not None:
            raise self._failed
        return whole

    def rewind(self, position: int) -> None:
        """Go back to `position`, which must lie between the beginning of this fetch and what was already returned."""
        self.torn = True  # an interruption may leave the new position beside the old place
        self._records, self._index, self._rows, self._failed = [], 0, None, None
        self._cut_short = False
        self.position = position
        self._at = next(
            (at for at, each in enumerate(self._headers) if each.next_offset > position), len(self._headers)
        )
        self.torn = False


def _made(deserialize: Deserialize | None, topic: str, headers: Any, data: bytes | None) -> Any:
    return data if deserialize is None or data is None else deserialize(topic, headers, data)
