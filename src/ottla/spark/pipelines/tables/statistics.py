"""Column statistics from the footers of Parquet files, by which readers leave files out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow
import pyarrow.parquet

from ottla.spark.pipelines.errors import PipelineError


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """A column of a file: `path` from its topmost name, `nulls` None where the footer does not say.

    `minimum` and `maximum` are Python values of `type`; both None where the footer does not have them for each row
    group that has values. NaN is never among them (Parquet leaves it out). Of a column below a list or a map, which is
    `repeated`, counts are of elements.
    """

    path: tuple[str, ...]
    type: pyarrow.DataType
    repeated: bool
    nulls: int | None
    minimum: Any
    maximum: Any


def read_footer(footer: bytes) -> pyarrow.parquet.FileMetaData:
    """The metadata that `FileMetaData.write_metadata_file` wrote. Raises pyarrow's ArrowInvalid."""
    import io

    return pyarrow.parquet.read_metadata(io.BytesIO(footer))


def column_statistics(footer: bytes) -> list[ColumnStatistics]:
    """The statistics of each leaf column, in the file's order."""
    metadata = read_footer(footer)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    leaves = _leaves(metadata.schema.to_arrow_schema())
    return [
        _of_column(path, kind, repeated, [each.column(number) for each in groups])
        for number, (path, kind, repeated) in enumerate(leaves)
    ]


def _leaves(fields: Any) -> Iterator[tuple[tuple[str, ...], pyarrow.DataType, bool]]:
    for field in fields:
        yield from _leaves_of((field.name,), field.type, False)


def _leaves_of(
    path: tuple[str, ...], kind: pyarrow.DataType, repeated: bool
) -> Iterator[tuple[tuple[str, ...], pyarrow.DataType, bool]]:
    types = pyarrow.types
    if types.is_struct(kind):
        for field in kind:
            yield from _leaves_of((*path, field.name), field.type, repeated)
    elif types.is_map(kind):
        yield from _leaves_of((*path, "key"), kind.key_type, True)
        yield from _leaves_of((*path, "value"), kind.item_type, True)
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        yield from _leaves_of((*path, "element"), kind.value_type, True)
    else:
        yield path, kind, repeated


def _of_column(path: tuple[str, ...], kind: pyarrow.DataType, repeated: bool, chunks: list[Any]) -> ColumnStatistics:
    nulls: int | None = 0
    bounds: list[tuple[Any, Any]] = []
    complete = True
    for chunk in chunks:
        found = chunk.statistics
        if found is None or not found.has_null_count:
            nulls = None
        elif nulls is not None:
            nulls += found.null_count
        only_nulls = found is not None and found.has_null_count and found.null_count == chunk.num_values
        if only_nulls:
            continue
        pair = None if found is None or not found.has_min_max else _bounds(found)
        if pair is None:
            complete = False
        else:
            bounds.append(pair)
    if not complete or not bounds:
        return ColumnStatistics(path, kind, repeated, nulls, None, None)
    return ColumnStatistics(path, kind, repeated, nulls, min(low for low, _ in bounds), max(high for _, high in bounds))


def _bounds(found: Any) -> tuple[Any, Any] | None:
    """The least and the greatest value; None where Python cannot hold them (a year beyond 9999)."""
    try:
        return found.min, found.max
    except (OverflowError, ValueError, NotImplementedError):
        return None


#: Longer texts are cut in statistics, as Delta's own writer does.
TEXT_BOUND_LENGTH = 32
_LAST_CODE_POINT = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


def lower_bound(text: str) -> str:
    """A short text that is not after `text` in the order of code points."""
    return text[:TEXT_BOUND_LENGTH]


def upper_bound(text: str) -> str | None:
    """A short text that is not before `text` in the order of code points; None if there is none."""
    if len(text) <= TEXT_BOUND_LENGTH:
        return text
    kept = text[:TEXT_BOUND_LENGTH]
    while kept:
        last = ord(kept[-1]) + 1
        if last in _SURROGATES:
            last = _SURROGATES.stop
        if last <= _LAST_CODE_POINT:
            return kept[:-1] + chr(last)
        kept = kept[:-1]
    return None


def check_required(
    required: Sequence[str], columns: Sequence[ColumnStatistics], partition: Mapping[str, str | None]
) -> None:
    """Raises PipelineError if a `required` column has nulls, or is not there; `partition` has values by column."""
    nulls = {each.path[0]: each.nulls for each in columns if len(each.path) == 1}
    for name in required:
        found = int(partition[name] is None) if name in partition else nulls.get(name)
        if found != 0:
            raise PipelineError(
                f"column {name} may not be null in the table, and has nulls in the batch; filter them in the "
                "pipeline's SQL, or let the table's column be null"
            )
