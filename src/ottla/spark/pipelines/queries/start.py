"""A pipeline's query started: what its settings say, from the sources to the sink.

Its SQL: each source, table and step is a temporary view, and the last step has the rows of the sink.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ottla.spark.pipelines.errors import PipelineSettingsError
from ottla.spark.pipelines.queries.batches import BatchFunction
from ottla.spark.pipelines.queries.checkpoint import QueryCheckpoint
from ottla.spark.pipelines.queries.schemas import schema_in_use
from ottla.spark.pipelines.queries.sources import check_one_source_per_topic, read_options, source_view, with_watermark
from ottla.spark.pipelines.queries.starting import decide_start, starting_option, step_with_state
from ottla.spark.pipelines.queries.static_table_source import table_view
from ottla.spark.pipelines.settings.model import (
    NewFields,
    PipelineKind,
    PipelineSettings,
    StepSettings,
    TriggerSettings,
)
from ottla.spark.pipelines.sinks.opening import open_dead_letters, open_sink
from ottla.spark.pipelines.sinks.sink import BatchSink
from ottla.spark.pipelines.sinks.tables import TableSink
from ottla.spark.pipelines.writing.refusals import DEAD_LETTER_TYPES


def start_pipeline(
    spark: SparkSession, settings: PipelineSettings, *, continue_from_table: bool = False
) -> StreamingQuery:
    """Start the query of a pipeline of kind stream, online or archive; classic and with Spark Connect.

    With `continue_from_table` a new checkpoint continues from the end offsets of the table's last commit. Raises
    PipelineSettingsError for settings that do not fit each other or the data, CheckpointMismatchError for a checkpoint
    that is not that of the table, PipelineError for what cannot be reached.
    """
    if settings.kind is PipelineKind.mirror or not settings.sources:
        raise PipelineSettingsError(f"pipeline {settings.name} has no source to run a query on")
    check_one_source_per_topic(settings.sources)
    step = step_with_state(settings) if settings.new_fields is NewFields.add else None
    if step is not None:
        raise PipelineSettingsError(
            f"new_fields = add: step {step} keeps state, whose columns cannot change; set new_fields = ignore or fail"
        )
    sink, dead_letters = open_sink(settings), open_dead_letters(settings)
    checkpoint = QueryCheckpoint(settings.checkpoint)
    # Nothing is made before the columns are known: a table keeps what it was first opened with.
    checked = _options(checkpoint, settings, {each.name: each.starting_offsets for each in settings.sources})
    rows = _rows(spark, settings, checked)
    sink.check(rows)
    if dead_letters is not None:
        dead_letters.check(spark.createDataFrame([], DEAD_LETTER_TYPES))
    last = sink.prepare()
    last_letters = dead_letters.prepare() if dead_letters is not None else None
    start = decide_start(checkpoint, settings, last, last_letters, continue_from_table=continue_from_table)
    finished = checkpoint.newest_finished() is not None
    starting = {each.name: starting_option(start, each, finished=finished) for each in settings.sources}
    options = _options(checkpoint, settings, starting)
    if options != checked:
        rows = _rows(spark, settings, options)
    rows = _rows_or_ranges(spark, settings, options, sink, rows)
    function = BatchFunction(settings, options, start, sink, dead_letters)
    writer = rows.writeStream.queryName(settings.name).outputMode(settings.output_mode)
    writer = _triggered(writer.option("checkpointLocation", settings.checkpoint), settings.trigger)
    return writer.foreachBatch(function).start()


def _options(
    checkpoint: QueryCheckpoint, settings: PipelineSettings, starting: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """The options of each source's stream, by its name."""
    return {
        each.name: read_options(each, schema=schema_in_use(checkpoint, settings, each), starting=starting[each.name])
        for each in settings.sources
    }


def _rows(spark: SparkSession, settings: PipelineSettings, options: Mapping[str, Mapping[str, str]]) -> DataFrame:
    """Return the last step's rows. Raises PipelineSettingsError for missing columns."""
    return result_of(
        spark, settings, {each.name: source_view(spark, each, options[each.name]) for each in settings.sources}
    )


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


def _rows_or_ranges(
    spark: SparkSession,
    settings: PipelineSettings,
    options: Mapping[str, Mapping[str, str]],
    sink: BatchSink,
    rows: DataFrame,
) -> DataFrame:
    """Ranges of offsets in place of the rows, where the sink's tasks can make files of those; else the rows."""
    from ottla.spark.pipelines.writing.direct import direct_stream

    if not isinstance(sink, TableSink) or len(settings.sources) != 1:
        return rows
    direct = direct_stream(spark, settings, options[settings.sources[0].name], rows)
    if direct is None:
        return rows
    sink.take_ranges(direct.writer)
    return direct.frame


def _triggered(writer: DataStreamWriter, trigger: TriggerSettings) -> DataStreamWriter:
    if trigger.available_now:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=f"{trigger.interval_ms} milliseconds")
