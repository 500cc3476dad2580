"""Rows split by the values of partition columns, a whole batch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.tables.contract import Staging
from ottla.spark.pipelines.writing.refusals import PartitionRule, RefusedRows

#: The values of partition columns as text, None for null.
PartitionValues = tuple[str | None, ...]


def rule_of(staging: Staging) -> PartitionRule:
    """Return the rule for the partition columns of files there."""
    return PartitionRule(staging.partition_by, as_text=not staging.keep_partition_columns)


def split(
    batch: pyarrow.RecordBatch, rule: PartitionRule, refused: RefusedRows | None = None
) -> Iterator[tuple[PartitionValues, pyarrow.RecordBatch]]:
    """The rows of each combination of values that the batch has, in the batch's order, with all columns.

    Rows whose values name no partition are counted in `refused`. Raises PipelineError for them where it is None.
    """
    import pyarrow.compute as pc

    columns = rule.columns
    if not columns or not batch.num_rows:
        if batch.num_rows:
            yield (), batch
        return
    codes = _codes([batch.column(name) for name in columns])
    order = pc.sort_indices(codes)
    ends = pc.run_end_encode(codes.take(order)).run_ends.to_pylist()
    starts = [0, *ends[:-1]]
    firsts = batch.take(order.take(starts))
    reasons = rule.refusals(firsts)
    values = iter(values_as_text(firsts.filter(pyarrow.array([each is None for each in reasons])), columns))
    for start, end, reason in zip(starts, ends, reasons, strict=True):
        if reason is None:
            yield next(values), batch if len(ends) == 1 else batch.take(order.slice(start, end - start))
        elif refused is None:
            raise PipelineError(reason)
        else:
            refused.add(end - start, reason)


def _codes(columns: Sequence[pyarrow.Array]) -> pyarrow.Array:
    """A number for each row, the same for rows that have the same values."""
    import pyarrow.compute as pc

    codes: pyarrow.Array | None = None
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        of_column = encoded.indices.cast(pyarrow.int64())
        if codes is None:
            codes = of_column
            continue
        # Renumbered after each column, so that the product never exceeds the square of the rows.
        both = pc.add(pc.multiply(codes, len(encoded.dictionary)), of_column)
        codes = both.dictionary_encode().indices.cast(pyarrow.int64())
    return codes


def values_as_text(rows: pyarrow.RecordBatch, columns: Sequence[str]) -> list[PartitionValues]:
    """The values of these columns as text, by row: as Delta's protocol has them, times in UTC with microseconds."""
    return list(zip(*(_text(rows.column(name)) for name in columns), strict=True))


def _text(column: pyarrow.Array) -> list[str | None]:
    kind = column.type
    if pyarrow.types.is_decimal(kind):  # Arrow writes small ones with an exponent.
        return [None if each is None else format(each, "f") for each in column.to_pylist()]
    if pyarrow.types.is_timestamp(kind):
        column = column.cast(pyarrow.timestamp("us"))
    found: list[str | None] = column.cast(pyarrow.string()).to_pylist()
    return found


def check_partition_columns(schema: pyarrow.Schema, columns: Sequence[str]) -> None:
    """Refuse columns that are not there, or whose values have no one text. Raises PipelineError."""
    types = pyarrow.types
    for name in columns:
        if name not in schema.names:
            raise PipelineError(f"partition_by names {name}, which the rows lack; they have {', '.join(schema.names)}")
        kind = schema.field(name).type
        tests = (types.is_string, types.is_integer, types.is_boolean, types.is_date, types.is_decimal)
        if not any(test(kind) for test in tests) and not types.is_timestamp(kind):
            raise PipelineError(
                f"partition_by names {name}, a {kind}; partition by texts, whole numbers, decimals, booleans, dates or "
                "timestamps, or cast it in the SQL"
            )
    if len(columns) == len(schema.names):
        raise PipelineError("partition_by names all columns; leave one at least for the files")
