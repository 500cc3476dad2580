"""The work on each batch: look at records that do not parse or have new fields, then write rows to the sink.

It runs on the driver, or with Spark Connect in a worker of the server: it travels there, and opens what it needs there.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow

from ottla.spark.errors import message_only
from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.queries.checkpoint import LoggedBatch, QueryCheckpoint
from ottla.spark.pipelines.queries.inspection import DEAD_LETTER_COLUMNS, FIELDS, BatchRange, findings, later_of
from ottla.spark.pipelines.queries.new_fields import add_document, inferred, names_in, typed
from ottla.spark.pipelines.queries.schemas import add_fields
from ottla.spark.pipelines.queries.sources import by_source
from ottla.spark.pipelines.queries.starting import Start
from ottla.spark.pipelines.settings.model import NewFields, PipelineSettings, SourceSettings
from ottla.spark.pipelines.sinks.sink import BatchInWork, BatchSink, StagedRows
from ottla.spark.pipelines.tables.contract import EndOffsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ottla.spark.pipelines.writing.direct import RecordRefusals

JSON = "json"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchFunction:
    """The function of `foreachBatch`. `options` are those of the stream of each source, by its name."""

    settings: PipelineSettings
    options: Mapping[str, Mapping[str, str]]
    start: Start
    sink: BatchSink
    dead_letters: BatchSink | None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Take one batch. Raises PipelineError, which ends the query with its sentence."""
        with message_only():
            batch = self._in_work(batch_id)
            for source in self.settings.sources:
                self._inspect(frame.sparkSession, source, batch)
            staged = self.sink.stage(frame, batch)
            if staged.bad_records != 0 or staged.refused.rows:
                self._take_dead_letters(frame, batch, staged)
            _warn(batch, staged)
            self.sink.take(frame, batch)

    def _in_work(self, batch_id: int) -> BatchInWork:
        checkpoint = QueryCheckpoint(self.settings.checkpoint)
        query_id, logged = checkpoint.query_id(), self._logged(checkpoint, batch_id)
        if query_id is None:
            raise self._lost(batch_id)
        started = dict(self.start.offsets)
        if batch_id:
            started = by_source(self.settings.sources, self._logged(checkpoint, batch_id - 1).sources)
        return BatchInWork(
            self.settings.name,
            query_id,
            batch_id,
            started,
            by_source(self.settings.sources, logged.sources),
            logged.watermark_ms,
        )

    def _logged(self, checkpoint: QueryCheckpoint, batch_id: int) -> LoggedBatch:
        logged = checkpoint.batch(batch_id)
        if logged is None:
            raise self._lost(batch_id)
        return logged

    def _lost(self, batch_id: int) -> PipelineError:
        return PipelineError(
            f"the checkpoint {self.settings.checkpoint} has lost batch {batch_id}: something removed it while the "
            "query ran; leave it to Spark, and start the pipeline again"
        )

    def _inspect(self, spark: SparkSession, source: SourceSettings, batch: BatchInWork) -> None:
        """Refuse or add the fields of a batch that are new."""
        if self.settings.new_fields is NewFields.ignore or source.value_format != JSON:
            return
        found = self._findings(spark, source, batch)
        if found is None:
            return
        with_new = found.where(f"{FIELDS} IS NOT NULL").select("topic", "partition", "offset", FIELDS)
        if self.settings.new_fields is NewFields.fail:
            first = with_new.orderBy("topic", "partition", "offset").limit(1).collect()
            if first:
                raise PipelineError(_refusal(source, first[0].asDict()))
            return

        fields = pyarrow.struct([])
        for row in with_new.select(FIELDS).distinct().orderBy(FIELDS).toLocalIterator():
            fields = add_document(fields, json.loads(row[0]))
        known = typed(fields)
        if known is None:
            return
        schema = self.options[source.name]["valueSchema"]
        names = add_fields(QueryCheckpoint(self.settings.checkpoint), source, schema, known)
        if names:
            raise PipelineError(
                f"source {source.name} has new fields from batch {batch.batch_id} on: {', '.join(names)}; they are "
                "added to its schema when the pipeline is started again"
            )

    def _findings(
        self,
        spark: SparkSession,
        source: SourceSettings,
        batch: BatchInWork,
        after: EndOffsets | None = None,
        refusals: RecordRefusals | None = None,
    ) -> DataFrame | None:
        span = BatchRange(
            later_of(batch.start_offsets.get(source.name, {}), after or {}), batch.end_offsets.get(source.name, {})
        )
        wanted = self.settings.new_fields is not NewFields.ignore and source.value_format == JSON
        return findings(spark, source, self.options[source.name], span, new_fields=wanted, refusals=refusals)

    def _take_dead_letters(self, frame: DataFrame, batch: BatchInWork, staged: StagedRows) -> None:
        if self.dead_letters is None:
            return
        refusals = self.sink.record_refusals() if staged.refused.rows else None
        letters = self.sink.refused_rows(frame) if staged.refused.rows else None
        for source in self.settings.sources:
            after = self.start.dead_letters.get(source.name, {})
            found = self._findings(frame.sparkSession, source, batch, after=after, refusals=refusals)
            if found is not None:
                bad = found.where("reason IS NOT NULL").select(*DEAD_LETTER_COLUMNS)
                letters = bad if letters is None else letters.unionAll(bad)
        if letters is None:
            return
        refused = self.dead_letters.stage(letters, batch).refused
        if refused.rows:
            raise PipelineError(f"{refused.rows} dead letters have no place: {refused.reason}; change their table")
        self.dead_letters.take(letters, batch)


def _warn(batch: BatchInWork, staged: StagedRows) -> None:
    if staged.bad_records:
        log.warning("%s: %d records of batch %d do not parse", batch.pipeline, staged.bad_records, batch.batch_id)
    if staged.refused.rows:
        log.warning(
            "%s: %d rows of batch %d are left out: %s",
            batch.pipeline,
            staged.refused.rows,
            batch.batch_id,
            staged.refused.reason,
        )


def _refusal(source: SourceSettings, row: Mapping[str, object]) -> str:
    names = ", ".join(names_in(inferred(json.loads(str(row[FIELDS])))))
    place = f"{row['topic']}-{row['partition']}@{row['offset']}"
    return (
        f"source {source.name}: field {names}, first in {place}, is not in the schema; add it to schema, or set "
        "new_fields = add or ignore"
    )
