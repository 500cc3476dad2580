"""Staged files as Delta's add actions, with the statistics by which readers leave files out.

Source: Delta's protocol (PROTOCOL.md), "Per-file Statistics", "Partition Value Serialization".
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow
from deltalake.transaction import AddAction, RemoveAction

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.tables.arrow_types import partition_value
from ottla.spark.pipelines.tables.contract import BatchCommit
from ottla.spark.pipelines.tables.log_table import Replacement
from ottla.spark.pipelines.tables.statistics import (
    ColumnStatistics,
    check_required,
    column_statistics,
    lower_bound,
    upper_bound,
)

#: Columns with statistics, as Delta's own default has it.
_INDEXED_COLUMNS: Final = 32
_COLUMNS_KEY: Final = "delta.dataSkippingNumIndexedCols"


def add_actions(
    batch: BatchCommit,
    folder: str,
    partition_by: Sequence[str],
    required: Sequence[str],
    configuration: Mapping[str, str],
    now_ms: int,
) -> list[AddAction]:
    """The batch's files, in `folder` of the table. Raises PipelineError if a `required` column has nulls."""
    types = [batch.schema.field(name).type for name in partition_by]
    for name, kind in zip(partition_by, types, strict=True):
        check_partition_type(name, kind)
    made = []
    for file in batch.files:
        texts = [
            partition_text(partition_value(text, kind, name))
            for name, kind, text in zip(partition_by, types, file.partition, strict=True)
        ]
        columns = column_statistics(file.footer)
        values = dict(zip(partition_by, texts, strict=True))
        check_required(required, columns, values)
        stats = file_statistics(file.rows, columns, indexed_columns(configuration), partition_by)
        made.append(AddAction(f"{folder}/{file.path}", file.size_bytes, values, now_ms, True, stats))
    return made


def replacements(made: Sequence[Replacement], configuration: Mapping[str, str]) -> list[AddAction | RemoveAction]:
    """New files in the place of old ones; no rows change."""
    now_ms = time.time_ns() // 1_000_000
    actions: list[AddAction | RemoveAction] = []
    for each in made:
        values = dict(each.partition)
        columns = column_statistics(each.made.footer)
        stats = file_statistics(each.made.rows, columns, indexed_columns(configuration), tuple(values))
        actions += [RemoveAction(old.name, False, now_ms, old.size_bytes, values) for old in each.files]
        actions.append(AddAction(each.name, each.made.size_bytes, values, now_ms, False, stats))
    return actions


def indexed_columns(configuration: Mapping[str, str]) -> int | None:
    """How many columns have statistics, by the table's configuration; None for all."""
    try:
        limit = int(configuration.get(_COLUMNS_KEY) or _INDEXED_COLUMNS)
    except ValueError:
        limit = _INDEXED_COLUMNS
    return limit if limit >= 0 else None


def check_partition_type(name: str, kind: pyarrow.DataType) -> None:
    """Refuse a partition column whose values deltalake does not keep. Raises PipelineError."""
    types = pyarrow.types
    known = (types.is_string, types.is_large_string, types.is_integer, types.is_boolean, types.is_date)
    # Decimals are left out: deltalake 1.6 writes -1.50 as -1.-50 into the log when it compacts.
    if not any(test(kind) for test in (*known, types.is_timestamp)):
        raise PipelineError(
            f"partition column {name} is of type {kind}; a Delta table is partitioned by text, whole numbers, dates, "
            "timestamps or booleans, so cast it in the pipeline's SQL"
        )


def partition_text(value: Any) -> str | None:
    """A partition value as Delta writes it; an empty text is null there, as the protocol has it."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return _time(value).replace("T", " ") if value.tzinfo is None else _time(value)
    return value.isoformat() if isinstance(value, date) else str(value)


def file_statistics(
    rows: int, columns: Sequence[ColumnStatistics], limit: int | None, partition_by: Sequence[str]
) -> str:
    """A file's statistics as JSON: rows, and for the first `limit` columns the bounds and nulls that are known."""
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    kept = [each for each in columns if not each.repeated and each.path[0] not in partition_by]
    for each in kept[:limit]:
        low, high = _bounds(each)
        for target, value in ((lows, low), (highs, high), (nulls, each.nulls)):
            if value is not None:
                _put(target, each.path, value)
    return _json({"numRecords": rows, "minValues": lows, "maxValues": highs, "nullCount": nulls})


def _put(target: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for name in path[:-1]:
        target = target.setdefault(name, {})
    target[path[-1]] = value


def _bounds(column: ColumnStatistics) -> tuple[Any, Any]:
    low, high = column.minimum, column.maximum
    if low is None or isinstance(low, bool | bytes):
        return None, None
    if isinstance(low, str):
        return lower_bound(low), upper_bound(high)
    if isinstance(low, float):
        # NaN is not in Parquet's bounds, and after all numbers in Spark's order: only the lower one is sure.
        return (low if math.isfinite(low) else None), None
    return low, high


def _json(value: Any) -> str:
    """JSON with all the digits of decimals."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)}: {_json(each)}" for name, each in value.items()) + "}"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return json.dumps(_time(value))
    return json.dumps(value.isoformat() if isinstance(value, date) else value)


def _time(value: datetime) -> str:
    """A time with microseconds; one with a zone as UTC."""
    if value.tzinfo is None:
        return value.isoformat(timespec="microseconds")
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
