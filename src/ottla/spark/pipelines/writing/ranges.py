"""The source of the fast path: the same stream as `format("ottla")`, but a row for each range of offsets, no records.

Planning, offsets in the checkpoint, admission, loss of data and commits to the group are those of `StreamReader`, so a
query can continue with either source after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from ottla.spark.errors import OptionError
from ottla.spark.source.offsets import by_partition
from ottla.spark.source.options import ReadOptions, parse_read_options
from ottla.spark.source.planning import PartitionRange
from ottla.spark.source.refusing import RefusingStreamReader
from ottla.spark.source.stream import StreamReader
from ottla.spark.versions import Versioned

if TYPE_CHECKING:
    import pyarrow

    from ottla.spark.pipelines.tables.contract import EndOffsets

RANGES_FORMAT = "ottla_ranges"
_SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("start", LongType()),
        StructField("end", LongType()),
    ]
)


class RangesSource(Versioned, DataSource):
    """`format("ottla_ranges")`: takes the options of `format("ottla")`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return RANGES_FORMAT

    def schema(self) -> StructType:
        """Topic, partition, first offset, offset after the last."""
        return _SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For `spark.readStream`; wrong options give a reader that refuses."""
        try:
            return RangesReader(parse_read_options(self.options, streaming=True))
        except OptionError as refusal:
            return RefusingStreamReader(refusal)


class RangesReader(StreamReader):
    """Reads nothing: each planned range is a row."""

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """The row of one range."""
        import pyarrow

        if not isinstance(partition, PartitionRange):  # Spark makes up one partition where the plan has none.
            return
        yield pyarrow.RecordBatch.from_arrays(
            [
                pyarrow.array([partition.topic], pyarrow.string()),
                pyarrow.array([partition.partition], pyarrow.int32()),
                pyarrow.array([partition.start], pyarrow.int64()),
                pyarrow.array([partition.end], pyarrow.int64()),
            ],
            names=_SCHEMA.names,
        )


def plan_batch(options: ReadOptions, start: EndOffsets | None, end: EndOffsets) -> list[PartitionRange]:
    """The ranges of a batch of the source as Spark plans them; `start` is None for the first batch of a query.

    Both ends are in the checkpoint, so that they need not be brought here by a job of Spark's. Raises DataLossError,
    ClientError.
    """
    reader = RangesReader(options)
    try:
        return reader.ranges(None if start is None else by_partition(start), by_partition(end))
    finally:
        reader.stop()
