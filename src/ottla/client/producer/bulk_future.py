"""One future for many records: their partitions and offsets, as ranges."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from ottla.client.errors import ClientTimeoutError, DeliveryError, InvalidArgumentError
from ottla.client.model import TopicPartition
from ottla.client.producer.failures import MAX_CAUSES
from ottla.client.producer.futures import BLOCKS_SENDER, BatchResult, RecordFuture, wake_future
from ottla.env.threads import monotonic_s


class OffsetRange(NamedTuple):
    """Consecutive records: `start` is the first one's offset, `end` the last one's plus 1.

    Both are -1 if the broker returned no offset (acks=0); `record_count` is the number of records.
    """

    topic: str
    partition: int
    start: int
    end: int
    record_count: int


@dataclass(frozen=True, slots=True)
class FirstFailure:
    """The first of many records that was not delivered: its place, counted as they were handed over, and why.

    With a `count` above 1 the broker refused that many together from `place` on, and did not say for which of them.
    """

    place: int
    count: int
    error: Exception


class _Stretch(NamedTuple):
    """Records `first` to `end` (exclusive) of a batch; whether the batch holds no other records."""

    result: BatchResult
    first: int
    end: int
    is_whole: bool = False


class BulkFuture:
    """The future of many records. Await it in asyncio, or call `result` in a thread; `count` is their number."""

    def __init__(self) -> None:
        self.count = 0
        self._stretches: list[_Stretch] = []

    def add_batch(self, result: BatchResult, count: int) -> None:
        """Add all records of a batch."""
        self.count += count
        self._stretches.append(_Stretch(result, 0, count, is_whole=True))

    def add_record(self, future: RecordFuture) -> None:
        """Add a single record."""
        self.count += 1
        result, index = future.follow()
        last = self._stretches[-1] if self._stretches else None
        if last is not None and last.result is result and last.end == index:
            self._stretches[-1] = _Stretch(result, last.first, index + 1)
        else:
            self._stretches.append(_Stretch(result, index, index + 1))

    def done(self) -> bool:
        """Whether all records were delivered or failed."""
        return all(stretch.result.is_done for stretch in self._stretches)

    def result(self, timeout_s: float | None = None) -> list[OffsetRange]:
        """Wait for the records, and return their offset ranges in the order of topics, partitions and offsets.

        Raises DeliveryError if some were not delivered, ClientTimeoutError.
        """
        pending = [stretch.result for stretch in self._stretches if not stretch.result.is_done]
        if any(result.blocks_sender for result in pending):
            raise InvalidArgumentError(BLOCKS_SENDER)
        deadline = None if timeout_s is None else monotonic_s() + timeout_s
        for result in pending:
            left_s = None if deadline is None else max(deadline - monotonic_s(), 0)
            if not result.wait(left_s):
                raise ClientTimeoutError(f"not all records were acknowledged within {timeout_s} s; they may still be")
        return self._ranges()

    def delivered(self) -> list[OffsetRange]:
        """Offset ranges of the records that were delivered, once all are done; those that failed are left out."""
        return self._outcome()[0]

    @property
    def is_in_order(self) -> bool:
        """Whether places are those of the records as they were passed in: all of them went to one partition."""
        return len({stretch.result.partition for stretch in self._stretches}) <= 1

    def first_failure(self) -> FirstFailure | None:
        """The first record that was not delivered, once all are done; None if there is none."""
        place = 0
        for stretch in self._stretches:
            for part in _split(stretch):
                if part.result.error is not None:
                    return _first_failure(part, place)
                place += part.end - part.first
        return None

    def failed_places(self) -> list[int]:
        """Places of all records that were not delivered, once all are done; a batch is refused as a whole."""
        place, failed = 0, list[int]()
        for stretch in self._stretches:
            for part in _split(stretch):
                size = part.end - part.first
                if part.result.error is not None:
                    failed += range(place, place + size)
                place += size
        return failed

    def __await__(self) -> Generator[Any, None, list[OffsetRange]]:
        loop = asyncio.get_running_loop()
        self._mark_reported()
        for stretch in self._stretches:
            if stretch.result.is_done:
                continue
            arrived: asyncio.Future[None] = loop.create_future()
            if stretch.result.when_done(partial(wake_future, loop, arrived)):
                yield from arrived
        return self._ranges()

    def _mark_reported(self) -> None:
        """Mark the results as retrieved, so that `flush` does not report them again."""
        for stretch in self._stretches:
            if stretch.is_whole:
                stretch.result.mark_all_reported()
                continue
            for part in _split(stretch):
                for index in range(part.first, part.end):
                    part.result.mark_reported(index)

    def _ranges(self) -> list[OffsetRange]:
        ranges, failures = self._outcome()
        if failures:
            causes: dict[str, Exception] = {}
            for _, error in failures:
                causes.setdefault(str(error), error)
            failed = sum(count for count, _ in failures)
            first = list(causes.values())[:MAX_CAUSES]
            raise DeliveryError(
                f"{failed} of {self.count} records were not acknowledged: {first[0]}", failed, first
            ) from first[0]
        return ranges

    def _outcome(self) -> tuple[list[OffsetRange], list[tuple[int, Exception]]]:
        """Ranges of what was delivered; the numbers of records that were not, with their errors."""
        self._mark_reported()
        ranges: list[OffsetRange] = []
        failures: list[tuple[int, Exception]] = []
        for stretch in self._stretches:
            for part in _split(stretch):
                error = part.result.error
                if error is None:
                    ranges.append(_range(part))
                else:
                    failures.append((part.end - part.first, error))
        return list(_merged(ranges)), failures


def _split(stretch: _Stretch) -> Iterator[_Stretch]:
    """Split a stretch by the batches that its records were finally sent in."""
    splits = stretch.result.splits
    if splits is None:
        yield stretch
        return
    for number, (start, result) in enumerate(splits):
        stop = splits[number + 1][0] if number + 1 < len(splits) else stretch.end
        first, end = max(stretch.first, start), min(stretch.end, stop)
        if first < end:
            yield from _split(_Stretch(result, first - start, end - start))


def _first_failure(part: _Stretch, place: int) -> FirstFailure:
    """Of a stretch of a batch that failed, whose first record is at `place`."""
    named = [each for each in part.result.record_errors if part.first <= each < part.end]
    first = min(named, default=part.first)
    error = part.result.error_of(first)
    assert error is not None
    return FirstFailure(place + first - part.first, 1 if named else part.end - part.first, error)


def _range(stretch: _Stretch) -> OffsetRange:
    partition: TopicPartition = stretch.result.partition
    base, count = stretch.result.base_offset, stretch.end - stretch.first
    if base < 0:
        return OffsetRange(*partition, -1, -1, count)
    return OffsetRange(*partition, base + stretch.first, base + stretch.end, count)


def _merged(ranges: list[OffsetRange]) -> Iterator[OffsetRange]:
    current: OffsetRange | None = None
    for each in sorted(ranges):
        if current is not None and current[:2] == each[:2] and current.end == each.start:
            current = current._replace(end=each.end, record_count=current.record_count + each.record_count)
            continue
        if current is not None:
            yield current
        current = each
    if current is not None:
        yield current
