"""Why a query ended, and a run of a pipeline that continues with added fields."""

from __future__ import annotations

import re
from collections.abc import Callable

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ottla.spark.pipelines import errors
from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.queries.checkpoint import QueryCheckpoint
from ottla.spark.pipelines.queries.schemas import added_fields
from ottla.spark.pipelines.queries.start import start_pipeline
from ottla.spark.pipelines.settings.model import NewFields, PipelineSettings

#: How Python writes an error of ours, which Spark reports as text.
_OURS = re.compile(r"\bottla(?:\.\w+)*\.(\w+(?:Error|Refusal)): (.+)")


def run_pipeline(
    spark: SparkSession,
    settings: PipelineSettings,
    *,
    continue_from_table: bool = False,
    started: Callable[[StreamingQuery], None] | None = None,
) -> None:
    """Run a pipeline until its query ends; where it ended to add fields, start it again at that batch.

    `started` is called with each query that was started. Raises PipelineError with the one sentence that ended it, and
    what Spark raises for other ends.
    """
    while True:
        before = _added(settings)
        query = start_pipeline(spark, settings, continue_from_table=continue_from_table)
        if started is not None:
            started(query)
        try:
            query.awaitTermination()
            return
        except Exception as problem:
            # Each start again has at least one field more, and there are MAX_NEW_FIELDS of a batch at most.
            if settings.new_fields is NewFields.add and _added(settings) != before:
                continue
            sentence = why_it_ended(problem)
            if sentence is None:
                raise
            raise sentence from None


def why_it_ended(problem: BaseException) -> PipelineError | None:
    """The pipeline's own sentence in what Spark reports; None for anything else."""
    found = _OURS.findall(str(problem))
    if not found:
        return None
    name, sentence = found[-1]
    kind = getattr(errors, name, PipelineError)
    made: PipelineError = kind(sentence.split(" SQLSTATE:")[0].strip())
    return made


def _added(settings: PipelineSettings) -> list[str]:
    checkpoint = QueryCheckpoint(settings.checkpoint)
    return [added_fields(checkpoint, each) for each in settings.sources]
