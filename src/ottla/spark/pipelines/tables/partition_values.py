"""The values of partition columns: from the text that tasks write, and whether rows can still come for them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.pipelines.errors import PipelineError

if TYPE_CHECKING:
    import pyarrow

#: A day of a zone west of UTC ends up to this much later than that of UTC.
_ZONES: Final = timedelta(hours=12)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


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


def is_closed(values: Sequence[Any], watermark_ms: int | None) -> bool:
    """Whether the watermark has passed a date or a time among the values (as Python values, or ISO text)."""
    if watermark_ms is None:
        return False
    watermark = datetime.fromtimestamp(watermark_ms / 1000, UTC)
    return any((end := _end(value)) is not None and end <= watermark for value in values)


def has_time(values: Sequence[Any]) -> bool:
    """Whether there is a date or a time among the values, so that a watermark can pass them."""
    return any(_end(value) is not None for value in values)


def _end(value: Any) -> datetime | None:
    """When the last row with this value can have happened; None for values that are no time."""
    if isinstance(value, str) and _DAY.fullmatch(value):
        try:
            value = date.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC) + _ZONES
    if isinstance(value, date):
        if value == date.max:
            return None
        return datetime.combine(value + timedelta(days=1), time(), UTC) + _ZONES
    return None
