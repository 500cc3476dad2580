"""The fast path of a pipeline into a table: Spark's tasks read, decode, select and write with pyarrow.

It is for SQL of only columns, casts and filters (`plan.py`). Only ranges of offsets go from Spark to the
tasks, and only manifests of files come back: no record crosses into the JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow

from ottla.spark.data_sources import register_source
from ottla.spark.errors import message_only
from ottla.spark.pipelines.settings.model import PipelineSettings, SourceSettings, StepSettings, TableSinkSettings
from ottla.spark.pipelines.tables.contract import EndOffsets, StagedFile, Staging
from ottla.spark.pipelines.writing.expressions import Expression, OneSelect, as_array
from ottla.spark.pipelines.writing.files import take_memory_of_the_system, write_files
from ottla.spark.pipelines.writing.manifests import MANIFEST_COLUMNS, as_last_row, as_rows, written_rows
from ottla.spark.pipelines.writing.plan import SqlPlan, SqlRules, plan_steps
from ottla.spark.pipelines.writing.refusals import PartitionRule, RefusedRows
from ottla.spark.pipelines.writing.schemas import arrow_schema, arrow_schema_of
from ottla.spark.pipelines.writing.splitting import check_partition_columns
from ottla.spark.versions import Versioned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ottla.spark.source.options import ReadOptions
    from ottla.spark.source.planning import PartitionRange

#: A batch with fewer records than this is written by one task: one file for each folder.
RECORDS_PER_TASK = 100_000
#: More records than this are not given to one task, where all cores have one: a task that fails is run again whole.
MOST_RECORDS_PER_TASK = 250_000
#: A column beside those of a source's view, whose names SQL can say: where a row was.
_PLACE = "\0place"
_UTC = frozenset({"UTC", "Etc/UTC", "GMT", "Z", "+00:00"})
_REPORT_COLUMNS = f"{MANIFEST_COLUMNS}, bad_records BIGINT, latest_event_ms BIGINT"


@dataclass(frozen=True, slots=True)
class DirectBatch:
    """The results of one batch's tasks: the files, the rows that they left out, how many records did not parse."""

    files: list[StagedFile]
    refused: RefusedRows
    bad_records: int


@dataclass(frozen=True, slots=True)
class DirectSelection:
    """The selection from decoded records. `bad_reason` is the column that is set where a record did not parse."""

    bad_reason: str | None
    event_time: Expression | None
    conditions: OneSelect


@dataclass(frozen=True, slots=True)
class DirectStream:
    """A stream of ranges of offsets to start, and what turns a batch of them into files."""

    frame: DataFrame
    writer: DirectWriter


class DirectWriter:
    """Writes the records of batches of a `DirectStream`; `schema` is that of the rows, partition columns included.

    It travels to the process that runs batches.
    """

    def __init__(
        self, source: str, schema: pyarrow.Schema, options: ReadOptions, selection: DirectSelection, delay_ms: int
    ) -> None:
        #: The name of the pipeline's only source.
        self.source = source
        self.schema = schema
        self._options = options
        self._selection = selection
        self._delay_ms = delay_ms
        self._latest_event_ms: int | None = None

    @property
    def watermark_ms(self) -> int | None:
        """The watermark of the batches written so far by this object; None where there is none (yet)."""
        return None if self._latest_event_ms is None else max(0, self._latest_event_ms - self._delay_ms)

    def record_refusals(self, rule: PartitionRule) -> RecordRefusals:
        """Return the refusals of single records whose rows no partition can hold."""
        return RecordRefusals(self._selection.conditions, rule)

    def write(self, spark: SparkSession, staging: Staging, start: EndOffsets | None, end: EndOffsets) -> DirectBatch:
        """Write the records of the batch from `start` to `end` to files below `staging`.

        `start` is None for the first batch of a query. Raises PipelineError, DataLossError, ClientError, and as Spark
        does.
        """
        from ottla.spark.pipelines.writing.ranges import plan_batch

        check_partition_columns(self.schema, staging.partition_by)
        work = into_tasks(plan_batch(self._options, start, end), _cores(spark))
        if not work:
            return DirectBatch([], RefusedRows(), 0)
        task = DirectTask(self._options, self._selection, self.schema, staging, work)
        numbers = spark.range(0, len(work), 1, len(work))
        reports = numbers.mapInArrow(lambda batches: task.run(batches), _REPORT_COLUMNS).toArrow().to_pylist()
        latest = [each["latest_event_ms"] for each in reports if each["latest_event_ms"] is not None]
        if self._latest_event_ms is not None:
            latest.append(self._latest_event_ms)
        self._latest_event_ms = max(latest, default=None)
        written = written_rows(reports)
        return DirectBatch(written.files, written.refused, sum(each["bad_records"] for each in reports))


@dataclass(frozen=True, slots=True)
class RecordRefusals:
    """Says of records why no partition can hold the rows that SQL makes of them, one each at most."""

    conditions: OneSelect
    rule: PartitionRule

    def of(self, view: pyarrow.RecordBatch) -> list[str | None]:
        """The reason for each record of the source's view, None where there is none."""
        found: list[str | None] = [None] * view.num_rows
        places = pyarrow.array(range(view.num_rows), pyarrow.int64())
        kept = self.conditions.kept(view.append_column(_PLACE, places))
        if kept.num_rows:
            reasons = self.rule.refusals(self.conditions.selected(kept))
            for place, reason in zip(kept.column(_PLACE).to_pylist(), reasons, strict=True):
                found[place] = reason
        return found


class DirectTask(Versioned):
    """A task that writes files; `work` has the ranges of each task by its number."""

    def __init__(
        self,
        options: ReadOptions,
        selection: DirectSelection,
        schema: pyarrow.Schema,
        staging: Staging,
        work: Sequence[Sequence[PartitionRange]],
    ) -> None:
        self._options = options
        self._selection = selection
        self._schema = schema
        self._staging = staging
        self._work = work
        self._bad_records = 0
        self._refused = RefusedRows()
        self._latest_event_ms: int | None = None

    def run(self, numbers: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        """Do the work of these numbers; gives a row for each file and one for the rest."""
        take_memory_of_the_system()
        mine = [self._work[number] for batch in numbers for number in batch.column(0).to_pylist()]
        with message_only():
            for ranges in mine:
                for file in write_files(self._rows(ranges), self._staging, self._schema, self._refused):
                    yield _with_report(as_rows([file]), 0, None)
        yield _with_report(as_last_row(self._refused), self._bad_records, self._latest_event_ms)

    def _rows(self, ranges: Sequence[PartitionRange]) -> Iterator[pyarrow.RecordBatch]:
        from ottla.spark.source.reading import read_ranges

        conditions, bad_reason = self._selection.conditions, self._selection.bad_reason
        for batch in read_ranges(ranges, self._options):
            good = batch if bad_reason is None else self._without_bad(batch, bad_reason)
            self._see_time(good)
            kept = conditions.kept(good)
            if kept.num_rows:
                yield conditions.selected(kept)

    def _without_bad(self, batch: pyarrow.RecordBatch, reason: str) -> pyarrow.RecordBatch:
        reasons = batch.column(reason)
        bad = len(reasons) - reasons.null_count
        self._bad_records += bad
        return batch.filter(reasons.is_null()) if bad else batch

    def _see_time(self, batch: pyarrow.RecordBatch) -> None:
        event_time = self._selection.event_time
        if event_time is None or not batch.num_rows:
            return
        import pyarrow.compute as pc

        latest_us = pc.max(as_array(event_time.of(batch), batch.num_rows)).cast(pyarrow.int64()).as_py()
        if latest_us is not None:
            known = self._latest_event_ms
            self._latest_event_ms = latest_us // 1000 if known is None else max(known, latest_us // 1000)


def _with_report(rows: pyarrow.RecordBatch, bad_records: int, latest_event_ms: int | None) -> pyarrow.RecordBatch:
    counts = pyarrow.array([bad_records] * rows.num_rows, pyarrow.int64())
    times = pyarrow.array([latest_event_ms] * rows.num_rows, pyarrow.int64())
    names = [*rows.schema.names, "bad_records", "latest_event_ms"]
    return pyarrow.RecordBatch.from_arrays([*rows.columns, counts, times], names=names)


def into_tasks(ranges: Sequence[PartitionRange], cores: int | None) -> list[list[PartitionRange]]:
    """The ranges of each task, the same number of offsets for each, give or take one.

    There is a task for each `RECORDS_PER_TASK` at first. Where those are more than `cores` they have
    `MOST_RECORDS_PER_TASK` at most, and are a multiple of the cores, so that no core is without work while others have
    the last tasks: a task costs some 30 to 50 ms, and a file in each folder. None is for cores that are not known.
    """
    total = sum(each.size for each in ranges)
    count = -(-total // RECORDS_PER_TASK)
    if cores is not None and count > cores:
        count = -(-total // (MOST_RECORDS_PER_TASK * cores)) * cores
    ends = [total * (number + 1) // count for number in range(count)]
    work: list[list[PartitionRange]] = [[] for _ in ends]
    number = done = 0
    for each in ranges:
        start = each.start
        while start < each.end:
            end = min(each.end, start + ends[number] - done)
            work[number].append(replace(each, start=start, end=end))
            done += end - start
            start = end
            if done == ends[number]:
                number += 1
    return work


def _cores(spark: SparkSession) -> int | None:
    """Spark's default parallelism, that is the cores unless it is set; None where it is not known, as with Connect."""
    from pyspark.errors import PySparkAttributeError

    try:
        return max(1, spark.sparkContext.defaultParallelism)
    except PySparkAttributeError:
        return None


def direct_stream(
    spark: SparkSession, settings: PipelineSettings, options: Mapping[str, str], rows: DataFrame
) -> DirectStream | None:
    """The fast path of a pipeline, None where it has none: then `rows` go through Spark.

    `options` are those of the only source's `format("ottla")`, and `rows` the stream that Spark would make of it: its
    columns are compared with the plan's. Raises PipelineError for rows that files cannot hold.
    """
    source = _only_source(settings)
    found = None if source is None else _selected(settings, source, options, spark.conf.get)
    if source is None or found is None:
        return None
    read, selection = found
    schema = arrow_schema(rows)
    conditions = selection.conditions
    if list(conditions.names) != schema.names or [each.type for each in conditions.outputs] != schema.types:
        return None
    from ottla.spark.pipelines.writing.ranges import RANGES_FORMAT, RangesSource

    register_source(spark, RangesSource)
    frame = spark.readStream.format(RANGES_FORMAT).options(**options).load()
    return DirectStream(frame, DirectWriter(source.name, schema, read, selection, _delay_ms(spark, settings)))


def is_direct(settings: PipelineSettings, options: Mapping[str, str], conf: Callable[[str], Any]) -> bool:
    """Whether a pipeline will have a `direct_stream` in a session whose Spark settings `conf` gives.

    Raises OptionError.
    """
    source = _only_source(settings)
    return source is not None and _selected(settings, source, options, conf) is not None


def _only_source(settings: PipelineSettings) -> SourceSettings | None:
    """The only source of a pipeline, if its other settings, its SQL aside, allow the fast path."""
    if not isinstance(settings.sink, TableSinkSettings) or len(settings.sources) != 1 or settings.tables:
        return None
    if settings.output_mode != "append" or any(each.deduplicate_by for each in settings.steps):
        return None
    return settings.sources[0]


def _selected(
    settings: PipelineSettings, source: SourceSettings, options: Mapping[str, str], conf: Callable[[str], Any]
) -> tuple[ReadOptions, DirectSelection] | None:
    """How tasks read, and what they make of it. Raises OptionError."""
    from ottla.spark.source.options import parse_read_options
    from ottla.spark.source.schema import read_schema

    if conf("spark.sql.caseSensitive") == "true":
        return None
    read = parse_read_options(options, streaming=True)
    bad_reason = None if read.decoding is None else read.decoding.bad_reason_column
    whole = read_schema(read)
    view = arrow_schema_of(type(whole)([each for each in whole if each.name != bad_reason]))
    rules = SqlRules(
        ansi=conf("spark.sql.ansi.enabled") == "true",
        utc=conf("spark.sql.session.timeZone") in _UTC,
    )
    plan = plan_steps(source.name, view, [(each.name, each.sql) for each in settings.steps], rules)
    if plan is None:
        return None
    times = _event_times(settings, plan)
    if times is None:
        return None
    selection = DirectSelection(bad_reason, times[0] if times else None, plan.conditions)
    return replace(read, columns=_needed(read, whole.names, selection)), selection


def _with_time(settings: PipelineSettings) -> list[SourceSettings | StepSettings]:
    """The views with an event time."""
    views: list[SourceSettings | StepSettings] = [*settings.sources, *settings.steps]
    return [each for each in views if each.watermark_column is not None and each.watermark_delay is not None]


def _event_times(settings: PipelineSettings, plan: SqlPlan) -> list[Expression] | None:
    """The event time where there is one; None where it is not of the simple kind."""
    found: list[Expression] = []
    for each in _with_time(settings):
        if each.watermark_column is not None:
            wanted = each.watermark_column.lower()
            found += [value for name, value in plan.views[each.name].items() if name.lower() == wanted]
    if any(not pyarrow.types.is_timestamp(each.type) or each.can_fail for each in found) or len(found) > 1:
        return None
    return found


def _needed(read: ReadOptions, names: Sequence[str], selection: DirectSelection) -> tuple[str, ...]:
    """The columns to read. All that are decoded, since a record is bad if any of them is."""
    wanted = set(selection.conditions.columns)
    if selection.event_time is not None:
        wanted |= selection.event_time.columns
    if read.decoding is not None:
        from ottla.spark.decoding import decoder

        wanted |= set(decoder(read.decoding).fields.names)
    # A read has one column at least, so that its rows can be counted.
    return tuple(name for name in names if name in wanted) or ("offset",)


def _delay_ms(spark: SparkSession, settings: PipelineSettings) -> int:
    """The delay of the watermark, as Spark reads it."""
    for each in _with_time(settings):
        if each.watermark_delay is not None:
            moment = f"timestamp_millis(0) + CAST({_quoted(each.watermark_delay)} AS INTERVAL)"
            found: Any = spark.sql(f"SELECT unix_millis({moment})").first()
            return int(found[0])
    return 0


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
