"""A batch decoded as a whole, or in halves where something in it is bad, and at last record by record.

Decoders of whole batches fail for one bad record. The batch is then halved, around that record where they say which it
is. So all others stay fast, and the cost is bounded whatever is in a batch: a record is read at most
log2(records / ONE_BY_ONE) times with others that are bad, and once more without.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy
import pyarrow

#: So few records are read one by one where they cannot be read together.
ONE_BY_ONE = 16
#: A bad record's place is used if as many good ones stand before it; with fewer, halves are cheaper.
WORTH_A_READ = 32

#: Columns, and a reason for each record that is bad; None where all are good.
Decoded = tuple[list[pyarrow.Array], list[str | None] | None]


class ColumnFormat(ABC):
    """One format of values."""

    schema: pyarrow.Schema

    def decode(self, values: pyarrow.BinaryArray) -> Decoded:
        """Columns of `schema`, and a reason for each record that is bad; None where all are good.

        Values that are null are null in all columns, and not bad. Raises SchemaRegistryError if a schema cannot be had.
        """
        if len(values) == values.null_count:
            return [pyarrow.nulls(len(values), field.type) for field in self.schema], None
        if values.null_count == 0:
            return self._present(values)
        columns, reasons = self._present(values.drop_null())
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        places = pyarrow.array(numpy.cumsum(valid) - 1, mask=~valid)
        if reasons is not None:
            reasons = pyarrow.array(reasons, pyarrow.string()).take(places).to_pylist()
        return [column.take(places) for column in columns], reasons

    @abstractmethod
    def _present(self, values: pyarrow.BinaryArray) -> Decoded:
        """As `decode`, of at least one value, none of which is null."""


class UnreadableError(Exception):
    """A batch has records that cannot be read together; the message says why, if it is of one record.

    `place` is the first bad record, where the reader says which it is: a hint, nothing depends on it.
    """

    def __init__(self, message: str = "", place: int | None = None) -> None:
        super().__init__(message)
        self.place = place


@contextmanager
def read_together() -> Iterator[None]:
    """Turns what readers of batches raise into UnreadableError, a panic of a reader in Rust among it."""
    try:
        yield
    except (ValueError, TypeError, OverflowError, pyarrow.ArrowException) as problem:
        raise UnreadableError(str(problem)) from problem
    except BaseException as problem:
        # The class of panics can be imported from nowhere, and is no Exception.
        if type(problem).__name__ != "PanicException":
            raise
        raise UnreadableError(f"the reader panicked: {problem}") from None


def decode_in_halves(
    values: pyarrow.BinaryArray,
    together: Callable[[pyarrow.BinaryArray], list[pyarrow.Array]],
    singly: Callable[[pyarrow.BinaryArray], tuple[list[pyarrow.Array], list[str | None]]],
) -> Decoded:
    """Columns of `values`, none of which is null. `together` raises UnreadableError, `singly` takes anything."""
    decoded: list[list[pyarrow.Array]] = []
    reasons: list[str | None] = []
    any_bad = False
    # Ranges that are still to be read, the first one last.
    ranges = [(0, len(values))]
    while ranges:
        start, end = ranges.pop()
        if start == end and decoded:
            continue
        part = values.slice(start, end - start)
        try:
            decoded.append(together(part))
            reasons += [None] * (end - start)
        except UnreadableError as problem:
            place = problem.place
            if end - start > ONE_BY_ONE and place is not None and WORTH_A_READ <= place < end - start:
                bad = start + place
                # The rest in halves: a read costs what it is given, even where it ends at the next bad record.
                middle = (bad + 1 + end) // 2
                ranges += [(middle, end), (bad + 1, middle), (bad, bad + 1), (start, bad)]
                continue
            if end - start > ONE_BY_ONE:
                middle = (start + end) // 2
                ranges += [(middle, end), (start, middle)]
                continue
            columns, why = singly(part)
            decoded.append(columns)
            reasons += why
            any_bad = any_bad or any(each is not None for each in why)
    said = reasons if any_bad else None
    if len(decoded) == 1:
        return decoded[0], said
    return [pyarrow.concat_arrays(column) for column in zip(*decoded, strict=True)], said


def read_singly(
    values: pyarrow.BinaryArray,
    schema: pyarrow.Schema,
    together: Callable[[pyarrow.BinaryArray], list[pyarrow.Array]],
    wrong: str,
) -> tuple[list[pyarrow.Array], list[str | None]]:
    """Apply `together` to each value alone; nulls, and `wrong` with the error, where it raises UnreadableError."""
    good: list[list[pyarrow.Array]] = []
    places: list[int | None] = []
    reasons: list[str | None] = []
    for place in range(len(values)):
        try:
            good.append(together(values.slice(place, 1)))
            places.append(len(good) - 1)
            reasons.append(None)
        except UnreadableError as problem:
            places.append(None)
            reasons.append(f"{wrong}: {problem}")
    if not good:
        return [pyarrow.nulls(len(values), field.type) for field in schema], reasons
    order = pyarrow.array(places, pyarrow.int64())
    return [pyarrow.concat_arrays(column).take(order) for column in zip(*good, strict=True)], reasons
