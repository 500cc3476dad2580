"""The contract between a query and its sinks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ottla.spark.pipelines.tables.contract import EndOffsets, LastCommit
from ottla.spark.pipelines.writing.refusals import RefusedRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ottla.spark.pipelines.writing.direct import RecordRefusals


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


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Rows that a sink left out: `bad_records` did not parse, None where it cannot say; `refused` it refused itself."""

    bad_records: int | None = None
    refused: RefusedRows = field(default_factory=RefusedRows)


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

    def stage(self, frame: DataFrame, batch: BatchInWork) -> StagedRows:
        """Do what can be done before anything is seen; gives what was left out. Raises PipelineError."""
        return StagedRows()

    def record_refusals(self) -> RecordRefusals | None:
        """Return a finder of records whose rows `stage` left out; None where rows are not of single records."""
        return None

    def refused_rows(self, frame: DataFrame) -> DataFrame | None:
        """The rows of `frame` that `stage` left out, as dead letters; None where `record_refusals` finds them."""
        return None

    def take(self, frame: DataFrame, batch: BatchInWork) -> None:
        """Take the rows of one batch, all of them, so that every task of the query runs. Raises PipelineError."""
        ...
