"""Fetched records as Arrow record batches. pyarrow is an extra, imported at first use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from ottla.client.consumer.completed_fetch import CompletedFetch
from ottla.client.model import TopicPartition
from ottla.records.arrow import arrow_schema
from ottla.records.extras import require_extra

if TYPE_CHECKING:
    import pyarrow


def taker(*, include_headers: bool) -> Callable[[CompletedFetch, int], tuple[list[pyarrow.RecordBatch], int]]:
    """Make the `take` argument of `FetchCollector.collect` that returns record batches. Raises MissingExtraError."""
    require_extra("reading Arrow", "arrow", "pyarrow")

    def take(fetch: CompletedFetch, most: int) -> tuple[list[pyarrow.RecordBatch], int]:
        batches = fetch.take_rows(most, include_headers=include_headers)
        return batches, sum(batch.num_rows for batch in batches)

    return take


def table_of(
    gathered: Mapping[TopicPartition, Iterable[pyarrow.RecordBatch]], *, include_headers: bool
) -> pyarrow.Table:
    """Concatenate the batches to one table, without copying."""
    import pyarrow

    batches = [batch for each in gathered.values() for batch in each]
    return pyarrow.Table.from_batches(batches, arrow_schema(include_headers=include_headers))
