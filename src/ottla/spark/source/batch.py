"""The readers of `spark.read`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from ottla.spark.connection import connect
from ottla.spark.errors import one_sentence
from ottla.spark.source.options import ReadOptions
from ottla.spark.source.partitions import (
    average_record_bytes,
    check_retained,
    ending_offsets,
    selected_partitions,
    starting_offsets,
    with_retries,
)
from ottla.spark.source.planning import PartitionRange, plan_ranges
from ottla.spark.source.pushdown import Pushdown, push_filters
from ottla.spark.source.reading import read_rows
from ottla.spark.versions import Versioned

if TYPE_CHECKING:
    import pyarrow

    from ottla.client.sync import Client

_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class BatchReader(Versioned, DataSourceReader):
    """Reads everything from the starting to the ending offsets as they were when the query was planned."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._pushdown = Pushdown()

    @one_sentence
    def partitions(self) -> list[InputPartition]:
        """The ranges to read. Raises OptionError, DataLossError."""
        with connect(self._options.connection) as client:
            return [*with_retries(self._options.retry, lambda: self._ranges(client))]

    def _ranges(self, client: Client) -> list[PartitionRange]:
        options, pushdown = self._options, self._pushdown
        chosen = list(selected_partitions(client, options.selection))
        start = starting_offsets(client, chosen, options)
        end = ending_offsets(client, chosen, options)
        wanted = [each for each in chosen if pushdown.wants(each)]
        since = {} if pushdown.timestamp_ms is None else client.offsets_at(wanted, pushdown.timestamp_ms)
        start, end = pushdown.narrow(
            {each: start[each] for each in wanted}, {each: end[each] for each in wanted}, since
        )
        pending = {each: offset for each, offset in start.items() if offset < end[each]}
        check_retained(client, pending, fail=options.fail_on_data_loss)
        sizes = average_record_bytes(client, list(pending)) if options.split.max_bytes is not None else None
        return plan_ranges(start, end, options.split, sizes)

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """The rows of one range."""
        return read_rows(partition, self._options)


class FilteringBatchReader(BatchReader):
    """A batch reader that takes filters; Spark accepts one only where the pushdown of filters is enabled."""

    @one_sentence
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take in what filters say about partitions, offsets and times; the others are left to Spark."""
        return push_filters(filters, self._pushdown)


def batch_reader(options: ReadOptions) -> BatchReader:
    """A reader, one that takes filters where Spark's worker for the pushdown of filters asks for it.

    Any other worker refuses such a reader while `spark.sql.python.filterPushdown.enabled` is false, its default.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    pushes = _PUSHDOWN_WORKER in sys.modules or (main is not None and main.name == _PUSHDOWN_WORKER)
    return FilteringBatchReader(options) if pushes else BatchReader(options)
