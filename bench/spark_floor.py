"""A source in Python that does nothing: what any such source costs. Measured by `bench/spark.py --only floor`.

It has the columns of ottla's and yields the same Arrow batch again and again, from as many tasks as a topic has
partitions. It needs no modules but PySpark's and pyarrow.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

FLOOR_FORMAT = "constant"
SCHEMA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
TASKS = 4
ROWS_PER_BATCH = 8192
KEY, VALUE, TOPIC = b"1234", b"x" * 100, b"constant"


class ConstantSource(DataSource):
    """`format("constant")`, with the option `rows`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FLOOR_FORMAT

    def schema(self) -> str:
        """The columns of a Kafka source."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        return ConstantReader(int(self.options["rows"]))


class ConstantReader(DataSourceReader):
    """Yields constants."""

    def __init__(self, rows: int) -> None:
        self._rows_per_task = rows // TASKS

    def partitions(self) -> list[InputPartition]:
        """As many as a topic of the other measurements has."""
        return [InputPartition(number) for number in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """The same batch again and again."""
        import pyarrow

        # Made of buffers: pyarrow.array imports pandas, which is not needed here.
        count, integers = ROWS_PER_BATCH, array("i", [partition.value]) * ROWS_PER_BATCH
        longs = array("q", [partition.value]) * ROWS_PER_BATCH
        columns = [
            *(_bytes(each, kind) for each, kind in ((KEY, pyarrow.binary()), (VALUE, pyarrow.binary()))),
            _bytes(TOPIC, pyarrow.string()),
            *(
                pyarrow.Array.from_buffers(kind, count, [None, pyarrow.py_buffer(numbers)])
                for kind, numbers in (
                    (pyarrow.int32(), integers),
                    (pyarrow.int64(), longs),
                    (pyarrow.timestamp("us", "UTC"), longs),
                    (pyarrow.int32(), integers),
                )
            ),
        ]
        batch = pyarrow.RecordBatch.from_arrays(columns, names=[field.split()[0] for field in SCHEMA.split(", ")])
        for done in range(0, self._rows_per_task, count):
            yield batch.slice(0, self._rows_per_task - done)


def _bytes(value: bytes, kind: pyarrow.DataType) -> pyarrow.Array:
    import pyarrow

    size, count = len(value), ROWS_PER_BATCH
    buffers = [None, pyarrow.py_buffer(array("i", range(0, size * count + 1, size))), pyarrow.py_buffer(value * count)]
    return pyarrow.Array.from_buffers(kind, count, buffers)
