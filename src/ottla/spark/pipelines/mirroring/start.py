"""The start of a mirror: settings are checked, the target is prepared, the query is started."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ottla.client.errors import ClientError
from ottla.records.extras import require_extra
from ottla.spark.data_sources import register_source
from ottla.spark.pipelines.errors import PipelineError, PipelineSettingsError
from ottla.spark.pipelines.mirroring.copying import names_of
from ottla.spark.pipelines.mirroring.ends import check_two_clusters, source_of, target_of
from ottla.spark.pipelines.mirroring.refreshing import MirrorRefresher
from ottla.spark.pipelines.settings.model import MirrorSettings, PipelineSettings


def start_mirror(spark: SparkSession, settings: PipelineSettings) -> StreamingQuery:
    """Start the mirror. This process follows topics and groups for as long as the query runs.

    Raises PipelineSettingsError, PipelineError where a cluster does not answer.
    """
    require_extra("a mirror", "spark", "pyspark", "pyarrow")
    from ottla.spark.local import register
    from ottla.spark.pipelines.mirroring.batches import MirrorBatches
    from ottla.spark.pipelines.writing.ranges import RANGES_FORMAT, RangesSource

    mirror = check_mirror(settings)
    refresher = MirrorRefresher(mirror)
    try:
        check_two_clusters(mirror)
        refresher.refresh_once()
    except ClientError as problem:
        raise PipelineError(f"the mirror {settings.name} cannot start: {problem}") from None
    register_source(register(spark), RangesSource)
    reading = reading_options(mirror)
    trigger = settings.trigger
    batches = MirrorBatches(mirror, reading, translates=trigger.available_now)
    writer = (
        spark.readStream.format(RANGES_FORMAT)
        .options(**reading)
        .load()
        .writeStream.queryName(settings.name)
        .option("checkpointLocation", settings.checkpoint)
        .foreachBatch(batches)
    )
    if trigger.available_now:
        return writer.trigger(availableNow=True).start()
    query = writer.trigger(processingTime=f"{trigger.interval_ms} milliseconds").start()
    refresher.start(query)
    return query


def check_mirror(settings: PipelineSettings) -> MirrorSettings:
    """The mirror's part of the settings. Raises PipelineSettingsError."""
    mirror = settings.mirror
    if mirror is None:
        raise PipelineSettingsError(f"pipeline {settings.name} is a mirror and has no [mirror]; give it one")
    names_of(mirror).check()
    source_of(mirror).check("source_settings")
    target_of(mirror).check("target_settings")
    if mirror.refresh_interval_ms <= 0:
        raise PipelineSettingsError(f"refresh_interval_ms is {mirror.refresh_interval_ms}; give 1 or more")
    return mirror


def reading_options(mirror: MirrorSettings) -> dict[str, str]:
    """The options that the source is read with. Topics that are gone end nothing: the others are mirrored on."""
    options = source_of(mirror).reading_options() | {
        "subscribePattern": names_of(mirror).pattern,
        "startingOffsets": mirror.starting_offsets,
        "kafka.group.id": mirror.group_id,
        "failOnDataLoss": "false",
    }
    if mirror.max_offsets_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(mirror.max_offsets_per_trigger)
    return options
