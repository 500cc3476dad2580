"""A pipeline's checked settings, made only by `ottla.spark.pipelines.settings.file`. Paths are absolute or URLs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class PipelineKind(StrEnum):
    """The kind of a pipeline. A ready-made kind presets settings, and refuses those that do not fit it."""

    stream = "stream"
    online = "online"
    archive = "archive"
    mirror = "mirror"


class NewFields(StrEnum):
    """The treatment of record fields that the schema in use lacks."""

    add = "add"
    ignore = "ignore"
    fail = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """The query's Spark: `master` as `spark.master` has it, or the URL `remote` of a Spark Connect server."""

    master: str = "local[2]"
    remote: str | None = None
    memory: str = "1g"
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """One stream of records, visible to SQL as the view `name`.

    Exactly one of `topics` and `topic_pattern` is set. `value_format` is raw, json, avro or protobuf; `schema` is
    Spark's DDL of a JSON value. `options` are further options of `format("ottla")`, `kafka.*` among them.
    `watermark_column` and
    `watermark_delay` (an interval of Spark's) declare event time on the decoded columns.
    """

    name: str
    bootstrap_servers: str
    group_id: str
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    starting_offsets: str = "earliest"
    max_offsets_per_trigger: int | None = None
    value_format: str = "raw"
    schema: str | None = None
    watermark_column: str | None = None
    watermark_delay: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticTableSettings:
    """A table that does not stream, visible to SQL as the view `name`; read again in each batch."""

    name: str
    format: str
    path: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSettings:
    """One SELECT over the views so far, visible to later steps as the view `name`; the last step feeds the sink."""

    name: str
    sql: str
    watermark_column: str | None = None
    watermark_delay: str | None = None
    deduplicate_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSinkSettings:
    """Rows appended exactly once to a table: `format` is parquet, delta or iceberg.

    `path` is the URL of the table's folder; an Iceberg table is named by `catalog` (name), `catalog_options` and
    `table`.
    `partition_by` are columns, in order. `storage_options` go to the file system.
    """

    format: str
    path: str | None = None
    catalog: str | None = None
    catalog_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    table: str | None = None
    partition_by: tuple[str, ...] = ()
    compression: str = "zstd"
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Partition folders that the watermark has passed are compacted to files of about this size; None: never.
    compact_to_bytes: int | None = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSinkSettings:
    """Rows to a topic: columns key, value, optionally headers, partition, timestamp; or `value_format = "json"`.

    With `key_columns` rows are upserts: the key is made of these columns, and the topic is created compacted.
    """

    bootstrap_servers: str
    topic: str
    key_columns: tuple[str, ...] = ()
    value_format: str = "raw"
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSinkSettings:
    """Small results upserted into a database table by `key_columns`: `url` is `sqlite:PATH` or a JDBC URL."""

    url: str = field(repr=False)
    table: str
    key_columns: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSinkSettings:
    """The first rows of each batch, printed."""

    rows: int = 20


SinkSettings = TableSinkSettings | TopicSinkSettings | DatabaseSinkSettings | ConsoleSinkSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSettings:
    """Topics of one cluster copied to another.

    `source_alias` and `target_alias` are MirrorMaker 2's names of the clusters. `topics` and `groups` are regular
    expressions
    that match whole names. With `unchanged_names` topics keep their names (else `alias.topic`), and each record carries
    its origin in a header. `source_settings` and `target_settings` are client settings (`security.protocol`, …).
    """

    source_alias: str
    target_alias: str
    source_bootstrap_servers: str
    target_bootstrap_servers: str
    topics: str
    groups: str = ".*"
    group_id: str
    unchanged_names: bool = False
    starting_offsets: str = "earliest"
    max_offsets_per_trigger: int | None = None
    refresh_interval_ms: int = 30_000
    source_settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    target_settings: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerSettings:
    """The least time between two batches, in ms; or `available_now`: what is there at the start, then the end."""

    interval_ms: int = 1_000
    available_now: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSettings:
    """A whole file. `name` identifies the pipeline in tables, in metrics and to `stop` and `status`; it must not
    change.

    `checkpoint` is Spark's checkpoint location. `dead_letters` is where records that do not parse go; None keeps them
    out of
    the rows and counts them. A `mirror` has no sources, steps and sink.
    """

    name: str
    kind: PipelineKind
    checkpoint: str
    spark: SparkSettings = SparkSettings()
    trigger: TriggerSettings = TriggerSettings()
    sources: tuple[SourceSettings, ...] = ()
    tables: tuple[StaticTableSettings, ...] = ()
    steps: tuple[StepSettings, ...] = ()
    output_mode: str = "append"
    new_fields: NewFields = NewFields.ignore
    dead_letters: TableSinkSettings | TopicSinkSettings | None = None
    sink: SinkSettings | None = None
    mirror: MirrorSettings | None = None
    #: What came from the environment or from files: `settings.references.redacted` keeps it out of what is shown.
    secrets: tuple[str, ...] = field(default=(), repr=False, compare=False)
