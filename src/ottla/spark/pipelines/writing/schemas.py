"""The Arrow schema in which rows of Spark's are written to Parquet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow

from ottla.spark.pipelines.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType


def arrow_schema(frame: DataFrame) -> pyarrow.Schema:
    """The schema of files with the rows of `frame`, partition columns included; see `arrow_schema_of`."""
    return arrow_schema_of(frame.schema)


def arrow_schema_of(schema: StructType) -> pyarrow.Schema:
    """The same for a schema of Spark's: every field may be null, times are microseconds, those with a zone in UTC.

    Raises PipelineError for columns that Parquet cannot hold, or two that have one name in any case.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    _check_names(schema)
    for field in schema:
        _check_type(field.name, field.dataType)
    made = to_arrow_schema(schema, timezone="UTC")
    return pyarrow.schema([_as_written(each) for each in made])


def _check_names(schema: StructType) -> None:
    taken: set[str] = set()
    for name in schema.names:
        if name.lower() in taken:
            raise PipelineError(f"two columns have the name {name}; give one of them another name in the SQL, with AS")
        taken.add(name.lower())


def _check_type(name: str, kind: DataType) -> None:
    from pyspark.sql import types

    cure = {
        "NullType": "cast it to the type meant",
        "DayTimeIntervalType": "cast it to a number of seconds",
        "YearMonthIntervalType": "cast it to a number of months",
        "CalendarIntervalType": "leave it out",
        "VariantType": "cast it to a type, or to_json it",
        "GeometryType": "take its bytes with ST_AsBinary",
        "GeographyType": "take its bytes with ST_AsBinary",
    }.get(type(kind).__name__)
    if cure is not None:
        raise PipelineError(f"column {name} is of type {kind.simpleString()}, which files cannot hold; {cure}")
    if isinstance(kind, types.StructType):
        for field in kind:
            _check_type(f"{name}.{field.name}", field.dataType)
    elif isinstance(kind, types.ArrayType):
        _check_type(f"{name}.element", kind.elementType)
    elif isinstance(kind, types.MapType):
        _check_type(f"{name}.key", kind.keyType)
        _check_type(f"{name}.value", kind.valueType)


def _as_written(field: pyarrow.Field) -> pyarrow.Field:
    return pyarrow.field(field.name, _type_as_written(field.type), nullable=True)


def _type_as_written(kind: pyarrow.DataType) -> pyarrow.DataType:
    types = pyarrow.types
    if types.is_struct(kind):
        return pyarrow.struct([_as_written(each) for each in kind])
    if types.is_map(kind):
        key = pyarrow.field("key", _type_as_written(kind.key_type), nullable=False)
        return pyarrow.map_(key, pyarrow.field("value", _type_as_written(kind.item_type)))
    if types.is_list(kind):
        return pyarrow.list_(pyarrow.field("element", _type_as_written(kind.value_type)))
    return pyarrow.time64("us") if types.is_time(kind) else kind
