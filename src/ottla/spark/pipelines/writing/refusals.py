"""Rows whose values can name no partition: which they are, and why.

Such a row is left out as a record is that does not parse: its batch is written without it, and dead letters have it, if
there are any.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Final

import pyarrow

from ottla.spark.errors import message_only
from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.tables.partition_folders import NULL_VALUE, partition_folder
from ottla.spark.versions import Versioned

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_DAY_US: Final = 86_400_000_000
_EPOCH: Final = date(1970, 1, 1).toordinal()
#: Days since 1970 of the years that dates as text can have, in all formats and their readers.
_FIRST_DAY: Final = date.min.toordinal() - _EPOCH
_LAST_DAY: Final = date.max.toordinal() - _EPOCH
#: The columns of a dead letter: where it is from, its bytes, and why it is left out.
DEAD_LETTER_TYPES: Final = (
    "source STRING, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY, "
    "reason STRING"
)


@dataclass(slots=True)
class RefusedRows:
    """Rows that were left out: how many, and why the first one was."""

    rows: int = 0
    reason: str | None = None

    def add(self, rows: int, reason: str | None) -> None:
        """Count rows."""
        self.rows += rows
        self.reason = self.reason or reason


@dataclass(frozen=True, slots=True)
class PartitionRule:
    """Values allowed in partition columns. `as_text`: readers have a value as text only, where one text means null."""

    columns: tuple[str, ...]
    as_text: bool = True

    def refusals(self, rows: pyarrow.RecordBatch) -> list[str | None]:
        """For each row why its values name no partition; None where they do."""
        found: list[str | None] = [None] * rows.num_rows
        for name in self.columns:
            for place, reason in self._of_column(name, rows.column(name)):
                found[place] = found[place] or f"partition column {name}: {reason}"
        return found

    def _of_column(self, name: str, column: pyarrow.Array) -> Iterator[tuple[int, str]]:
        types = pyarrow.types
        if types.is_date32(column.type):
            return _outside(column.cast(pyarrow.int32()), _FIRST_DAY, _LAST_DAY, "date")
        if types.is_timestamp(column.type):
            times = column.cast(pyarrow.timestamp("us", column.type.tz)).cast(pyarrow.int64())
            return _outside(times, _FIRST_DAY * _DAY_US, (_LAST_DAY + 1) * _DAY_US - 1, "time")
        if types.is_string(column.type):
            return self._of_texts(name, column)
        return iter(())

    def _of_texts(self, name: str, column: pyarrow.Array) -> Iterator[tuple[int, str]]:
        encoded = column.dictionary_encode()
        reasons = [self._of_text(name, each) for each in encoded.dictionary]
        if any(reasons):
            for place, number in enumerate(encoded.indices.to_pylist()):
                reason = None if number is None else reasons[number]
                if reason is not None:
                    yield place, reason

    def _of_text(self, name: str, value: Any) -> str | None:
        try:
            text: str = value.as_py()
        except UnicodeDecodeError:
            return "its bytes are no UTF-8"
        if self.as_text and text == NULL_VALUE:
            return f"the text {NULL_VALUE} stands for null in the names of partitions"
        try:
            partition_folder((name,), (text,))
        except PipelineError as problem:
            return str(problem).removeprefix(f"partition column {name}: ")
        return None


def _outside(values: pyarrow.Array, first: int, last: int, what: str) -> Iterator[tuple[int, str]]:
    import pyarrow.compute as pc

    outside = pc.or_(pc.less(values, first), pc.greater(values, last))
    if pc.any(outside).as_py():
        for place in pc.indices_nonzero(outside.fill_null(False)).to_pylist():
            yield place, f"a {what} outside of the years 1 to 9999"


def refused_rows(frame: DataFrame, rule: PartitionRule) -> DataFrame:
    """The refused rows of `frame` as dead letters: the row as JSON is the value, and it is of no one record."""
    from pyspark.sql import functions

    row = functions.to_json(functions.struct(*(quoted(name) for name in frame.columns))).cast("binary")
    # By place, since the frame may have any name.
    values = [quoted(name).alias(f"p{place}") for place, name in enumerate(rule.columns)]
    wanted = frame.select(*values, row.alias("row"))
    task = RefusedRowsTask(rule)
    return wanted.mapInArrow(lambda batches: task.run(batches), DEAD_LETTER_TYPES)


class RefusedRowsTask(Versioned):
    """A task that finds refused rows, given the values of partition columns and the whole row as JSON."""

    def __init__(self, rule: PartitionRule) -> None:
        self._rule = rule

    def run(self, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        """The letters."""
        with message_only():
            for batch in batches:
                named = batch.rename_columns([*self._rule.columns, "row"])
                reasons = self._rule.refusals(named)
                places = [place for place, reason in enumerate(reasons) if reason is not None]
                if places:
                    value = batch.column("row").take(pyarrow.array(places, pyarrow.int64()))
                    yield _letters(value, [reasons[place] for place in places])


def _letters(value: pyarrow.Array, reasons: Sequence[str | None]) -> pyarrow.RecordBatch:
    count = len(reasons)
    absent = {
        "source": pyarrow.string(),
        "topic": pyarrow.string(),
        "partition": pyarrow.int32(),
        "offset": pyarrow.int64(),
        "timestamp": pyarrow.timestamp("us", "UTC"),
        "key": pyarrow.binary(),
    }
    columns = {name: pyarrow.nulls(count, kind) for name, kind in absent.items()}
    columns |= {"value": value.cast(pyarrow.binary()), "reason": pyarrow.array(reasons, pyarrow.string())}
    return pyarrow.RecordBatch.from_pydict(columns)


def quoted(name: str) -> Column:
    """The column of this name, which may have any characters."""
    from pyspark.sql import functions

    return functions.col("`" + name.replace("`", "``") + "`")
