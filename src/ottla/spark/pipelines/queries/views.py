"""The SQL of a pipeline: each source, table and step a temporary view, the last step the rows of the sink."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.spark.pipelines.errors import PipelineSettingsError
from ottla.spark.pipelines.queries.sources import with_watermark
from ottla.spark.pipelines.queries.static_tables import table_view
from ottla.spark.pipelines.settings.model import PipelineSettings, StepSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def result_of(spark: SparkSession, settings: PipelineSettings, sources: Mapping[str, DataFrame]) -> DataFrame:
    """Return the last step's result, or without steps the only source. Raises PipelineSettingsError."""
    # Else Spark puts variables of the environment and its own settings in place of ${…} in the SQL. What the file means
    # by ${env:…} is known from the file, and kept out of what is shown.
    spark.conf.set("spark.sql.variable.substitute", "false")
    for name, frame in sources.items():
        frame.createOrReplaceTempView(name)
    for table in settings.tables:
        table_view(spark, table).createOrReplaceTempView(table.name)
    if not settings.steps:
        if len(sources) != 1:
            raise PipelineSettingsError("several sources need a step: say in SQL what to make of them")
        return next(iter(sources.values()))
    result: DataFrame | None = None
    for step in settings.steps:
        result = _step(spark, step)
        result.createOrReplaceTempView(step.name)
    assert result is not None
    return result


def _step(spark: SparkSession, step: StepSettings) -> DataFrame:
    from pyspark.errors import AnalysisException, ParseException

    try:
        frame = with_watermark(spark.sql(step.sql), step.watermark_column, step.watermark_delay)
        if step.deduplicate_by:
            frame = frame.dropDuplicatesWithinWatermark(list(step.deduplicate_by))
        _ = frame.schema  # With Spark Connect names are looked up only now.
    except (AnalysisException, ParseException) as problem:
        # The lines that follow the first one are the plan, with all options of the sources.
        said = str(problem).strip().split("\n")[0].rstrip(";")
        raise PipelineSettingsError(f"step {step.name}: {said}") from None
    return frame
