"""The reader of `spark.read` with the option `segments`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ottla.spark.backfill.options import BackfillOptions
from ottla.spark.backfill.plan import make_plan
from ottla.spark.backfill.reading import SegmentRange, read_rows
from ottla.spark.errors import message_only, one_sentence
from ottla.spark.source.reading import in_columns, optional_columns
from ottla.spark.versions import Versioned

if TYPE_CHECKING:
    import pyarrow

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SegmentPartition(InputPartition):
    """The input of one task."""

    wanted: SegmentRange

    def __repr__(self) -> str:
        return f"SegmentPartition({self.wanted}, {self.wanted.start} to {self.wanted.end})"


class SegmentReader(Versioned, DataSourceReader):
    """Reads what is committed in segment files when the query is planned."""

    def __init__(self, options: BackfillOptions) -> None:
        self._options = options

    @one_sentence
    def partitions(self) -> list[InputPartition]:
        """The ranges to read. Raises OptionError, DataLossError, SegmentError."""
        plan = make_plan(self._options)
        for note in plan.notes:
            log.warning("%s", note)
        return [SegmentPartition(each) for each in plan.ranges]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """The rows of one range, in the schema Spark expects. Runs in a worker."""
        if not isinstance(partition, SegmentPartition):  # Spark makes up one partition where the plan has none.
            return
        read = self._options.read
        with message_only():
            batches = read_rows(
                partition.wanted,
                rows_per_batch=read.rows_per_batch,
                fail_on_data_loss=read.fail_on_data_loss,
                **optional_columns(read),
            )
            yield from in_columns(batches, read)
