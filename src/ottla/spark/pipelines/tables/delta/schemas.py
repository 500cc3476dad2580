"""A batch's columns beside those of a Delta table: what the table lacks, and what cannot be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import deltalake
import pyarrow

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.tables.arrow_types import plain_schema


def delta_schema(schema: pyarrow.Schema) -> deltalake.Schema:
    """The columns as Delta has them; all may be null. Raises PipelineError for types that Delta lacks."""
    return deltalake.Schema.from_arrow(plain_schema(schema, _holds, "a Delta table"))


def _holds(kind: pyarrow.DataType) -> bool:
    types = pyarrow.types
    known = (types.is_signed_integer, types.is_date32, types.is_boolean, types.is_float32, types.is_float64)
    texts = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    return any(test(kind) for test in (*known, *texts))


def lacks_columns(table: deltalake.Schema, batch: deltalake.Schema, where: str) -> bool:
    """Whether the batch has columns, or fields of structs, that the table lacks.

    Raises PipelineError if a column has another type in the table, or a name that differs only in case.
    """
    return any(list(_lacking(json.loads(table.to_json()), json.loads(batch.to_json()), "", where)))


def _lacking(table: Any, batch: Any, column: str, where: str) -> Iterator[bool]:
    if isinstance(table, dict) and isinstance(batch, dict) and table["type"] == batch["type"]:
        if table["type"] == "struct":
            yield from _lacking_fields(table, batch, column, where)
        for part in ("elementType", "keyType", "valueType"):
            if part in table:
                yield from _lacking(table[part], batch[part], f"{column}.{part.removesuffix('Type')}", where)
    elif table != batch:
        raise PipelineError(
            f"column {column} is {_name(batch)} in the batch, and {_name(table)} in {where}; "
            f"cast it to {_name(table)} in the pipeline's SQL, or write to another table"
        )


def _lacking_fields(table: Any, batch: Any, column: str, where: str) -> Iterator[bool]:
    there = {each["name"]: each for each in table["fields"]}
    by_case = {name.lower(): name for name in there}
    for field in batch["fields"]:
        name = field["name"]
        path = f"{column}.{name}" if column else name
        known = by_case.get(name.lower())
        if known is None:
            yield True
        elif known != name:
            raise PipelineError(
                f"column {path} of the batch is named {known} in {where}, and Delta takes both for one name; "
                f"write it as {known} in the pipeline's SQL"
            )
        else:
            yield from _lacking(there[name]["type"], field["type"], path, where)


def _name(kind: Any) -> str:
    return kind["type"] if isinstance(kind, dict) else str(kind)


def required_columns(table: deltalake.Schema) -> list[str]:
    """Topmost columns of the table that may not be null."""
    return [each.name for each in table.fields if not each.nullable]


def keeping_required(batch: deltalake.Schema, table: deltalake.Schema) -> deltalake.Schema:
    """The batch's columns and fields, those required that are so in the table: a merge takes either side's null."""
    kept = _keeping(json.loads(batch.to_json()), json.loads(table.to_json()))
    return deltalake.Schema.from_json(json.dumps(kept))


def _keeping(batch: Any, table: Any) -> Any:
    if not isinstance(batch, dict) or not isinstance(table, dict):
        return batch
    kept = dict(batch)
    if batch["type"] == "struct":
        there = {each["name"]: each for each in table["fields"]}
        kept["fields"] = [_keeping_field(each, there.get(each["name"])) for each in batch["fields"]]
    for part in ("elementType", "keyType", "valueType"):
        if part in batch:
            kept[part] = _keeping(batch[part], table[part])
    for nulls in ("containsNull", "valueContainsNull"):
        if nulls in batch:
            kept[nulls] = table[nulls]
    return kept


def _keeping_field(batch: Any, table: Any) -> Any:
    if table is None:
        return batch
    return {**batch, "nullable": table["nullable"], "type": _keeping(batch["type"], table["type"])}
