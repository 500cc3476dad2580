"""Records sent many at a time: what was written and where, the first that was refused, a rate, and Ctrl-C."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ottla.cli.command import Command, CommandError
from ottla.cli.progress import Progress
from ottla.cli.terminal import count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.client.producer.bulk_future import BulkFuture
    from ottla.client.sync import Producer

#: Lists of records that are not acknowledged yet.
MOST_PENDING: Final = 64
#: Partitions that a report names.
MOST_PLACES: Final = 4
#: Records that a rate above it sends at a time are a tenth of a second's.
RATE_SLICES: Final = 10

Rate = Annotated[float | None, typer.Option(help="At most that many records a second.", min=0.01)]


class Sending:
    """Sends records, a list at a time; `written` has a row of counts and offsets for each partition.

    A record comes with its place in what it was made of, which a message names by `place`. `on_settled` gets the places
    of records whose fate is known, and the indexes of those that were not written: refused, or not handed over. They
    count in the order of the places where one partition gets all.
    """

    def __init__(
        self,
        command: Command,
        producer: Producer[Any, Any],
        rate: float | None,
        place: Callable[[Any], str] = str,
        on_settled: Callable[[Sequence[Any], Sequence[int]], None] = lambda places, left: None,
        progress: Callable[[], str] | None = None,
    ) -> None:
        self.written: dict[int, dict[str, int]] = {}
        self.progress = Progress(progress or (lambda: f"{count(self.record_count, 'record')} written"))
        self._command = command
        self._producer = producer
        self._rate = rate
        self._place = place
        self._on_settled = on_settled
        # Records that may be sent by now, by the rate.
        self._due_s = time.monotonic()
        # What was handed over and is not known to be written, with where each record stands.
        self._pending: deque[tuple[BulkFuture, Sequence[Any]]] = deque()
        self._failure = ""

    @property
    def record_count(self) -> int:
        """Records that were acknowledged."""
        return sum(row["records"] for row in self.written.values())

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Wait for all records that were sent, after an error and after Ctrl-C, too.

        Raises CommandError with the place of the first that was refused and the number of those that were written.
        """
        from ottla.client.errors import ClientError

        problem: Exception | None = None
        try:
            try:
                yield
            except (CommandError, ClientError) as error:
                problem = error
            while self._pending:
                self._settle_first()
        except KeyboardInterrupt:
            self._interrupted()
            raise
        finally:
            self.progress.clear()
        if problem is not None or self._failure:
            written = count(self.record_count, "record")
            raise CommandError(f"{self._failure or problem}; written: {written}") from problem

    def send(self, records: Sequence[Any], places: Sequence[Any]) -> None:
        """Send records. Raises CommandError for one that is refused, of these or of earlier ones; ClientError."""
        from ottla.client.errors import InvalidArgumentError, RecordTooLargeError
        from ottla.client.producer.bulk_future import BulkFuture

        size = max(1, len(records) if self._rate is None else int(self._rate / RATE_SLICES))
        for at in range(0, len(records), size):
            piece = records[at : at + size]
            self._keep_rate(len(piece))
            future = BulkFuture()
            self._pending.append((future, places[at : at + size]))
            try:
                self._producer.send_many(piece, into=future)
            except InvalidArgumentError as problem:
                raise CommandError(f"{self._place(places[at + future.count])}: {problem}") from problem
            except RecordTooLargeError as problem:
                refused = places[at + _nearest_in_size(piece, problem.size)]
                raise CommandError(f"{self._place(refused)}: {problem}") from problem
            while len(self._pending) > MOST_PENDING:
                self._settle_first()
            self.settle_done()

    def settle_done(self) -> bool:
        """Look at what is acknowledged; returns whether all is. Raises CommandError where a record was refused."""
        while self._pending and self._pending[0][0].done():
            self._settle_first()
        if self._failure:
            raise CommandError(self._failure)
        self.progress.show()
        return not self._pending

    def report_rows(self) -> list[dict[str, int]]:
        """Rows of `written` by partition."""
        return [self.written[partition] for partition in sorted(self.written)]

    def _interrupted(self) -> None:
        """Wait for what was handed over; another interrupt ends that. Input that follows a file for ever ends so."""
        self.progress.clear()
        waiting = sum(len(places) for _, places in self._pending)
        if waiting:
            self._command.report(f"waiting for {count(waiting, 'record')} that are under way; Ctrl-C again leaves them")
        try:
            while self._pending:
                self._settle_first()
        finally:
            left = sum(len(places) for _, places in self._pending)
            unknown = f", not known: {count(left, 'record')}" if left else ""
            failure = f"{self._failure}; " if self._failure else ""
            self._command.report(f"{failure}interrupted; written: {count(self.record_count, 'record')}{unknown}")

    def _keep_rate(self, records: int) -> None:
        """Wait until that many records may be sent; time without input gives no more of them."""
        if self._rate is None:
            return
        now_s = time.monotonic()
        time.sleep(max(0.0, self._due_s - now_s))
        self._due_s = max(self._due_s, now_s) + records / self._rate

    def _first_refused(self, future: BulkFuture, places: Sequence[Any]) -> str:
        """The place of the first refused record, or the first and last place where several partitions got the list."""
        first = future.first_failure()
        if first is None:
            return ""
        if future.is_in_order:
            return f"{self._place(places[first.place])}: "
        return f"a record from {self._place(places[0])} to {self._place(places[-1])}: "

    def _settle_first(self) -> None:
        """Wait for the oldest records under way; the first that is not acknowledged is kept as `_failure`."""
        from ottla.client.errors import DeliveryError

        future, places = self._pending[0]
        try:
            ranges = future.result()
            failed: list[int] = []
        except DeliveryError as problem:
            ranges = future.delivered()
            self._failure = self._failure or f"{self._first_refused(future, places)}{problem}"
            failed = future.failed_places()
        self._pending.popleft()
        self._on_settled(places, [*failed, *range(future.count, len(places))])
        for each in ranges:
            row = self.written.setdefault(
                each.partition,
                {"partition": each.partition, "records": 0, "first_offset": each.start, "last_offset": -1},
            )
            row["records"] += each.record_count
            row["last_offset"] = max(row["last_offset"], each.end - 1)
            row["first_offset"] = min(row["first_offset"], each.start)


def _nearest_in_size(records: Sequence[Any], size: int) -> int:
    """The index of the record that a batch of this size is of; records with keys go to several partitions."""

    def distance(at: int) -> int:
        record = records[at]
        held = [record.key, record.value, *(value for _, value in record.headers)]
        return abs(size - sum(len(each) for each in held if each is not None))

    return min(range(len(records)), key=distance)


def places_of(rows: Sequence[Mapping[str, int]]) -> str:
    """`: partition 0 offsets 0 to 3` and so on; empty where there are many partitions, or none."""
    return f": {', '.join(map(_place, rows))}" if 0 < len(rows) <= MOST_PLACES else ""


def _place(row: Mapping[str, int]) -> str:
    first, last = row["first_offset"], row["last_offset"]
    if first < 0:
        return f"partition {row['partition']}"
    return f"partition {row['partition']} offset{f's {first} to {last}' if last > first else f' {first}'}"
