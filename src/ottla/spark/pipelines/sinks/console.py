"""The first rows of each batch, printed; with Spark Connect by the server."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.spark.pipelines.sinks.sink import BatchInWork, BatchSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class ConsoleSink(BatchSink):
    """Prints `rows` of each batch."""

    rows: int

    def prepare(self) -> None:
        """Nothing."""

    def check(self, rows: DataFrame) -> None:
        """Any columns can be printed."""

    def take(self, frame: DataFrame, batch: BatchInWork) -> None:
        """Print the first rows. All of them are made first: a query's state needs every task to run, once."""
        kept = frame.persist()
        try:
            count = kept.count()
            if count:
                sys.stdout.write(f"{batch.pipeline}: batch {batch.batch_id}, {count} rows\n")
                kept.show(self.rows, truncate=False)
        finally:
            kept.unpersist()
