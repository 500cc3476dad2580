"""A pipeline's file: TOML, checked key by key, with the presets of its kind; each problem is a sentence with the cure.

Nothing is looked up but the file, what it refers to by `${file:…}`, and the environment that is given.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from ottla.spark.options import KAFKA_PREFIX
from ottla.spark.pipelines.errors import PipelineSettingsError
from ottla.spark.pipelines.settings import keys
from ottla.spark.pipelines.settings.checked_table import CheckedTable
from ottla.spark.pipelines.settings.model import (
    ConsoleSinkSettings,
    DatabaseSinkSettings,
    NewFields,
    PipelineKind,
    PipelineSettings,
    SinkSettings,
    SourceSettings,
    StepSettings,
    TableSinkSettings,
    TopicSinkSettings,
)
from ottla.spark.pipelines.settings.references import References, redacted
from ottla.spark.pipelines.settings.sections import (
    BOOTSTRAP_VARIABLE,
    FileContext,
    read_mirror,
    read_sink,
    read_sources,
    read_spark,
    read_static_tables,
    read_trigger,
    view_name,
    watermark,
)

#: Bytes of a pipeline's file; more is another kind of file.
MAX_FILE_BYTES: Final = 1024 * 1024
#: Of an archive: the column of its partition folders, and event time where the file names none.
DAY: Final = "day"
ARCHIVE_WATERMARK: Final = ("timestamp", "1 hour")

BOOTSTRAP_SERVERS: Final = "bootstrap.servers"
_PIPELINE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
#: What only a mirror has not.
_NOT_OF_A_MIRROR: Final = ("source", "sources", "tables", "steps", "sink", "dead_letters", "output_mode", "new_fields")


def load_pipeline(
    path: Path, environment: Mapping[str, str], client_settings: Mapping[str, str] = MappingProxyType({})
) -> PipelineSettings:
    """Read a pipeline's file. `environment` is for `${env:…}` and the brokers that the file does not name.

    `client_settings` are those of clients of these brokers, which a named cluster has.

    Raises PipelineSettingsError, which names the file and no secret.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise PipelineSettingsError(f"{path} has more than {MAX_FILE_BYTES >> 20} MiB")
        top = tomllib.loads(content.decode("utf-8-sig"))  # Editors of Windows put a byte order mark first.
    except OSError as problem:
        raise PipelineSettingsError(f"cannot read {path}: {problem.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise PipelineSettingsError(f"{path} is not TOML: {problem}") from None
    references = References(path.absolute().parent, environment)
    try:
        return _pipeline(top, references, path.absolute().parent, environment, client_settings)
    except PipelineSettingsError as problem:
        raise PipelineSettingsError(f"{path.name}: {redacted(str(problem), references.secrets)}") from None


def _pipeline(
    top: Mapping[str, Any],
    references: References,
    folder: Path,
    environment: Mapping[str, str],
    client_settings: Mapping[str, str],
) -> PipelineSettings:
    table = CheckedTable("", top, keys.TOP, references, sections=keys.SECTIONS)
    name, kind = table.plain("name") or "", PipelineKind(table.plain("kind") or PipelineKind.stream)
    if not _PIPELINE_NAME.fullmatch(name):
        raise table.refusal("name", "give letters, digits, -, _ and ., a letter or digit first, 200 at most")
    options = {f"{KAFKA_PREFIX}{each}": value for each, value in client_settings.items() if each != BOOTSTRAP_SERVERS}
    context = FileContext(references, folder, name, environment.get(BOOTSTRAP_VARIABLE) or None, options)
    checkpoint = context.place(table.needed("checkpoint").rstrip("/"))
    spark, trigger = read_spark(top.get("spark", {}), context), read_trigger(top.get("trigger", {}), context)
    if kind is PipelineKind.mirror:
        unfit = [each for each in _NOT_OF_A_MIRROR if each in top]
        if unfit:
            raise PipelineSettingsError(f'kind = "mirror" has no {unfit[0]}; a mirror copies records as they are')
        if "mirror" not in top:
            raise PipelineSettingsError("[mirror] is missing: the clusters and topics")
        mirror = read_mirror(top["mirror"], context)
        return PipelineSettings(
            name=name,
            kind=kind,
            checkpoint=checkpoint,
            spark=spark,
            trigger=trigger,
            mirror=mirror,
            secrets=references.secrets,
        )
    if "mirror" in top:
        raise PipelineSettingsError(f'[mirror] is of kind = "mirror" only, and that is {kind.value!r}')
    sources = read_sources(top, context, ARCHIVE_WATERMARK if kind is PipelineKind.archive else (None, None))
    tables = read_static_tables(top, context)
    sink = _sink(kind, top, context, sources)
    views = [*(each.name for each in sources), *(each.name for each in tables)]
    steps = _steps(kind, top, context, sources, views, sink)
    return PipelineSettings(
        name=name,
        kind=kind,
        checkpoint=checkpoint,
        spark=spark,
        trigger=trigger,
        sources=sources,
        tables=tables,
        steps=steps,
        output_mode=_output_mode(kind, table, sink),
        new_fields=NewFields(table.text("new_fields") or NewFields.ignore),
        dead_letters=_dead_letters(top, context, sources),
        sink=sink,
        secrets=references.secrets,
    )


def _cluster(sources: Sequence[SourceSettings]) -> SourceSettings | None:
    """A source of the only cluster that is read."""
    return sources[0] if len({each.bootstrap_servers for each in sources}) == 1 else None


def _sink(
    kind: PipelineKind, top: Mapping[str, Any], context: FileContext, sources: Sequence[SourceSettings]
) -> SinkSettings:
    if "sink" not in top:
        raise PipelineSettingsError("[sink] is missing: where the rows go")
    has_steps = bool(top.get("steps"))
    partition_by = (DAY,) if kind is PipelineKind.archive and not has_steps else ()
    sink = read_sink(
        "[sink]",
        top["sink"],
        context,
        sink_kinds=keys.SINK_KINDS,
        cluster=_cluster(sources),
        partition_by=partition_by,
    )
    if kind is PipelineKind.archive:
        if not isinstance(sink, TableSinkSettings):
            raise PipelineSettingsError(
                f'[sink] kind: kind = "archive" needs a table: {", ".join(keys.TABLE_FORMATS)}; '
                'other sinks are of kind = "stream"'
            )
        if has_steps and "partition_by" not in top["sink"]:
            raise PipelineSettingsError(
                "[sink] partition_by is missing: an archive with steps of its own says by which columns "
                '(SELECT …, CAST(timestamp AS DATE) AS day with partition_by = ["day"]; [] for none)'
            )
    if kind is PipelineKind.online and not (
        isinstance(sink, ConsoleSinkSettings | DatabaseSinkSettings)
        or (isinstance(sink, TopicSinkSettings) and sink.key_columns)
    ):
        raise PipelineSettingsError(
            '[sink]: kind = "online" needs upserts: a topic or database with key_columns; '
            'other sinks are of kind = "stream"'
        )
    return sink


def _output_mode(kind: PipelineKind, table: CheckedTable, sink: SinkSettings) -> str:
    mode = table.text("output_mode")
    if mode is None:
        return "update" if kind is PipelineKind.online else "append"
    if mode != "append" and isinstance(sink, TableSinkSettings):
        raise table.refusal("output_mode", f"rows of a table are appended, never changed; {mode!r} needs another sink")
    if mode == "append" and kind is PipelineKind.online:
        raise table.refusal("output_mode", 'kind = "online" shows results as they change; append is of kind = "stream"')
    return mode


def _dead_letters(
    top: Mapping[str, Any], context: FileContext, sources: Sequence[SourceSettings]
) -> TableSinkSettings | TopicSinkSettings | None:
    if "dead_letters" not in top:
        return None
    if all(each.value_format == "raw" for each in sources):
        raise PipelineSettingsError(
            '[dead_letters] has nothing to take: raw values are never bad; give a source value_format = "json"'
        )
    sink = read_sink(
        "[dead_letters]", top["dead_letters"], context, sink_kinds=keys.DEAD_LETTER_KINDS, cluster=_cluster(sources)
    )
    assert isinstance(sink, TableSinkSettings | TopicSinkSettings)
    return sink


def _steps(
    kind: PipelineKind,
    top: Mapping[str, Any],
    context: FileContext,
    sources: Sequence[SourceSettings],
    views: list[str],
    sink: SinkSettings,
) -> tuple[StepSettings, ...]:
    tables = top.get("steps", [])
    if not isinstance(tables, list):
        raise PipelineSettingsError("[steps] is a list of tables; write [[steps]] above each")
    if not tables:
        return (_default_step(kind, sources, sink),)
    has_watermark = any(each.watermark_column for each in sources)
    steps: list[StepSettings] = []
    for number, content in enumerate(tables, start=1):
        table = CheckedTable(f"[[steps]] {number}", content, keys.STEP, context.references)
        column, delay = watermark(table)
        has_watermark |= column is not None
        step = StepSettings(
            name=view_name(table.text("name") or f"step{number}", table.where("name")),
            sql=table.needed("sql"),
            watermark_column=column,
            watermark_delay=delay,
            deduplicate_by=table.texts("deduplicate_by"),
        )
        if step.deduplicate_by and not has_watermark:
            raise table.refusal(
                "deduplicate_by", "it needs a watermark, here or before; without one Spark keeps every row for ever"
            )
        steps.append(step)
    names = [*views, *(each.name for each in steps)]
    _refuse_doubles(names)
    return tuple(steps)


def _refuse_doubles(names: Sequence[str]) -> None:
    lower = [name.lower() for name in names]
    twice = next((name for at, name in enumerate(names) if name.lower() in lower[:at]), None)
    if twice is not None:
        raise PipelineSettingsError(
            f"two views have the name {twice!r}; sources, tables and steps need names of their own"
        )


def _default_step(kind: PipelineKind, sources: Sequence[SourceSettings], sink: SinkSettings) -> StepSettings:
    """All columns of the only source as they are; of an archive with the day of the record's timestamp."""
    if len(sources) > 1:
        raise PipelineSettingsError("[[steps]] is missing: several sources need SQL that says what becomes of them")
    if kind is PipelineKind.online:
        raise PipelineSettingsError('[[steps]] is missing: kind = "online" needs SQL that says what is computed')
    source = sources[0].name
    is_by_day = isinstance(sink, TableSinkSettings) and DAY in sink.partition_by and kind is PipelineKind.archive
    day = f", CAST(timestamp AS DATE) AS {DAY}" if is_by_day else ""
    return StepSettings(name="rows", sql=f"SELECT *{day} FROM {source}")
