"""`format("ottla")`: the data source that Spark instantiates on the driver."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from ottla.spark.errors import OptionError, one_sentence
from ottla.spark.sink.columns import check_columns
from ottla.spark.sink.options import parse_write_options
from ottla.spark.sink.writers import BatchWriter, StreamWriter
from ottla.spark.source.batch import batch_reader
from ottla.spark.source.options import parse_read_options
from ottla.spark.source.refusing import RefusingStreamReader
from ottla.spark.source.schema import check_schema, parse_schema_options
from ottla.spark.source.stream import StreamReader
from ottla.spark.versions import Versioned

SEGMENTS = "segments"
"""The option that names log directories."""


class OttlaDataSource(Versioned, DataSource):
    """`format("ottla")`: reads from and writes to any Kafka-compatible cluster, with no jar."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "ottla"

    @one_sentence
    def schema(self) -> StructType:
        """The columns a read gives. Raises OptionError."""
        return parse_schema_options(self.options)

    @one_sentence
    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`, from segment files where the option `segments` names some. Raises OptionError."""
        if SEGMENTS in self.options:
            from ottla.spark.backfill.options import parse_backfill_options
            from ottla.spark.backfill.reader import SegmentReader

            wanted = parse_backfill_options(self.options)
            check_schema(schema, wanted.read)
            return SegmentReader(wanted)
        options = parse_read_options(self.options, streaming=False)
        check_schema(schema, options)
        return batch_reader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For `spark.readStream`; wrong options give a reader that refuses."""
        try:
            options = parse_read_options(self.options, streaming=True)
            check_schema(schema, options)
        except OptionError as refusal:
            return RefusingStreamReader(refusal)
        return StreamReader(options)

    @one_sentence
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For `df.write`. Raises OptionError."""
        if overwrite:
            raise OptionError("a topic cannot be overwritten; use mode('append')")
        options = parse_write_options(self.options)
        check_columns(schema, options)
        return BatchWriter(options)

    @one_sentence
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """For `df.writeStream`. Raises OptionError."""
        if overwrite:
            raise OptionError("a topic cannot be overwritten; use outputMode('append') or outputMode('update')")
        options = parse_write_options(self.options)
        check_columns(schema, options)
        return StreamWriter(options)
