"""Sources of a pipeline as streams, and which of them an entry of Spark's log belongs to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.spark.connection import BOOTSTRAP
from ottla.spark.pipelines.errors import PipelineError, PipelineSettingsError
from ottla.spark.pipelines.settings.model import SourceSettings
from ottla.spark.pipelines.tables.contract import EndOffsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RAW = "raw"
#: The metric of a query that counts records that do not parse, by source: `<source>_bad_records`, in its progress.
BAD_RECORDS = "bad_records"
_REASON = "_bad_reason"
#: Options that the pipeline itself sets, by their lower-case names.
_OWN = {
    "subscribe": "topics",
    "subscribepattern": "topic_pattern",
    "assign": "topics",
    "startingoffsets": "starting_offsets",
    "maxoffsetspertrigger": "max_offsets_per_trigger",
    "kafka.group.id": "group_id",
    "groupid": "group_id",
    BOOTSTRAP: "bootstrap_servers",
    "valueformat": "value_format",
    "columns": "the SELECT of a step",
    "badvaluecolumn": "dead_letters",
    "badreasoncolumn": "dead_letters",
}


def read_options(source: SourceSettings, *, schema: str | None, starting: str) -> dict[str, str]:
    """The options of `format("ottla")` for a source; `schema` and `starting` replace the settings'.

    Raises PipelineSettingsError for an option that is a setting.
    """
    for name in source.options:
        if name.lower() in _OWN:
            raise PipelineSettingsError(f"source {source.name}: option {name} is set by {_OWN[name.lower()]}; use that")
    options = dict(source.options) | {
        BOOTSTRAP: source.bootstrap_servers,
        "kafka.group.id": source.group_id,
        "startingOffsets": starting,
    }
    if source.topic_pattern is not None:
        options["subscribePattern"] = source.topic_pattern
    else:
        options["subscribe"] = ",".join(source.topics)
    if source.max_offsets_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(source.max_offsets_per_trigger)
    if source.value_format != RAW:
        # The bytes of bad values are read again where they are wanted: few batches have any.
        options |= {"valueFormat": source.value_format, "badValueColumn": "", "badReasonColumn": _REASON}
        if schema is not None:
            options["valueSchema"] = schema
    return options


def source_view(spark: SparkSession, source: SourceSettings, options: Mapping[str, str]) -> DataFrame:
    """The stream that SQL sees under the source's name: records that parse, those that do not are counted."""
    from pyspark.sql import functions

    frame = spark.readStream.format("ottla").options(**options).load()
    if source.value_format != RAW:
        counted = functions.count(functions.col(_REASON)).alias(BAD_RECORDS)
        frame = frame.observe(f"{source.name}_{BAD_RECORDS}", counted)
        frame = frame.where(functions.col(_REASON).isNull()).drop(_REASON)
    return with_watermark(frame, source.watermark_column, source.watermark_delay)


def with_watermark(frame: DataFrame, column: str | None, delay: str | None) -> DataFrame:
    """The frame with event time declared, where both are given."""
    return frame if column is None or delay is None else frame.withWatermark(column, delay)


def check_one_source_per_topic(sources: Sequence[SourceSettings]) -> None:
    """Refuse two sources that read one topic: Spark's log names topics only. Raises PipelineSettingsError."""
    seen: dict[str, str] = {}
    for source in sources:
        for topic in source.topics:
            other = seen.setdefault(topic, source.name)
            if other != source.name:
                raise PipelineSettingsError(
                    f"sources {other} and {source.name} both read topic {topic}; one source is enough, steps can use "
                    "it several times; for topics of one name in two clusters make a pipeline of each"
                )


def by_source(sources: Sequence[SourceSettings], entries: Sequence[EndOffsets | None]) -> dict[str, EndOffsets]:
    """The entries of Spark's log by the names of their sources.

    Raises PipelineError where two sources could be meant.
    """
    found: dict[str, EndOffsets] = {}
    for entry in entries:
        if not entry:
            continue
        owners = [each.name for each in sources if all(_selects(each, topic) for topic in entry)]
        if len(owners) != 1:
            topics = ", ".join(entry)
            raise PipelineError(
                f"topics {topics} in the checkpoint are selected by {' and '.join(owners) or 'no source'}; each topic "
                "needs one source of the pipeline: change topics or topic_pattern, or start with another checkpoint"
            )
        found[owners[0]] = entry
    return found


def _selects(source: SourceSettings, topic: str) -> bool:
    if source.topic_pattern is not None:
        return re.search(source.topic_pattern, topic) is not None
    return topic in source.topics
