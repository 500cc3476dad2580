"""A batch's columns beside those of an Iceberg table: what the table lacks, and what cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import pyarrow
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import ListType, MapType, StructType

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.tables.arrow_types import plain_schema


def iceberg_schema(schema: pyarrow.Schema) -> Schema:
    """The columns as Iceberg has them, with numbers of their own; all may be null.

    Raises PipelineError for types that Iceberg lacks.
    """
    numbers = count(1)
    plain = plain_schema(schema, _holds, "an Iceberg table")
    return pyarrow_to_schema(pyarrow.schema([_numbered(each, numbers) for each in plain]))


def _holds(kind: pyarrow.DataType) -> bool:
    types = pyarrow.types
    numbers = (types.is_signed_integer, types.is_float32, types.is_float64, types.is_boolean)
    texts = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    return any(test(kind) for test in (*numbers, *texts, types.is_date32)) or kind == pyarrow.time64("us")


def _numbered(field: pyarrow.Field, numbers: Any) -> pyarrow.Field:
    """The field and those in it with numbers, as Parquet's field ids stand in Arrow's metadata."""
    number = next(numbers)
    kind, types = field.type, pyarrow.types
    if types.is_struct(kind):
        kind = pyarrow.struct([_numbered(each, numbers) for each in kind])
    elif types.is_map(kind):
        kind = pyarrow.map_(_numbered(kind.key_field, numbers), _numbered(kind.item_field, numbers))
    elif types.is_list(kind):
        kind = pyarrow.list_(_numbered(kind.value_field, numbers))
    return pyarrow.field(field.name, kind, field.nullable, {"PARQUET:field_id": str(number)})


def partition_spec(schema: Schema, partition_by: Sequence[str]) -> PartitionSpec:
    """Partitions by these columns as they are. Raises PipelineError if the batch lacks one."""
    for name in partition_by:
        if name not in schema.column_names:
            raise PipelineError(f"partition_by names {name}, which the rows lack; select it in the pipeline's SQL")
    return PartitionSpec(
        *(
            PartitionField(
                schema.find_field(name).field_id, PARTITION_FIELD_ID_START + number, IdentityTransform(), name
            )
            for number, name in enumerate(partition_by)
        )
    )


def lacks_columns(table: Schema, batch: Schema, where: str) -> bool:
    """Whether the batch has columns, or fields of structs, that the table lacks.

    Raises PipelineError if a column has another type in the table, or a name that differs only in case.
    """
    return _lacks(table.as_struct(), batch.as_struct(), "", where)


def _lacks(table: Any, batch: Any, column: str, where: str) -> bool:
    if isinstance(table, StructType) and isinstance(batch, StructType):
        return _lacks_fields(table, batch, column, where)
    if isinstance(table, ListType) and isinstance(batch, ListType):
        return _lacks(table.element_type, batch.element_type, f"{column}.element", where)
    if isinstance(table, MapType) and isinstance(batch, MapType):
        keys = _lacks(table.key_type, batch.key_type, f"{column}.key", where)
        return _lacks(table.value_type, batch.value_type, f"{column}.value", where) or keys
    if table != batch:
        names = [str(each).partition("<")[0] for each in (batch, table)]
        raise PipelineError(
            f"column {column} is {names[0]} in the batch, and {names[1]} in {where}; "
            f"cast it to {names[1]} in the pipeline's SQL, or write to another table"
        )
    return False


def _lacks_fields(table: Any, batch: Any, column: str, where: str) -> bool:
    there = {each.name: each for each in table.fields}
    by_case = {name.lower(): name for name in there}
    lacks = False
    for field in batch.fields:
        path = f"{column}.{field.name}" if column else field.name
        known = by_case.get(field.name.lower())
        if known is None:
            lacks = True
        elif field.name not in there:
            raise PipelineError(
                f"column {path} of the batch is named {known} in {where}, and Spark takes both for one name; "
                f"write it as {known} in the pipeline's SQL"
            )
        elif _lacks(there[field.name].field_type, field.field_type, path, where):
            lacks = True
    return lacks


def required_columns(table: Schema) -> list[str]:
    """Topmost columns of the table that may not be null."""
    return [each.name for each in table.fields if each.required]


def keeping_required(batch: Schema, table: Schema) -> Schema:
    """The batch's columns and fields, those required that are so in the table, so that a union does not change that."""
    return Schema(*_keeping(batch.as_struct(), table.as_struct()).fields)


def _keeping(batch: Any, table: Any) -> Any:
    if isinstance(batch, StructType) and isinstance(table, StructType):
        there = {each.name: each for each in table.fields}
        return StructType(*(_keeping_field(each, there.get(each.name)) for each in batch.fields))
    if isinstance(batch, ListType) and isinstance(table, ListType):
        element = _keeping(batch.element_type, table.element_type)
        return ListType(batch.element_id, element, table.element_required)
    if isinstance(batch, MapType) and isinstance(table, MapType):
        value = _keeping(batch.value_type, table.value_type)
        return MapType(batch.key_id, batch.key_type, batch.value_id, value, table.value_required)
    return batch


def _keeping_field(batch: Any, table: Any) -> Any:
    if table is None:
        return batch
    kept = _keeping(batch.field_type, table.field_type)
    return batch.model_copy(update={"required": table.required, "field_type": kept})
