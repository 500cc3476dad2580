"""The columns of a read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.spark.errors import OptionError
from ottla.spark.options import SparkOptions
from ottla.spark.source.options import COLUMN_OPTIONS, ReadOptions, parse_columns, parse_decoding

_COLUMNS = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
if TYPE_CHECKING:
    from ottla.spark.decoding import DecodingOptions

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])


def source_schema(
    *, include_headers: bool, columns: Sequence[str] | None = None, decoding: DecodingOptions | None = None
) -> StructType:
    """The columns of Spark's Kafka source, decoded ones in the place of `value`; `headers`, if wanted, come last.

    `columns` chooses some of them, in its order; names are compared without regard to case. Raises OptionError.
    """
    fields: list[StructField] = []
    for field in _COLUMNS:
        fields.extend([field] if field.name != "value" or decoding is None else _decoded(decoding))
    if include_headers or (columns is not None and any(each.lower() == "headers" for each in columns)):
        fields.append(StructField("headers", ArrayType(_HEADER)))
    if columns is None:
        return StructType(fields)
    by_name = {field.name.lower(): field for field in fields}
    unknown = [each for each in columns if each.lower() not in by_name]
    if unknown:
        there = ", ".join(field.name for field in fields)
        raise OptionError(f"option columns: there is no column {', '.join(unknown)}; there are {there}")
    return StructType([by_name[each.lower()] for each in columns])


def _decoded(decoding: DecodingOptions) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    from ottla.spark.decoding import decoder

    return from_arrow_schema(decoder(decoding).fields)


def parse_schema_options(options: Mapping[str, str]) -> StructType:
    """The columns that options ask for, whatever else they say. Raises OptionError."""
    names = {name.lower() for name in COLUMN_OPTIONS}
    checked = SparkOptions({name: value for name, value in options.items() if name.lower() in names}, names, "reading")
    return source_schema(
        include_headers=checked.boolean("includeHeaders", default=False),
        columns=parse_columns(checked),
        decoding=parse_decoding(options),
    )


def read_schema(options: ReadOptions) -> StructType:
    """The columns of a read."""
    return source_schema(include_headers=options.include_headers, columns=options.columns, decoding=options.decoding)


def check_schema(schema: StructType, options: ReadOptions) -> None:
    """Check that a schema given by the user is the one there is. Raises OptionError."""
    expected = read_schema(options)
    if [(each.name, each.dataType) for each in schema] != [(each.name, each.dataType) for each in expected]:
        raise OptionError(
            f"the source has a fixed schema, {expected.simpleString()}; leave .schema(...) out, choose columns with "
            "the option columns, and cast them"
        )
