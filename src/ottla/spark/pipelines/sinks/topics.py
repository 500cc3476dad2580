"""Rows of each batch to a topic: as records, as JSON, as upserts by key, or as dead letters.

A batch that runs again is sent again. Upserts carry whole results, so the last record of a key, which is what a
compacted topic keeps, is the same.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, functions

from ottla.client.errors import ClientError, TopicExistsError
from ottla.spark.connection import BOOTSTRAP, connect, reading
from ottla.spark.errors import OptionError, SparkRefusal
from ottla.spark.pipelines.errors import PipelineError, PipelineSettingsError
from ottla.spark.pipelines.settings.model import TopicSinkSettings
from ottla.spark.pipelines.sinks.sink import BatchInWork, BatchSink
from ottla.spark.pipelines.writing.refusals import quoted
from ottla.spark.sink.columns import check_columns
from ottla.spark.sink.options import parse_write_options

JSON = "json"
_COMPACTED = {"cleanup.policy": "compact"}
#: What the headers of a dead letter say.
_ORIGIN = ("source", "topic", "partition", "offset", "timestamp", "reason")


class TopicSink(BatchSink):
    """A topic as a sink. With `dead_letters` rows are such letters: their bytes the value, the rest in headers."""

    def __init__(self, settings: TopicSinkSettings, *, dead_letters: bool = False) -> None:
        self._settings = settings
        self._dead_letters = dead_letters and settings.value_format != JSON

    def prepare(self) -> None:
        """Make the topic where it is missing, compacted if rows are upserts. Raises PipelineError."""
        wanted = self._settings
        try:
            with connect(reading(parse_write_options(self._options()).connection)) as client:
                if wanted.topic not in client.topics():
                    client.create_topic(wanted.topic, config=_COMPACTED if wanted.key_columns else None)
        except TopicExistsError:  # Another one was faster.
            return
        except (ClientError, SparkRefusal) as problem:
            raise PipelineError(f"topic {wanted.topic} of the sink: {problem}") from None

    def check(self, rows: DataFrame) -> None:
        """Refuse columns that have no place in a record. Raises PipelineSettingsError, PipelineError."""
        topic = self._settings.topic
        try:
            options = parse_write_options(self._options() | {"topic": topic})
            check_columns(self._records(rows).schema, options)
        except OptionError as problem:
            raise PipelineError(f"topic {topic} of the sink: {problem}") from None

    def take(self, frame: DataFrame, batch: BatchInWork) -> None:
        """Send the rows, and wait until they are acknowledged. Raises PipelineError for columns that do not fit."""
        self._records(frame).write.format("ottla").options(**self._options()).option(
            "topic", self._settings.topic
        ).mode("append").save()

    def _records(self, rows: DataFrame) -> DataFrame:
        return letters_as_records(rows) if self._dead_letters else as_records(rows, self._settings)

    def _options(self) -> dict[str, str]:
        return dict(self._settings.options) | {BOOTSTRAP: self._settings.bootstrap_servers}


def as_records(frame: DataFrame, settings: TopicSinkSettings) -> DataFrame:
    """The frame with the columns of records. Raises PipelineSettingsError if it lacks any."""
    missing = [each for each in settings.key_columns if each not in frame.columns]
    if missing:
        raise PipelineSettingsError(
            f"key_columns names {', '.join(missing)}; the last step gives {', '.join(frame.columns)}"
        )
    key = key_of(settings.key_columns).alias("key") if settings.key_columns else None
    if settings.value_format == JSON:
        value = functions.to_json(functions.struct(*(quoted(each) for each in frame.columns))).alias("value")
        return frame.select(value) if key is None else frame.select(key, value)
    if key is None:
        return frame
    kept = [each for each in ("value", "headers", "partition", "timestamp") if each in frame.columns]
    return frame.select(key, *kept)


def key_of(columns: tuple[str, ...]) -> Column:
    """The text of one column, a JSON object of several."""
    if len(columns) == 1:
        return quoted(columns[0]).cast("string")
    return functions.to_json(functions.struct(*(quoted(each) for each in columns)), {"ignoreNullFields": "false"})


def letters_as_records(letters: DataFrame) -> DataFrame:
    """Dead letters as records with their own key and bytes; where they are from and why is in headers."""
    texts = {name: functions.col(name).cast("string") for name in _ORIGIN}
    texts["timestamp"] = functions.unix_millis("timestamp").cast("string")
    headers = [
        functions.struct(functions.lit(f"ottla.{name}").alias("key"), text.cast("binary").alias("value"))
        for name, text in texts.items()
    ]
    return letters.select("key", "value", functions.array(*headers).alias("headers"))
