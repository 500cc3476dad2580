"""Expressions of SQL that give in pyarrow what they give in Spark, computed on whole batches.

There are few, since each must be equal in every case: nulls, NaN, overflow. They are picklable and travel to tasks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow


class Expression(Protocol):
    """A value for each row."""

    @property
    def type(self) -> pyarrow.DataType:
        """The type of the values."""
        ...

    @property
    def can_fail(self) -> bool:
        """Whether some values make it raise."""
        ...

    @property
    def columns(self) -> frozenset[str]:
        """The top-level columns that it reads."""
        ...

    def of(self, batch: pyarrow.RecordBatch) -> Any:
        """The values: an array as long as the batch, or a scalar that stands for all rows."""
        ...


@dataclass(frozen=True, slots=True)
class ColumnReference:
    """A column, or with more than one name in `path` a field of a struct."""

    path: tuple[str, ...]
    type: pyarrow.DataType

    can_fail = False

    @property
    def columns(self) -> frozenset[str]:
        """Its column."""
        return frozenset(self.path[:1])

    def of(self, batch: pyarrow.RecordBatch) -> Any:
        """The column as it is."""
        import pyarrow.compute as pc

        found = batch.column(self.path[0])
        return pc.struct_field(found, list(self.path[1:])) if len(self.path) > 1 else found


@dataclass(frozen=True, slots=True)
class Literal:
    """The same value in each row."""

    value: Any
    type: pyarrow.DataType

    can_fail = False
    columns: frozenset[str] = frozenset()

    def of(self, batch: pyarrow.RecordBatch) -> Any:
        """A scalar."""
        return pyarrow.scalar(self.value, self.type)


@dataclass(frozen=True, slots=True)
class Cast:
    """A value in another type. Where `checked`, one that does not fit raises; else it wraps around."""

    operand: Expression
    type: pyarrow.DataType
    checked: bool = False

    @property
    def can_fail(self) -> bool:
        """Whether it is checked, or its operand is."""
        return self.checked or self.operand.can_fail

    @property
    def columns(self) -> frozenset[str]:
        """The operand's columns."""
        return self.operand.columns

    def of(self, batch: pyarrow.RecordBatch) -> Any:
        """The operand's values, cast."""
        return self.operand.of(batch).cast(self.type, safe=self.checked)


@dataclass(frozen=True, slots=True)
class Call:
    """A function of `pyarrow.compute` that gives Spark's values for these types."""

    function: str
    operands: tuple[Expression, ...]
    type: pyarrow.DataType
    checked: bool = False

    @property
    def can_fail(self) -> bool:
        """Whether it is checked, or an operand can fail."""
        return self.checked or any(each.can_fail for each in self.operands)

    @property
    def columns(self) -> frozenset[str]:
        """The columns of all operands."""
        return frozenset().union(*(each.columns for each in self.operands))

    def of(self, batch: pyarrow.RecordBatch) -> Any:
        """Apply the function."""
        import pyarrow.compute as pc

        return pc.call_function(self.function, [each.of(batch) for each in self.operands])


@dataclass(frozen=True, slots=True)
class OneSelect:
    """The rows to keep, and the columns to make of them: one SELECT after all of a pipeline's are put into one."""

    where: tuple[Expression, ...]
    names: tuple[str, ...]
    outputs: tuple[Expression, ...]

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the source that are needed."""
        return frozenset().union(*(each.columns for each in (*self.where, *self.outputs)))

    def kept(self, batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        """The rows for which all conditions are true; a condition that is null keeps no row."""
        for condition in self.where:
            if not batch.num_rows:
                break
            batch = batch.filter(as_array(condition.of(batch), batch.num_rows))
        return batch

    def selected(self, batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        """The columns. Raises ArrowInvalid where Spark raises: a value that a checked cast or sum cannot hold."""
        columns = [as_array(each.of(batch), batch.num_rows) for each in self.outputs]
        return pyarrow.RecordBatch.from_arrays(columns, names=list(self.names))


def as_array(values: Any, rows: int) -> pyarrow.Array:
    """An array with a value for each row, also of a scalar."""
    return pyarrow.repeat(values, rows) if isinstance(values, pyarrow.Scalar) else values
