"""Every key of a pipeline's file, table by table. The reader checks against it, and docs/pipeline-keys.md is made from
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class KeyType(StrEnum):
    """The type of a key's value, in the words of an error."""

    text = "a string"
    number = "a whole number above 0"
    flag = "true or false"
    texts = "a list of strings"
    mapping = "a table of strings and numbers"
    duration = 'a duration, such as "10 seconds"'
    size = 'a size, such as "128 MiB", or "never"'


@dataclass(frozen=True, slots=True)
class Key:
    """One key: its name, type and meaning (Markdown); `default` as the page shows it; `choices` if few are allowed."""

    name: str
    type: KeyType
    meaning: str
    default: str = ""
    required: bool = False
    choices: tuple[str, ...] = ()


TEXT, NUMBER, FLAG, TEXTS = KeyType.text, KeyType.number, KeyType.flag, KeyType.texts
MAPPING, DURATION, SIZE = KeyType.mapping, KeyType.duration, KeyType.size

KINDS: Final = ("stream", "online", "archive", "mirror")
TABLE_FORMATS: Final = ("parquet", "delta", "iceberg")
SINK_KINDS: Final = (*TABLE_FORMATS, "topic", "database", "console")
DEAD_LETTER_KINDS: Final = (*TABLE_FORMATS, "topic")
VALUE_FORMATS: Final = ("raw", "json", "avro", "protobuf")

#: Tables within the file, beside the keys of its top level.
SECTIONS: Final = ("spark", "trigger", "source", "sources", "tables", "steps", "sink", "dead_letters", "mirror")

TOP: Final = (
    Key(
        "name",
        TEXT,
        "Identifies the pipeline in tables, metrics, `status` and `stop`: letters, digits, `-`, `_`, `.`. It must not "
        "change.",
        required=True,
    ),
    Key("kind", TEXT, "What is preset; see [kinds](pipelines.md#kinds).", "stream", choices=KINDS),
    Key(
        "checkpoint",
        TEXT,
        "Spark's checkpoint location: where it keeps how far it is. A path or URL that driver and executors reach.",
        required=True,
    ),
    Key(
        "output_mode",
        TEXT,
        "Spark's: `append`, `update`, `complete`.",
        "append; online: update",
        choices=("append", "update", "complete"),
    ),
    Key(
        "new_fields",
        TEXT,
        "What happens when values have a field that the schema lacks: `add` it as a column, `ignore` it, or `fail`.",
        "ignore",
        choices=("add", "ignore", "fail"),
    ),
)

SPARK: Final = (
    Key("master", TEXT, "`local[*]`, `local[N]`, `spark://host:7077`, `k8s://…`, `yarn`.", "local[2]"),
    Key("remote", TEXT, "The URL of a Spark Connect server, `sc://host:15002`, in place of `master`."),
    Key("memory", TEXT, "Memory of the driver's Java, as Spark writes it.", "1g"),
    Key("conf", MAPPING, "Further settings of Spark: `[spark.conf]`."),
)

TRIGGER: Final = (
    Key("interval", DURATION, "The least time between the beginnings of two batches.", "1 second"),
    Key("available_now", FLAG, "Process what is there at the start, then end.", "false"),
)

SOURCE: Final = (
    Key(
        "bootstrap_servers",
        TEXT,
        "Brokers, `host:port[,host:port]`.",
        "`--bootstrap-server`, `OTTLA_BOOTSTRAP_SERVER`",
    ),
    Key("topics", TEXTS, "Topics to read. Exactly one of this and `topic_pattern`."),
    Key("topic_pattern", TEXT, "A regular expression; topics in whose names it is found, new ones included."),
    Key(
        "group_id",
        TEXT,
        "The group that offsets are committed to. Each pipeline has its own.",
        "the pipeline's name; of several sources `name-source`",
    ),
    Key(
        "starting_offsets", TEXT, "`earliest`, `latest`, `committed` or Spark's JSON, for a new checkpoint.", "earliest"
    ),
    Key("max_offsets_per_trigger", NUMBER, "Most records of one batch."),
    Key(
        "value_format", TEXT, "What values are: `raw` bytes, `json`, `avro`, `protobuf`.", "raw", choices=VALUE_FORMATS
    ),
    Key("schema", TEXT, "The columns of a JSON value as Spark's DDL: `id BIGINT, at TIMESTAMP`. With `json` only."),
    Key(
        "watermark_column",
        TEXT,
        "Event time: a timestamp column of the decoded record.",
        "archive: timestamp",
    ),
    Key(
        "watermark_delay",
        DURATION,
        "How late records may come, by event time. Needed with `watermark_column`.",
        "archive: 1 hour",
    ),
    Key(
        "options",
        MAPPING,
        "Further [options of the source](spark-options.md): `[source.options]` with `kafka.security.protocol`, "
        "`valueDescriptor`, …",
    ),
)

STATIC_TABLE: Final = (
    Key("format", TEXT, "A format of Spark's: `parquet`, `delta`, `csv`, `json`, …", required=True),
    Key("path", TEXT, "Where it is.", required=True),
    Key("options", MAPPING, "Options of that format: `[tables.NAME.options]`."),
)

STEP: Final = (
    Key("name", TEXT, "The view under which later steps see the result.", "step1, step2, …"),
    Key("sql", TEXT, "One SELECT over the views so far: sources, tables, earlier steps.", required=True),
    Key("watermark_column", TEXT, "Event time: a timestamp column of the result."),
    Key("watermark_delay", DURATION, "How late its rows may come. Needed with `watermark_column`."),
    Key(
        "deduplicate_by",
        TEXTS,
        "Columns; of rows that are equal in them one stays, within the watermark.",
    ),
)

_TABLE_SINK: Final = (
    Key("partition_by", TEXTS, "Columns of the partition folders, in order.", "none; archive: day"),
    Key(
        "compression",
        TEXT,
        "Of Parquet files: `zstd`, `snappy`, `gzip`, `lz4`, `none`.",
        "zstd",
        choices=("zstd", "snappy", "gzip", "lz4", "none"),
    ),
    Key(
        "compact_to",
        SIZE,
        "About the size of the files that small ones become, once the watermark has passed their partition; "
        "`never` for none.",
        "128 MiB",
    ),
    Key("storage_options", MAPPING, "Options of the file system: `[sink.storage_options]`."),
)
_PATH: Final = Key("path", TEXT, "The folder of the table, a path or URL.", required=True)

SINKS: Final[dict[str, tuple[Key, ...]]] = {
    "parquet": (_PATH, *_TABLE_SINK),
    "delta": (_PATH, *_TABLE_SINK),
    "iceberg": (
        Key("catalog", TEXT, "The catalog's name.", required=True),
        Key("catalog_options", MAPPING, "pyiceberg's options of it: `[sink.catalog_options]` with `type`, `uri`, …"),
        Key("table", TEXT, "`namespace.table`.", required=True),
        *_TABLE_SINK,
    ),
    "topic": (
        Key(
            "bootstrap_servers",
            TEXT,
            "Brokers of the topic.",
            "those of the only source, with its `kafka.security.*`, `kafka.ssl.*` and `kafka.sasl.*` unless `options` "
            "has some",
        ),
        Key("topic", TEXT, "The topic.", required=True),
        Key("key_columns", TEXTS, "Rows are upserts by these columns; the topic is created compacted."),
        Key(
            "value_format",
            TEXT,
            "`raw`: the rows have columns `key` and `value`; `json`: all columns are the value.",
            "raw; with key_columns: json",
            choices=("raw", "json"),
        ),
        Key("options", MAPPING, "Further [options of the sink](spark-options.md#writing): `[sink.options]`."),
    ),
    "database": (
        Key("url", TEXT, "`sqlite:PATH` or a JDBC URL.", required=True),
        Key("table", TEXT, "The table; it is made where it is missing.", required=True),
        Key(
            "key_columns",
            TEXTS,
            "Rows are upserts by these columns. By JDBC they are appended with their batch in `ottla_batch`: "
            "the highest counts.",
            required=True,
        ),
        Key("options", MAPPING, "Options of JDBC: `[sink.options]` with `user`, `password`, `driver`."),
    ),
    "console": (Key("rows", NUMBER, "Rows of each batch that are printed.", "20"),),
}

MIRROR: Final = (
    Key("source_alias", TEXT, "MirrorMaker 2's name of the cluster that is read.", required=True),
    Key("target_alias", TEXT, "The same of the cluster that is written.", required=True),
    Key("source_bootstrap_servers", TEXT, "Brokers of the one.", required=True),
    Key("target_bootstrap_servers", TEXT, "Brokers of the other.", required=True),
    Key("topics", TEXT, "A regular expression that matches whole names of topics.", required=True),
    Key("groups", TEXT, "The same of groups whose offsets are translated.", ".*"),
    Key("group_id", TEXT, "The mirror's own group at the source.", "the pipeline's name"),
    Key("unchanged_names", FLAG, "Topics keep their names, else `alias.topic`.", "false"),
    Key("starting_offsets", TEXT, "`earliest` or `latest`, for a new checkpoint.", "earliest"),
    Key("max_offsets_per_trigger", NUMBER, "Most records of one batch."),
    Key(
        "refresh_interval", DURATION, "Between two looks for new topics, partitions, settings and groups.", "30 seconds"
    ),
    Key("source_settings", MAPPING, "Client settings of the one: `[mirror.source_settings]`."),
    Key("target_settings", MAPPING, "Client settings of the other: `[mirror.target_settings]`."),
)
