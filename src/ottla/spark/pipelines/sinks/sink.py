"""What a query owes its sinks and they owe it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ottla.spark.pipelines.tables.contract import EndOffsets, LastCommit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class BatchInWork:
    """A batch of the query `query_id`: where it starts and ends, by source, and the watermark when it was planned.

    Partitions that `start_offsets` lacks start at their beginning. `watermark_ms` is None where the query has none.
    """

    pipeline: str
    query_id: str
    batch_id: int
    start_offsets: Mapping[str, EndOffsets]
    end_offsets: Mapping[str, EndOffsets]
    watermark_ms: int | None


class BatchSink(Protocol):
    """One place for rows. It travels to the process that runs batches, and keeps nothing open on the way."""

    def prepare(self) -> LastCommit | None:
        """Make ready before the query starts; gives the last batch that is there, where the sink keeps such a thing.

        Raises PipelineError.
        """
        ...

    def check(self, rows: DataFrame) -> None:
        """Refuse rows with these columns, if they do not fit. Raises PipelineError."""
        ...

    def stage(self, frame: DataFrame, batch: BatchInWork) -> int | None:
        """Do what can be done before anything is seen; gives how many records did not parse, None where it cannot say.

        Raises PipelineError.
        """
        return None

    def take(self, frame: DataFrame, batch: BatchInWork) -> None:
        """Take the rows of one batch, all of them, so that every task of the query runs. Raises PipelineError."""
        ...
