"""Arrow schemas as table formats take them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.spark.pipelines.errors import PipelineError

if TYPE_CHECKING:
    import pyarrow

_MAX_PRECISION: Final = 38


def plain_schema(schema: pyarrow.Schema, holds: Callable[[pyarrow.DataType], bool], where: str) -> pyarrow.Schema:
    """The columns, all of which may be null, times in microseconds, and zones as UTC, without metadata.

    Nested types, times with a date and decimals are known to all; `holds` tells of the others whether `where` has
    them. Raises PipelineError for those that it has not.
    """
    import pyarrow

    return pyarrow.schema([pyarrow.field(each.name, _plain(each.name, each.type, holds, where)) for each in schema])


def _plain(
    column: str, kind: pyarrow.DataType, holds: Callable[[pyarrow.DataType], bool], where: str
) -> pyarrow.DataType:
    import pyarrow

    types = pyarrow.types
    if types.is_struct(kind):
        return pyarrow.struct([(each.name, _plain(f"{column}.{each.name}", each.type, holds, where)) for each in kind])
    if types.is_map(kind):
        key = pyarrow.field("key", _plain(f"{column}.key", kind.key_type, holds, where), nullable=False)
        return pyarrow.map_(key, pyarrow.field("value", _plain(f"{column}.value", kind.item_type, holds, where)))
    if types.is_list(kind) or types.is_large_list(kind):
        return pyarrow.list_(pyarrow.field("element", _plain(f"{column}.element", kind.value_type, holds, where)))
    if types.is_timestamp(kind) and kind.unit in ("us", "ms"):
        return pyarrow.timestamp("us", "UTC" if kind.tz else None)
    if holds(kind) or (types.is_decimal128(kind) and kind.precision <= _MAX_PRECISION):
        return kind
    raise PipelineError(f"column {column} is of type {kind}, which {where} cannot hold; cast it in the pipeline's SQL")
