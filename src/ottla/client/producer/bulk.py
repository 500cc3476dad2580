"""Bulk sending: `send_many` and `send_arrow`, without a future per record and with larger batches.

Both are generators that yield what the caller has to wait for (`Wait`, or None to let the event loop run), since
threads and tasks wait differently; they return the future. If the wait fails, the
error is thrown into them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from ottla.client.errors import ClientError, ClientTimeoutError, InvalidArgumentError, RecordTooLargeError
from ottla.client.producer.accumulator import RECORD_OVERHEAD, TopicQueues
from ottla.client.producer.batch import ProducerBatch
from ottla.client.producer.bulk_future import BulkFuture
from ottla.client.producer.delegate import MAX_INT32, ProducerDelegate, Wait, check_timestamp, octets
from ottla.client.producer.futures import RecordFuture
from ottla.client.producer.record import ProducerRecord, checked_headers, topic_name
from ottla.records.batch import BATCH_OVERHEAD
from ottla.records.building import RecordsBuilder, append_pairs, murmur2, partitions_for_keys, rows_by_partition
from ottla.records.extras import require_extra

if TYPE_CHECKING:
    import pyarrow

BULK_BATCH_BYTES = 256 * 1024
"""Batch size for bulk sends, unless `batch.size` is larger or `max.request.size` smaller."""

PAIR = 2
PAIRS_PER_CALL = 2500
"""Pairs that one call of `append_pairs` encodes at most."""

WITHOUT_KEY = -1
"""Stands for the topic's sticky partition in place of a partition number."""

Slices = Generator[tuple[Wait | None, str], None, BulkFuture]


def bulk_future(into: Any) -> BulkFuture:
    """Return the future to fill: the given one, or a new one for None. Else raises InvalidArgumentError."""
    if into is None:
        return BulkFuture()
    if not isinstance(into, BulkFuture):
        raise InvalidArgumentError(f"into is a BulkFuture or None, not {into!r:.80}")
    return into


def interrupted(slices: Slices, future: BulkFuture, error: BaseException) -> None:
    """Abort `slices` after a cancellation or interrupt; adds a note to the error that says how much was sent."""
    if not isinstance(error, Exception):
        slices.close()
        error.add_note(f"{future.count} records were handed over before that, and will be sent; the others were not")


class _Batches:
    """The open batches of one topic.

    A partition has at most one open batch, to keep the order of its records. Records without a key go into
    the sticky partition's batch, together with keyed records of that partition, until it is full: `WITHOUT_KEY`.
    """

    def __init__(self, delegate: ProducerDelegate, topic: str, limit: int, future: BulkFuture) -> None:
        self._delegate = delegate
        self._topic = topic
        self._limit = limit
        self._future = future
        #: By partition; the sticky partition's batch is also listed under `WITHOUT_KEY`.
        self.open: dict[int, ProducerBatch] = {}
        #: The builders of the open batches by partition; the last one is for records without a key.
        self.builders: list[RecordsBuilder | None] = [None]

    def queues(self) -> TopicQueues | None:
        """Return the topic's queues, None if its metadata is missing."""
        return self._delegate.queues_of(self._topic)

    def begin(self, queues: TopicQueues, partition: int) -> ProducerBatch:
        """Return a batch for a partition; for `WITHOUT_KEY` that of the sticky partition, created unless it is open."""
        number = queues.sticky.partition if partition < 0 else partition
        batch = self.open.get(number)
        if batch is None:
            accumulator = self._delegate.accumulator
            now = self._delegate.cluster.clock.monotonic_ms()
            where = queues.queues[number].partition
            batch = ProducerBatch(where, self._limit, 0, now, accumulator.lock, accumulator.home)
        self._put(batch, {number, partition})
        if len(self.builders) != queues.count + 1:  # the first batch, or partitions were added
            self.builders = [None] * (queues.count + 1)
            for number, each in self.open.items():
                self.builders[number] = each.builder
        return batch

    def _put(self, batch: ProducerBatch, places: Iterable[int]) -> None:
        for place in places:
            self.open[place] = batch
            if place < len(self.builders):
                self.builders[place] = batch.builder

    def drop(self, batch: ProducerBatch) -> list[int]:
        """Remove a batch from the open ones; returns the keys it was listed under."""
        places = [place for place in (batch.partition.partition, WITHOUT_KEY) if self.open.get(place) is batch]
        for place in places:
            del self.open[place]
            self.builders[place] = None
        return places

    def finish(self, batch: ProducerBatch, *, waits: bool = True) -> Slices:
        """Hand a batch over to the sender, once there is room for it. Raises RecordTooLargeError.

        With `waits` False and no room, raises ClientTimeoutError; the batch stays here then.
        """
        places = self.drop(batch)
        if not batch.builder.count:  # its first record was rejected
            return self._future
        size = batch.builder.size + BATCH_OVERHEAD
        if size > self._delegate.config.max_request_size:
            limit = f"max.request.size of the producer ({self._delegate.config.max_request_size})"
            raise RecordTooLargeError(self._topic, size, limit)
        while not self._delegate.accumulator.room_for(size):
            try:
                if not waits:
                    raise self._delegate.blocked(Wait.MEMORY, self._topic)
                yield Wait.MEMORY, self._topic
            except ClientError:
                self._put(batch, places)
                raise
        self._delegate.check_open(for_records=True)
        batch.reserved = size
        queues = self._delegate.accumulator.topics[self._topic]
        # Its delivery timeout starts now, however slowly the records came.
        queues.used_at_ms = batch.created_ms = self._delegate.cluster.clock.monotonic_ms()
        self._delegate.accumulator.add_batch(queues, batch, is_sticky=WITHOUT_KEY in places)
        self._future.add_batch(batch.result, batch.builder.count)
        yield None, self._topic
        return self._future

    def finish_all(self) -> Slices:
        """Hand all batches over to the sender."""
        for batch in dict.fromkeys(self.open.values()):
            yield from self.finish(batch)
        return self._future


class Bulk:
    """Bulk sending for one producer."""

    def __init__(self, delegate: ProducerDelegate) -> None:
        self._delegate = delegate
        config = delegate.config
        largest = min(config.max_request_size, config.buffer_memory) - BATCH_OVERHEAD
        self._limit = max(min(max(config.batch_size, BULK_BATCH_BYTES), largest), 1)

    def many(self, records: Iterable[Any], topic: str | None, future: BulkFuture) -> Slices:
        """Send records, or pairs of key and value for `topic`. Records before a rejected one are sent."""
        if isinstance(records, str | bytes) or not isinstance(records, Iterable):
            raise InvalidArgumentError(
                f"send_many takes a list or another iterable of ProducerRecords or pairs, not {records!r:.80}"
            )
        if topic is not None and topic.__class__ is not str:
            topic = topic_name(topic)
        self._delegate.check_open(for_records=True)
        if self._delegate.needs_each_record:
            yield from self._each(records, topic, future)
            return future
        filled: dict[str, _Batches] = {}
        try:
            yield from self._fill(records, topic, filled, future)
            for batches in filled.values():
                yield from batches.finish_all()
        except Exception as error:
            yield from self._finish_rest(filled, future, error)
            raise
        return future

    @staticmethod
    def _finish_rest(
        filled: dict[str, _Batches], future: BulkFuture, error: Exception
    ) -> Generator[tuple[Wait | None, str], None, None]:
        """Hand over what was read before an error; after a timeout, without further waiting."""
        waits = not isinstance(error, ClientTimeoutError)
        dropped = 0
        for batches in filled.values():
            for batch in dict.fromkeys(batches.open.values()):
                try:
                    yield from batches.finish(batch, waits=waits)
                except ClientError:
                    dropped += batch.builder.count
                    batches.drop(batch)
        if dropped:
            error.add_note(f"of the records that were read before that, {dropped} were not sent, {future.count} were")

    def _fill(
        self, records: Iterable[Any], topic: str | None, filled: dict[str, _Batches], future: BulkFuture
    ) -> Slices:
        """Encode the records into batches. The slow path: handles each record that `_left_over` yields."""
        batches: _Batches | None = None
        name, headers, wanted, own_timestamp, is_record = "", (), None, None, False
        count = 0
        now_ms = self._delegate.cluster.clock.now_ms
        timestamp = now_ms()
        opened: dict[int, ProducerBatch] = {}
        ignores_keys = self._delegate.config.partitioner_ignore_keys
        for item in self._left_over(records, topic, filled):
            if item.__class__ is tuple and len(item) == PAIR:
                key, value = item
                where = topic
                if is_record:
                    is_record, headers, wanted, own_timestamp = False, (), None, None
            else:
                is_record = True
                where, value, key, wanted, own_timestamp, headers = self._taken_apart(item, topic)
            if where is not name or batches is None:
                batches, queues = yield from self._topic_of(where, filled, future)
                name, count, opened = where or "", queues.count, batches.open
            if wanted is not None:
                self._check_partition(name, wanted, count)
                partition = wanted
            elif key is None or ignores_keys:
                partition = WITHOUT_KEY
            else:
                partition = (murmur2(key if key.__class__ is bytes else octets("key", key)) & MAX_INT32) % count
            batch = opened.get(partition)
            if batch is None:
                timestamp = now_ms()
                batch = batches.begin(queues, partition)
            try:
                index = batch.builder.append(timestamp if own_timestamp is None else own_timestamp, key, value, headers)
            except TypeError as error:
                raise InvalidArgumentError(f"a record for topic {name} cannot be sent: {error}") from error
            while index < 0:  # even the sticky partition's open batch may be full
                yield from batches.finish(batch)
                timestamp = now_ms()
                found = batches.queues()
                queues = queues if found is None else found
                count = queues.count
                batch = batches.begin(queues, partition)
                index = batch.builder.append(timestamp if own_timestamp is None else own_timestamp, key, value, headers)
        return future

    def _left_over(self, records: Iterable[Any], topic: str | None, filled: dict[str, _Batches]) -> Iterator[Any]:
        """Append plain pairs to open batches with room, many at a time; yields all other records, in order."""
        if topic is None or self._delegate.config.partitioner_ignore_keys:
            yield from records
            return
        if records.__class__ is list:
            yield from self._left_over_of(records, topic, filled)
            return
        iterator, failure = iter(records), None
        while failure is None:
            chunk: list[Any] = []
            try:
                chunk.extend(islice(iterator, PAIRS_PER_CALL))
            except Exception as error:  # records before the error are accepted
                failure = error
            yield from self._left_over_of(chunk, topic, filled)
            if not chunk:
                break
        if failure is not None:
            raise failure

    def _left_over_of(self, items: list[Any], topic: str, filled: dict[str, _Batches]) -> Iterator[Any]:
        now_ms = self._delegate.cluster.clock.now_ms
        at = 0
        while at < len(items):
            batches = filled.get(topic)
            if batches is not None and batches.open and items[at].__class__ is tuple:
                stop = at + PAIRS_PER_CALL
                at = append_pairs(items, at, stop, batches.builders, len(batches.builders) - 1, now_ms())
                if at == stop or at == len(items):
                    continue
            yield items[at]
            at += 1

    @staticmethod
    def _taken_apart(item: Any, topic: str | None) -> tuple[Any, ...]:
        if isinstance(item, ProducerRecord):
            where, value, key, partition, timestamp, headers = item
            if timestamp is not None:
                check_timestamp(timestamp)
            return where, value, key, partition, timestamp, checked_headers(headers) if headers else ()
        try:
            key, value = item
        except (TypeError, ValueError):
            raise InvalidArgumentError(
                f"send_many takes ProducerRecords or pairs of key and value, not {item!r:.80}"
            ) from None
        return topic, value, key, None, None, ()

    def _topic_of(
        self, topic: str | None, filled: dict[str, _Batches], future: BulkFuture
    ) -> Generator[tuple[Wait | None, str], None, tuple[_Batches, TopicQueues]]:
        if topic is None:
            raise InvalidArgumentError("pairs of key and value need a topic: send_many(pairs, topic)")
        batches = filled.get(topic)
        if batches is None:
            batches = filled[topic] = _Batches(self._delegate, topic, self._limit, future)
        while (queues := batches.queues()) is None:
            yield Wait.TOPIC, topic
        return batches, queues

    @staticmethod
    def _check_partition(topic: str, partition: Any, count: int) -> None:
        if not isinstance(partition, int) or not 0 <= partition < count:
            raise InvalidArgumentError(
                f"topic {topic} has no partition {partition!r}; it has the partitions 0 to {count - 1}"
            )

    def _each(self, records: Iterable[Any], topic: str | None, future: BulkFuture) -> Slices:
        """Send one by one, for serializers, interceptors and partitioners that have to see each record."""
        for item in records:
            where, value, key, partition, timestamp, headers = self._taken_apart(item, topic)
            if where is None:
                raise InvalidArgumentError("pairs of key and value need a topic: send_many(pairs, topic)")
            record: ProducerRecord[Any, Any] = ProducerRecord(where, value, key, partition, timestamp, headers)
            with self._delegate.interceptors.sending(record, None) as (changed, notify):
                callback = notify if self._delegate.interceptors else None
                to, value, key, partition, timestamp, headers = changed
                outcome = self._delegate.take(to, partition, timestamp, key, value, headers, callback)
                while isinstance(outcome, Wait):
                    yield outcome, to
                    outcome = self._delegate.take(to, partition, timestamp, key, value, headers, callback)
            assert isinstance(outcome, RecordFuture)
            future.add_record(outcome)
        return future

    def arrow(
        self, data: Any, topic: str | None, columns: dict[str, str | None], partition: int | None, future: BulkFuture
    ) -> Slices:
        """Send a table or record batch; `columns` names those for key, value, partition, timestamp, headers, topic."""
        if topic is not None and topic.__class__ is not str:
            topic = topic_name(topic)
        for role, name in columns.items():
            if name is not None and not isinstance(name, str):
                raise InvalidArgumentError(f"{role}_column is the name of a column or None, not {name!r:.80}")
        self._delegate.check_open(for_records=True)
        self._delegate.check_no_partitioner("send_arrow")
        require_extra("send_arrow", "arrow", "pyarrow")
        table = _as_arrow(data)
        try:
            for name, rows in _by_topic(table, topic, columns["topic"]):
                yield from self._arrow_topic(rows, name, columns, partition, future)
        except ClientError as error:
            if future.count:
                error.add_note(f"{future.count} of the {table.num_rows} rows were sent before that")
            raise
        return future

    def _arrow_topic(
        self, data: Any, topic: str, columns: dict[str, str | None], partition: int | None, future: BulkFuture
    ) -> Slices:
        batches = _Batches(self._delegate, topic, self._limit, future)
        while (queues := batches.queues()) is None:
            yield Wait.TOPIC, topic
        if partition is not None:
            self._check_partition(topic, partition, queues.count)
        found = {role: _column(data, role, name) for role, name in columns.items() if role != "topic"}
        source = _source(found, self._delegate.cluster.clock.now_ms())
        chosen_partitions = _partitions(
            found, partition, queues.count, ignores_keys=self._delegate.config.partitioner_ignore_keys
        )
        if chosen_partitions is not None and chosen_partitions.null_count:
            chosen_partitions = self._with_sticky(chosen_partitions, found["value"], queues)
        for number, chosen in _rows(chosen_partitions, partition, queues.count):
            at, end = 0, data.num_rows if chosen is None else len(chosen)
            while at < end:
                batch = batches.begin(queues, number)
                try:
                    at = batch.builder.append_rows(source, at, end, chosen)
                except ValueError as error:
                    raise InvalidArgumentError(f"column headers: {error}; give it one, or leave it out") from error
                yield from batches.finish(batch)
        return future

    def _with_sticky(self, chosen: Any, values: Any, queues: TopicQueues) -> Any:
        """Replace null partitions of the rows by the topic's sticky partition.

        It switches after each batch's worth of bytes, as with single records.
        """
        import pyarrow
        import pyarrow.compute as compute

        if chosen.null_count == len(chosen):
            return chosen
        size = RECORD_OVERHEAD + (0 if values is None else values.nbytes // len(values))
        rows_per_batch = max(self._limit // size, 1)
        nulls_so_far = compute.cumulative_sum(compute.is_null(chosen).cast(pyarrow.int32()))
        batches_before = compute.divide(nulls_so_far, rows_per_batch).cast(pyarrow.int32())
        sticky: list[int] = []
        with self._delegate.accumulator.lock:
            for _ in range(batches_before[-1].as_py() + 1):
                if sticky:
                    queues.sticky.switch()
                sticky.append(queues.sticky.partition)
            queues.sticky.add(chosen.null_count % rows_per_batch * size, may_switch=True)
        return compute.coalesce(chosen, pyarrow.array(sticky, pyarrow.int32()).take(batches_before))


def _as_arrow(data: Any) -> Any:
    """Return a table or record batch unchanged; converts objects with Arrow's PyCapsule interface."""
    import pyarrow

    if isinstance(data, pyarrow.Table | pyarrow.RecordBatch):
        return data
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        try:
            return pyarrow.table(data)
        except (pyarrow.ArrowException, TypeError, ValueError) as error:
            raise InvalidArgumentError(f"{type(data).__name__} cannot be made an Arrow table: {error}") from error
    raise InvalidArgumentError(
        f"send_arrow takes a pyarrow Table or RecordBatch, or a frame of Polars or pandas, not {type(data).__name__}"
    )


def _by_topic(data: Any, topic: str | None, column: str | None) -> Iterator[tuple[str, Any]]:
    """Yield the rows of each topic, in order."""
    import pyarrow.compute

    if topic is not None:
        yield topic, data
        return
    names = _column(data, "topic", column)
    if names is None:
        raise InvalidArgumentError("send_arrow needs a topic, or a column named topic")
    if names.null_count:
        raise InvalidArgumentError("a row has no topic (its topic column is null)")
    for name in pyarrow.compute.unique(names).to_pylist():
        yield name, data.filter(pyarrow.compute.equal(names, name))


DEFAULT_COLUMNS = {
    "key": "key",
    "value": "value",
    "partition": "partition",
    "timestamp": "timestamp",
    "headers": "headers",
    "topic": "topic",
}


def _column(data: Any, role: str, name: str | None) -> pyarrow.ChunkedArray | pyarrow.Array | None:
    if name is None:
        return None
    if name in data.schema.names:
        return data.column(name)
    if name == DEFAULT_COLUMNS[role] and role != "value":
        return None
    raise InvalidArgumentError(f"there is no column {name} for the {role}; there are {', '.join(data.schema.names)}")


def _source(found: dict[str, Any], now_ms: int) -> Any:
    """Return the columns as the encoder takes them. Raises InvalidArgumentError for unsupported types."""
    import pyarrow

    from ottla.records.from_arrow import source_of

    try:
        source = source_of(found["value"], found["key"], found["timestamp"], found["headers"], timestamp=now_ms)
    except (ValueError, pyarrow.ArrowException) as error:
        types = ", ".join(f"{role}: {column.type}" for role, column in found.items() if column is not None)
        raise InvalidArgumentError(
            f"the columns cannot be sent ({types}): {error}; keys and values are binary or string, cast them"
        ) from error
    if found["timestamp"] is not None:
        _check_times(found["timestamp"])
    return source


def _check_times(column: Any) -> None:
    """Raise InvalidArgumentError for a negative timestamp (before 1970), as Java's producer does."""
    import pyarrow
    import pyarrow.compute as compute

    earliest = compute.min(column)
    if pyarrow.types.is_timestamp(earliest.type):
        earliest = earliest.cast(pyarrow.int64())
    if earliest.is_valid and earliest.as_py() < 0:
        row = compute.index(column, compute.min(column)).as_py()
        raise InvalidArgumentError(
            f"column timestamp: that of row {row} is {column[row]}, and a timestamp is a number of "
            "milliseconds since 1970"
        )


def _partitions(found: dict[str, Any], partition: int | None, count: int, *, ignores_keys: bool) -> Any:
    """Return the rows' partitions as an Arrow array, null for any; None if all are null, or `partition` is for all."""
    import pyarrow
    import pyarrow.compute

    from ottla.records.from_arrow import strings_of

    if partition is not None:
        return None
    keys = None if ignores_keys else found["key"]
    wanted = found["partition"]
    if keys is None and wanted is None:
        return None
    chosen: Any = None
    if keys is not None:
        numbers = partitions_for_keys(strings_of(keys), count)
        chosen = pyarrow.Array.from_buffers(pyarrow.int32(), len(numbers), [None, pyarrow.py_buffer(numbers)])
        if wanted is None and not keys.null_count:
            return chosen
    if wanted is not None:
        try:
            wanted = wanted.cast(pyarrow.int32())
        except pyarrow.ArrowException as error:
            raise InvalidArgumentError(f"column partition cannot be read as numbers of partitions: {error}") from error
        least = pyarrow.compute.min(wanted)
        if least.is_valid and least.as_py() < 0:
            raise InvalidArgumentError(f"column partition: {least} is not a partition; null stands for any")
        wanted = wanted.combine_chunks() if isinstance(wanted, pyarrow.ChunkedArray) else wanted
        chosen = wanted if chosen is None else pyarrow.compute.coalesce(wanted, chosen)
    return pyarrow.compute.if_else(
        pyarrow.compute.equal(chosen, WITHOUT_KEY), pyarrow.scalar(None, pyarrow.int32()), chosen
    )


def _rows(chosen: Any, partition: int | None, count: int) -> Iterator[tuple[int, Any]]:
    """Yield partitions with their rows, None for all rows; `WITHOUT_KEY` if no row has a partition."""
    if chosen is None or chosen.null_count == len(chosen):
        yield WITHOUT_KEY if partition is None else partition, None
        return
    numbers = memoryview(chosen.buffers()[1]).cast("B").cast("i")[chosen.offset : chosen.offset + len(chosen)]
    try:
        by_partition = rows_by_partition(numbers, count)
    except ValueError as error:
        raise InvalidArgumentError(f"column partition: {error}") from error
    for number, rows in enumerate(by_partition):
        if len(rows):
            yield number, rows
