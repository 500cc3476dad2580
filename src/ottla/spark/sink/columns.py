"""The columns that the sink takes, those of Spark's Kafka sink: `value`, and if present `key`, `headers`, `topic`,
`partition`; and one more, `timestamp`, which is kept as the record's own time.
"""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from ottla.spark.errors import OptionError
from ottla.spark.sink.options import WriteOptions

_ACCEPTED: dict[str, tuple[type[DataType], ...]] = {
    "key": (StringType, BinaryType),
    "value": (StringType, BinaryType),
    "headers": (ArrayType,),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "timestamp": (TimestampType,),
}
# Columns that a frame read from a topic has besides, so that it can be written as it is.
_IGNORED = frozenset({"offset", "timestampType"})


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Check that the frame's columns can be written. Raises OptionError."""
    types = {each.name: each.dataType for each in schema}
    if "value" not in types:
        raise OptionError(f"the frame has no column named value; it has {', '.join(types)}")
    if options.topic is None and "topic" not in types:
        raise OptionError("where to write to is missing; give the option topic or a column of that name")
    for name, found in types.items():
        if name in _IGNORED:
            continue
        if name not in _ACCEPTED:
            raise OptionError(f"column {name} has no place in a record; select {', '.join(_ACCEPTED)} or some of them")
        if not isinstance(found, _ACCEPTED[name]):
            wanted = " or ".join(each.typeName() for each in _ACCEPTED[name])
            raise OptionError(f"column {name} is {found.simpleString()}; cast it to {wanted}")
