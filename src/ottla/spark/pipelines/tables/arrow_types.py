"""Arrow schemas and partition values as table formats take them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow

from ottla.spark.pipelines.errors import PipelineError

_MAX_PRECISION: Final = 38


def plain_schema(schema: pyarrow.Schema, holds: Callable[[pyarrow.DataType], bool], where: str) -> pyarrow.Schema:
    """The columns, all of which may be null, times in microseconds, and zones as UTC, without metadata.

    Nested types, times with a date and decimals are known to all; `holds` tells of the others whether `where` has
    them. Raises PipelineError for those that it has not.
    """
    return pyarrow.schema([pyarrow.field(each.name, _plain(each.name, each.type, holds, where)) for each in schema])


def _plain(
    column: str, kind: pyarrow.DataType, holds: Callable[[pyarrow.DataType], bool], where: str
) -> pyarrow.DataType:
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


def partition_value(text: str | None, kind: pyarrow.DataType, column: str) -> Any:
    """The Python value of a partition column that a task wrote as text. Raises PipelineError if it is none."""
    if text is None:
        return None
    if pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind):
        return text
    try:
        if pyarrow.types.is_timestamp(kind):
            value = datetime.fromisoformat(text)
            return value.replace(tzinfo=value.tzinfo or UTC) if kind.tz else value
        return pyarrow.scalar(text).cast(kind).as_py()
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError, ValueError) as error:
        raise PipelineError(
            f"partition column {column} has the value {text!r}, which is no {kind}; partition by a column of text, "
            "whole numbers, dates, timestamps, decimals or booleans"
        ) from error
