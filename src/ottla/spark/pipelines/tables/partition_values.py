"""The values of partition columns, from the text that tasks write."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ottla.spark.pipelines.errors import PipelineError

if TYPE_CHECKING:
    import pyarrow


def partition_value(text: str | None, kind: pyarrow.DataType, column: str) -> Any:
    """The Python value of a partition column that a task wrote as text. Raises PipelineError if it is none."""
    import pyarrow

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
