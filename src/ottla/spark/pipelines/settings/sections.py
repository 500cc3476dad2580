"""The sections of a pipeline's file: Spark, trigger, sources, static tables, sinks, mirror."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ottla.spark.pipelines.errors import PipelineSettingsError
from ottla.spark.pipelines.settings import keys
from ottla.spark.pipelines.settings.checked_table import CheckedTable
from ottla.spark.pipelines.settings.keys import Key, KeyType
from ottla.spark.pipelines.settings.model import (
    ConsoleSinkSettings,
    DatabaseSinkSettings,
    MirrorSettings,
    SinkSettings,
    SourceSettings,
    SparkSettings,
    StaticTableSettings,
    TableSinkSettings,
    TopicSinkSettings,
    TriggerSettings,
)
from ottla.spark.pipelines.settings.references import References

#: The variable with the brokers of sources and topics that name none.
BOOTSTRAP_VARIABLE: Final = "OTTLA_BOOTSTRAP_SERVER"
#: The view of `[source]`.
ONLY_SOURCE: Final = "source"
SQLITE: Final = "sqlite:"

_SECURITY: Final = ("kafka.security.", "kafka.ssl.", "kafka.sasl.")
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_MASTER: Final = re.compile(r"(local(\[(\*|[1-9]\d*)(,\d+)?\])?|yarn|spark://.+|k8s://.+|mesos://.+)")


@dataclass(frozen=True, slots=True)
class FileContext:
    """The context of all sections: the file's references, its folder, the pipeline's name, the other brokers.

    `options` of a source are those of a named cluster, where these brokers are its own.
    """

    references: References
    folder: Path
    name: str
    bootstrap_servers: str | None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def place(self, path: str) -> str:
        """A path as an absolute one; a URL as it is."""
        return path if "://" in path else os.path.normpath(self.folder / path)


def view_name(name: str, where: str) -> str:
    """A name that SQL can use without quotes. Raises PipelineSettingsError."""
    if not _NAME.fullmatch(name):
        raise PipelineSettingsError(f"{where}: {name!r} is not a name for a view; use letters, digits and _")
    return name


def pattern(text: str, table: CheckedTable, key: str) -> str:
    """A regular expression. Raises PipelineSettingsError."""
    try:
        re.compile(text)
    except re.error as problem:
        raise table.refusal(key, f"it is not a regular expression ({problem})") from None
    return text


def watermark(
    table: CheckedTable, defaults: tuple[str | None, str | None] = (None, None)
) -> tuple[str | None, str | None]:
    """Column and delay: both or none. Raises PipelineSettingsError."""
    column, delay = table.text("watermark_column"), table.text("watermark_delay")
    if column is None and delay is None:
        return defaults
    if column is None or delay is None:
        missing, present = (
            ("watermark_delay", "watermark_column") if delay is None else ("watermark_column", "watermark_delay")
        )
        raise table.refusal(present, f"it needs {missing}, too; give both or none")
    return column, delay


def read_spark(content: object, context: FileContext) -> SparkSettings:
    """`[spark]`. Raises PipelineSettingsError."""
    table = CheckedTable("[spark]", content, keys.SPARK, context.references)
    master, remote = table.text("master"), table.text("remote")
    if master is not None and remote is not None:
        raise table.refusal("remote", "it contradicts master; give one of them")
    if master is not None and not _MASTER.fullmatch(master):
        raise table.refusal("master", "it is not a master; give local[*], local[2], spark://host:7077, k8s://… or yarn")
    if remote is not None and not remote.startswith("sc://"):
        raise table.refusal("remote", "it is not an address of Spark Connect; give sc://host:15002")
    conf = table.mapping("conf")
    for name, key in (("spark.master", "master"), ("spark.remote", "remote"), ("spark.driver.memory", "memory")):
        if name in conf:
            raise table.refusal(f"conf.{name}", f"give it as {key}")
    default = SparkSettings()
    return SparkSettings(
        master=master or default.master, remote=remote, memory=table.text("memory") or default.memory, conf=conf
    )


def read_trigger(content: object, context: FileContext) -> TriggerSettings:
    """`[trigger]`. Raises PipelineSettingsError."""
    table = CheckedTable("[trigger]", content, keys.TRIGGER, context.references)
    available_now = table.flag("available_now")
    if available_now and "interval" in table:
        raise table.refusal("interval", "it contradicts available_now = true; leave one of them out")
    return TriggerSettings(
        interval_ms=table.duration_ms("interval") or TriggerSettings().interval_ms, available_now=available_now
    )


def read_sources(
    top: Mapping[str, Any], context: FileContext, watermark_defaults: tuple[str | None, str | None]
) -> tuple[SourceSettings, ...]:
    """`[source]` or `[sources.NAME]`. Raises PipelineSettingsError."""
    if "source" in top and "sources" in top:
        raise PipelineSettingsError("[source] and [sources] contradict each other; put all sources into [sources.NAME]")
    if "source" in top:
        return (_source("[source]", ONLY_SOURCE, context.name, top["source"], context, watermark_defaults),)
    several = named_tables("sources", top, context)
    if not several:
        raise PipelineSettingsError("[source] is missing: the topics that are read")
    group = context.name if len(several) == 1 else f"{context.name}-{{}}"
    return tuple(
        _source(f"[sources.{name}]", name, group.format(name), content, context, watermark_defaults)
        for name, content in several.items()
    )


def named_tables(section: str, top: Mapping[str, Any], context: FileContext) -> Mapping[str, Any]:
    """The tables `[section.NAME]`, their names checked. Raises PipelineSettingsError."""
    found = top.get(section, {})
    if not isinstance(found, Mapping) or not all(isinstance(each, Mapping) for each in found.values()):
        raise PipelineSettingsError(f"[{section}] holds tables by their names; write [{section}.NAME]")
    for name in found:
        view_name(name, f"[{section}.{name}]")
    return found


def _source(
    title: str,
    name: str,
    group_id: str,
    content: object,
    context: FileContext,
    watermark_defaults: tuple[str | None, str | None],
) -> SourceSettings:
    table = CheckedTable(title, content, keys.SOURCE, context.references)
    topics, topic_pattern = table.texts("topics"), table.text("topic_pattern")
    if bool(topics) == (topic_pattern is not None):
        both = "topics and topic_pattern contradict each other" if topics else "topics is missing"
        raise PipelineSettingsError(f"{title}: {both}; give exactly one of topics and topic_pattern")
    value_format, schema = table.text("value_format") or "raw", table.text("schema")
    if value_format == "json" and not (schema or "").strip():
        raise PipelineSettingsError(f'{title} schema is missing; value_format = "json" needs columns: "id BIGINT, …"')
    if value_format != "json" and schema is not None:
        raise table.refusal("schema", f'it is of value_format = "json" only, and that is {value_format!r}')
    column, delay = watermark(table, watermark_defaults)
    options = table.mapping("options")
    _refuse_own(table, "options", options, _OPTIONS_OF_KEYS)
    if "bootstrap_servers" not in table:
        written = {name.lower() for name in options}
        options |= {name: value for name, value in context.options.items() if name not in written}
    return SourceSettings(
        name=name,
        bootstrap_servers=_brokers(table, context.bootstrap_servers),
        group_id=table.text("group_id") or group_id,
        topics=topics,
        topic_pattern=None if topic_pattern is None else pattern(topic_pattern, table, "topic_pattern"),
        starting_offsets=_starting(table),
        max_offsets_per_trigger=table.number("max_offsets_per_trigger"),
        value_format=value_format,
        schema=schema,
        watermark_column=column,
        watermark_delay=delay,
        options=options,
    )


#: Options of the source that the file has keys for.
_OPTIONS_OF_KEYS: Final = {
    "kafka.bootstrap.servers": "bootstrap_servers",
    "subscribe": "topics",
    "subscribepattern": "topic_pattern",
    "assign": "topics",
    "kafka.group.id": "group_id",
    "groupid": "group_id",
    "startingoffsets": "starting_offsets",
    "maxoffsetspertrigger": "max_offsets_per_trigger",
    "valueformat": "value_format",
}


def _refuse_own(table: CheckedTable, key: str, options: Mapping[str, str], own: Mapping[str, str]) -> None:
    for option in options:
        if option.lower() in own:
            raise table.refusal(f"{key}.{option}", f"give it as {own[option.lower()]}")


def _brokers(table: CheckedTable, default: str | None, cure: str = "") -> str:
    servers = table.text("bootstrap_servers") or default
    if not servers or not servers.strip():
        raise PipelineSettingsError(
            f"{table.where('bootstrap_servers')} is missing; give it here, "
            f"{cure or f'by --bootstrap-server or in {BOOTSTRAP_VARIABLE}'}"
        )
    return servers


def _starting(table: CheckedTable, choices: tuple[str, ...] = ("earliest", "latest", "committed")) -> str:
    text = table.text("starting_offsets") or "earliest"
    if text not in choices and not (text.lstrip().startswith("{") and "committed" in choices):
        raise table.refusal("starting_offsets", f"give {' or '.join(choices)}")
    return text


def read_static_tables(top: Mapping[str, Any], context: FileContext) -> tuple[StaticTableSettings, ...]:
    """`[tables.NAME]`. Raises PipelineSettingsError."""
    found = []
    for name, content in named_tables("tables", top, context).items():
        table = CheckedTable(f"[tables.{name}]", content, keys.STATIC_TABLE, context.references)
        place = context.place(table.needed("path"))
        found.append(
            StaticTableSettings(name=name, format=table.needed("format"), path=place, options=table.mapping("options"))
        )
    return tuple(found)


def read_sink(
    title: str,
    content: object,
    context: FileContext,
    *,
    sink_kinds: tuple[str, ...],
    cluster: SourceSettings | None,
    partition_by: tuple[str, ...] = (),
) -> SinkSettings:
    """`[sink]` or `[dead_letters]`, of one of these `sink_kinds`. A topic without brokers is in the `cluster` of a
    source.

    Raises PipelineSettingsError.
    """
    if not isinstance(content, Mapping):
        raise PipelineSettingsError(f"{title} is not a table")
    kind_key = Key("kind", KeyType.text, "", required=True, choices=sink_kinds)
    kind = CheckedTable(
        title, {name: each for name, each in content.items() if name == "kind"}, (kind_key,), context.references
    )
    chosen = kind.needed("kind")
    rest = {name: each for name, each in content.items() if name != "kind"}
    table = CheckedTable(f'{title} of kind "{chosen}"', rest, keys.SINKS[chosen], context.references)
    if chosen in keys.TABLE_FORMATS:
        return _table_sink(chosen, table, context, partition_by)
    if chosen == "topic":
        return _topic_sink(table, cluster)
    if chosen == "database":
        return _database_sink(table, context)
    return ConsoleSinkSettings(rows=table.number("rows") or ConsoleSinkSettings().rows)


def _table_sink(
    kind: str, table: CheckedTable, context: FileContext, partition_by: tuple[str, ...]
) -> TableSinkSettings:
    default = TableSinkSettings(format=kind)
    return TableSinkSettings(
        format=kind,
        path=None if kind == "iceberg" else context.place(table.needed("path")),
        catalog=table.needed("catalog") if kind == "iceberg" else None,
        catalog_options=table.mapping("catalog_options"),
        table=_dotted(table) if kind == "iceberg" else None,
        partition_by=table.texts("partition_by") if "partition_by" in table else partition_by,
        compression=table.text("compression") or default.compression,
        storage_options=table.mapping("storage_options"),
        compact_to_bytes=table.size_bytes("compact_to", default.compact_to_bytes or 0),
    )


def _dotted(table: CheckedTable) -> str:
    name = table.needed("table")
    if not all(name.split(".")) or "." not in name:
        raise table.refusal("table", "give it as namespace.table")
    return name


def _topic_sink(table: CheckedTable, cluster: SourceSettings | None) -> TopicSinkSettings:
    key_columns = table.texts("key_columns")
    value_format = table.text("value_format") or ("json" if key_columns else "raw")
    if key_columns and value_format == "raw":
        raise table.refusal("key_columns", 'the key is made of these; the value then needs value_format = "json"')
    options = table.mapping("options")
    if cluster is not None and "bootstrap_servers" not in table and not _of_security(options):
        options |= _of_security(cluster.options)
    brokers = None if cluster is None else cluster.bootstrap_servers
    return TopicSinkSettings(
        bootstrap_servers=_brokers(table, brokers, "since there are several sources"),
        topic=table.needed("topic"),
        key_columns=key_columns,
        value_format=value_format,
        options=options,
    )


def _of_security(options: Mapping[str, str]) -> dict[str, str]:
    """The options that say how connections are secured."""
    return {name: value for name, value in options.items() if name.lower().startswith(_SECURITY)}


def _database_sink(table: CheckedTable, context: FileContext) -> DatabaseSinkSettings:
    url, key_columns = table.needed("url"), table.texts("key_columns")
    if not key_columns:
        raise table.refusal("key_columns", "name at least one column; rows are upserts by these")
    if url.startswith(SQLITE):
        path = url.removeprefix(SQLITE).removeprefix("//")
        if not path:
            raise table.refusal("url", "it names no file; give sqlite:PATH")
        url = SQLITE + context.place(path)
    elif not url.startswith("jdbc:"):
        raise table.refusal("url", "give sqlite:PATH or jdbc:…")
    return DatabaseSinkSettings(
        url=url, table=table.needed("table"), key_columns=key_columns, options=table.mapping("options")
    )


def read_mirror(content: object, context: FileContext) -> MirrorSettings:
    """`[mirror]`. Raises PipelineSettingsError."""
    table = CheckedTable("[mirror]", content, keys.MIRROR, context.references)
    source, target = table.needed("source_alias"), table.needed("target_alias")
    if source == target:
        raise table.refusal("target_alias", "it is the source's, too; the clusters need two names")
    return MirrorSettings(
        source_alias=source,
        target_alias=target,
        source_bootstrap_servers=table.needed("source_bootstrap_servers"),
        target_bootstrap_servers=table.needed("target_bootstrap_servers"),
        topics=pattern(table.needed("topics"), table, "topics"),
        groups=pattern(table.text("groups") or ".*", table, "groups"),
        group_id=table.text("group_id") or context.name,
        unchanged_names=table.flag("unchanged_names"),
        starting_offsets=_starting(table, ("earliest", "latest")),
        max_offsets_per_trigger=table.number("max_offsets_per_trigger"),
        refresh_interval_ms=table.duration_ms("refresh_interval") or 30_000,
        source_settings=table.mapping("source_settings"),
        target_settings=table.mapping("target_settings"),
    )
