"""A stream of ranges of offsets in place of records: what Spark plans is the same, and records never pass the JVM.

It is read with the options of `format("ottla")`. Each row is one partition's part of a batch; a task that gets it reads
the records itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from ottla.spark.errors import OptionError
from ottla.spark.source.options import parse_read_options
from ottla.spark.source.planning import PartitionRange
from ottla.spark.source.refusing import RefusingStreamReader
from ottla.spark.source.stream import StreamReader
from ottla.spark.versions import Versioned

if TYPE_CHECKING:
    import pyarrow

RANGES = "ottla-ranges"
"""The name of the format."""

SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("start", LongType()),
        StructField("end", LongType()),
    ]
)


class RangeSource(Versioned, DataSource):
    """The format of this module, for sessions that register it."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return RANGES

    def schema(self) -> StructType:
        """The columns: topic, partition, first offset, offset after the last."""
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For `spark.readStream`; wrong options give a reader that refuses."""
        try:
            return RangeReader(parse_read_options(self.options, streaming=True))
        except OptionError as refusal:
            return RefusingStreamReader(refusal)


class RangeReader(StreamReader):
    """Plans as the reader of records does."""

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """The range itself, as one row."""
        import pyarrow

        if isinstance(partition, PartitionRange):  # Spark makes up one partition where the plan has none.
            row = {"topic": partition.topic, "start": partition.start, "end": partition.end}
            row["partition"] = partition.partition
            types = {"topic": pyarrow.string(), "partition": pyarrow.int32()}
            fields = [(name, types.get(name, pyarrow.int64())) for name in SCHEMA.names]
            yield pyarrow.RecordBatch.from_pylist([row], schema=pyarrow.schema(fields))
