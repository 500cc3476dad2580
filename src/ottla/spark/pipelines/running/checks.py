"""The checks of `ottla pipeline check` before a pipeline runs: packages, clusters, topics, schema, SQL, sinks.

Each check is bounded in time and needs no Spark. They leave nothing behind but a note in the checkpoint's folder; in
the place of a table they create and remove a small file.
"""

from __future__ import annotations

import difflib
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.client.errors import ClientError
from ottla.records.extras import missing_extra
from ottla.spark.connection import BOOTSTRAP, connect, reading
from ottla.spark.errors import SparkRefusal
from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.mirroring.ends import check_two_clusters, target_of
from ottla.spark.pipelines.queries.checkpoint import QueryCheckpoint
from ottla.spark.pipelines.queries.inspection import DEAD_LETTER_COLUMNS
from ottla.spark.pipelines.queries.starting import check_fit
from ottla.spark.pipelines.running.clusters import ReadCluster, read_clusters
from ottla.spark.pipelines.running.control import Liveness, RunnerNotes
from ottla.spark.pipelines.running.process import host_name, is_running
from ottla.spark.pipelines.running.sql_columns import Columns, View, lacking, look_at, read_views
from ottla.spark.pipelines.settings.model import (
    ConsoleSinkSettings,
    DatabaseSinkSettings,
    PipelineSettings,
    SinkSettings,
    StepSettings,
    TableSinkSettings,
    TopicSinkSettings,
)
from ottla.spark.pipelines.settings.sections import SQLITE
from ottla.spark.pipelines.tables.filesystems import open_filesystem
from ottla.spark.pipelines.tables.opening import open_table
from ottla.spark.sink.options import parse_write_options
from ottla.spark.source.partitions import selected_partitions

if TYPE_CHECKING:
    from sqlglot import exp

_SPARK = (("pyspark", "spark"), ("pyarrow", "spark"))
_WINDOW = re.compile(r"\bwindow\s*\(", re.IGNORECASE)
_OF_FORMATS = {"delta": ("deltalake", "delta"), "iceberg": ("pyiceberg", "iceberg")}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One look: at what, whether all is well, and what was found or what to do. None: it was not looked at."""

    what: str
    passed: bool | None
    detail: str


def check_pipeline(settings: PipelineSettings, timeout_ms: int, now_ms: int) -> Iterator[CheckResult]:
    """Look at everything, one by one; brokers have `timeout_ms` to answer."""
    yield from _packages(settings)
    yield _looked("checkpoint", lambda: _checkpoint(settings))
    yield _looked("runner", lambda: _runner(settings, now_ms))
    try:
        clusters = read_clusters(settings)
    except PipelineError as problem:
        clusters = []
        yield CheckResult("sources", False, str(problem))
    for cluster in clusters:
        yield _looked(f"source {cluster.name}", partial(_source, cluster, timeout_ms))
    if settings.mirror is not None:
        yield _looked(f"target {settings.mirror.target_alias}", lambda: _mirror_target(settings, timeout_ms))
        return
    yield from _sql(settings)
    for table in settings.tables:
        yield _looked(f"table {table.name}", partial(_place, table.path, {}))
    for what, sink, writer in (
        ("sink", settings.sink, settings.name),
        ("dead letters", settings.dead_letters, f"{settings.name}/dead-letters"),
    ):
        if sink is not None:
            yield _looked(what, partial(_sink, settings, sink, writer, timeout_ms))


def _looked(what: str, look: Callable[[], tuple[bool | None, str]]) -> CheckResult:
    """The look's result; what it raises for a user's mistake is a result, too."""
    try:
        return CheckResult(what, *look())
    except (PipelineError, ClientError, SparkRefusal, ImportError, OSError) as problem:
        return CheckResult(what, False, str(problem))


def _packages(settings: PipelineSettings) -> Iterator[CheckResult]:
    needed = list(_SPARK)
    if settings.steps:
        needed.append(("sqlglot", "pipelines"))
    tables = [each for each in (settings.sink, settings.dead_letters) if isinstance(each, TableSinkSettings)]
    needed.extend(_OF_FORMATS[each.format] for each in tables if each.format in _OF_FORMATS)
    missing = [(module, extra) for module, extra in dict.fromkeys(needed) if find_spec(module) is None]
    if not missing:
        yield CheckResult("packages", True, ", ".join(module for module, _ in dict.fromkeys(needed)))
    for module, extra in missing:
        yield CheckResult("packages", False, missing_extra("this pipeline", extra, module))


def _checkpoint(settings: PipelineSettings) -> tuple[bool, str]:
    checkpoint = QueryCheckpoint(settings.checkpoint)
    finished = checkpoint.newest_finished()
    checkpoint.write_note("check", {})
    if finished is None:
        return True, f"{settings.checkpoint} can be written; no batch has finished yet"
    return True, f"{settings.checkpoint} can be written; batch {finished:,} has finished"


def _runner(settings: PipelineSettings, now_ms: int) -> tuple[bool, str]:
    runner = RunnerNotes(settings.checkpoint).runner(host_name(), now_ms, is_running)
    if runner.liveness is Liveness.alive:
        return False, f"one is there already ({runner.reason}); end it by ottla pipeline stop"
    if runner.liveness is Liveness.unknown:
        return True, f"{runner.reason}; a second one would make it end"
    return True, runner.reason


def _source(cluster: ReadCluster, timeout_ms: int) -> tuple[bool, str]:
    options = cluster.parsed()  # the schema of values, and files that it names, are read here
    selection = options.selection
    with connect(options.connection, timeout_ms) as client:
        found = selected_partitions(client, selection)
    if not found:
        return True, f"no topic matches {selection.pattern} yet; it is read once there is one"
    topics = sorted({each.topic for each in found})
    shown = ", ".join(topics[:3]) + (f" and {len(topics) - 3} more" if len(topics) > 3 else "")
    return True, f"{shown}: {len(found):,} partitions, group {cluster.group_id}"


def _mirror_target(settings: PipelineSettings, timeout_ms: int) -> tuple[bool, str]:
    from ottla.spark.pipelines.mirroring.start import check_mirror

    mirror = check_mirror(settings)
    target = target_of(mirror)
    with target.client(timeout_ms) as client:
        there = len(client.topics())
    with suppress(ClientError):  # A source that does not answer is said with the source.
        check_two_clusters(mirror, timeout_ms)
    return True, f"{target.bootstrap_servers} answers and has {there:,} topics"


def _sql(settings: PipelineSettings) -> Iterator[CheckResult]:
    if find_spec("sqlglot") is None:
        return
    views = {each.name.lower(): each for each in read_views(settings)}
    last = next(iter(views.values())) if len(views) == 1 else None
    for step in settings.steps:
        last = View(step.name, is_stream=True)

        def look(step: StepSettings = step) -> tuple[bool, str]:
            nonlocal last
            passed, detail, last = _step(step, views, settings.output_mode)
            return passed, detail

        yield _looked(f"step {step.name}", look)
        views[step.name.lower()] = last
    yield from _columns_of_sinks(settings, None if last is None else last.columns)


def _columns_of_sinks(settings: PipelineSettings, columns: Columns) -> Iterator[CheckResult]:
    """Report columns that sinks' settings name and rows lack; nothing where all are there or cannot be known."""
    for what, sink, existing in (
        ("sink columns", settings.sink, columns),
        ("dead letters columns", settings.dead_letters, DEAD_LETTER_COLUMNS),
    ):
        problem = None
        if isinstance(sink, TableSinkSettings):
            problem = lacking("partition_by", sink.partition_by, existing)
        elif isinstance(sink, TopicSinkSettings | DatabaseSinkSettings):
            problem = lacking("key_columns", sink.key_columns, existing)
        if problem is not None:
            yield CheckResult(what, False, problem)


def _step(step: StepSettings, views: Mapping[str, View], output_mode: str) -> tuple[bool, str, View]:
    nothing = View(step.name, is_stream=True)
    passed, detail, tree = _parsed(step.sql, [each.name for each in views.values()])
    if tree is None:
        return passed, detail, nothing
    found = look_at(step.name, tree, views, output_mode)
    if found.problem is not None:
        return False, found.problem, found.view
    view = replace(found.view, has_watermark=found.view.has_watermark or step.watermark_column is not None)
    columns = view.columns
    for setting, names in (
        ("watermark_column", (step.watermark_column,) if step.watermark_column is not None else ()),
        ("deduplicate_by", step.deduplicate_by),
    ):
        problem = lacking(setting, names, columns, as_spark=True)
        if problem is not None:
            return False, problem, view
    shown = "columns are looked up when it starts" if columns is None else f"gives {', '.join(columns)}"
    return True, f"{detail}; {shown}", view


def _parsed(text: str, views: Sequence[str]) -> tuple[bool, str, exp.Query | None]:
    import sqlglot
    from sqlglot import exp

    try:
        # sqlglot takes `GROUP BY window(…)` for the clause of that name; as a function of another name it reads it.
        parsed = sqlglot.parse(_WINDOW.sub("event_window(", text), dialect="spark")
    except sqlglot.errors.SqlglotError as problem:
        first = (str(problem).strip().splitlines() or [""])[0]
        return False, f"it is not SQL as sqlglot reads Spark's: {_plain(first)}", None
    if len(parsed) != 1 or not isinstance(parsed[0], exp.Query):
        return False, "a step is one SELECT; make several steps of several", None
    inner = {each.alias_or_name.lower() for each in parsed[0].find_all(exp.CTE)}
    known = {each.lower(): each for each in views}
    for table in parsed[0].find_all(exp.Table):
        name = table.name
        if table.db or not name or name.lower() in inner or name.lower() in known:
            continue
        near = difflib.get_close_matches(name.lower(), known, n=1)
        cure = f"did you mean {known[near[0]]}?" if near else f"so far there are {', '.join(views)}"
        return False, f"there is no view {name!r}; {cure}", None
    used = sorted({known[each.name.lower()] for each in parsed[0].find_all(exp.Table) if each.name.lower() in known})
    return True, f"reads {', '.join(used) or 'no view'}", parsed[0]


def _plain(text: str) -> str:
    """The text without the escape sequences that sqlglot underlines with."""
    return text.replace("\x1b[4m", "").replace("\x1b[0m", "")


def _sink(settings: PipelineSettings, sink: SinkSettings, writer: str, timeout_ms: int) -> tuple[bool | None, str]:
    if isinstance(sink, ConsoleSinkSettings):
        return True, "the console"
    if isinstance(sink, TopicSinkSettings):
        return _topic(sink, timeout_ms)
    if isinstance(sink, DatabaseSinkSettings):
        return _database(sink)

    table = open_table(sink, writer)
    last = table.last_commit()
    table.try_writing()
    if last is not None:
        check_fit(QueryCheckpoint(settings.checkpoint), settings, last)
    where = sink.path or f"{sink.catalog}: {sink.table}"
    return True, f"{sink.format} table {where}: " + ("no batch yet" if last is None else f"has batch {last.batch_id:,}")


def _topic(sink: TopicSinkSettings, timeout_ms: int) -> tuple[bool, str]:
    options = parse_write_options({**sink.options, BOOTSTRAP: sink.bootstrap_servers})
    with connect(reading(options.connection), timeout_ms) as client:
        if sink.topic in client.topics():
            return True, f"topic {sink.topic}: {len(client.partitions([sink.topic])[sink.topic]):,} partitions"
    return True, f"topic {sink.topic} is not there yet; it is created at the start"


def _database(sink: DatabaseSinkSettings) -> tuple[bool | None, str]:
    if not sink.url.startswith(SQLITE):
        return None, f"{sink.url}: Spark's driver connects when it starts"
    path = Path(sink.url.removeprefix(SQLITE))
    if not path.parent.is_dir():
        return False, f"{path.parent} is not a folder; make it"
    if not path.exists():
        return True, f"{path} is made at the start"
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error as problem:
        return False, f"{path} is no SQLite database ({problem}); name another file"
    return True, f"{path} is there"


def _place(url: str, storage_options: dict[str, str]) -> tuple[bool, str]:
    import pyarrow.fs

    filesystem, path = open_filesystem(url, storage_options)
    if filesystem.get_file_info(path).type is pyarrow.fs.FileType.NotFound:
        return False, f"{url} is not there; correct its path"
    return True, url
