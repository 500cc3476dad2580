"""Arrow columns as plain values that can be compared: times as numbers, so that far years count, NaN equal to NaN."""

from __future__ import annotations

from typing import Any

import pyarrow


def plain(column: pyarrow.Array) -> list[Any]:
    """Values of a column: structs are dicts, maps pairs, dates days, timestamps microseconds, floats text."""
    types, kind = pyarrow.types, column.type
    if types.is_timestamp(kind):
        return list(column.cast(pyarrow.timestamp("us", kind.tz)).cast(pyarrow.int64()).to_pylist())
    if types.is_date(kind):
        return list(column.cast(pyarrow.int32()).to_pylist())
    if types.is_floating(kind):
        return [None if value is None else repr(value) for value in column.to_pylist()]
    valid = column.is_valid().to_pylist()
    if types.is_struct(kind):
        fields = [plain(child) for child in column.flatten()]
        names = [kind.field(index).name for index in range(kind.num_fields)]
        return [
            {name: field[row] for name, field in zip(names, fields, strict=True)} if there else None
            for row, there in enumerate(valid)
        ]
    if types.is_map(kind):
        pairs = list(zip(plain(column.keys), plain(column.items), strict=True))
        return _cut(pairs, column.offsets.to_pylist(), valid)
    if types.is_list(kind):
        return _cut(plain(column.values), column.offsets.to_pylist(), valid)
    return list(column.to_pylist())


def _cut(values: list[Any], offsets: list[int], valid: list[bool]) -> list[Any]:
    return [values[offsets[row] : offsets[row + 1]] if there else None for row, there in enumerate(valid)]
