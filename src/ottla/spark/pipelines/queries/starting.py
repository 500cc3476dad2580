"""The start of a query, and whether its checkpoint and its table belong together.

Spark keeps where a batch ends, but not where the first one began, and asks a source in Python for that again if the
first batch has to run again. So a start other than `earliest` is looked up once and noted in the checkpoint, before the
query runs. The same note says that a new checkpoint continues from the last commit of a table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.client.errors import ClientError
from ottla.spark.connection import connect
from ottla.spark.errors import SparkRefusal
from ottla.spark.pipelines.errors import CheckpointMismatchError, PipelineError, PipelineSettingsError
from ottla.spark.pipelines.queries.checkpoint import QueryCheckpoint, offsets_as_json, offsets_of_json
from ottla.spark.pipelines.queries.sources import by_source, read_options
from ottla.spark.pipelines.settings.model import PipelineSettings, SourceSettings, StepSettings
from ottla.spark.pipelines.tables.contract import EndOffsets, LastCommit
from ottla.spark.source.offsets import EARLIEST
from ottla.spark.source.options import parse_read_options
from ottla.spark.source.partitions import existing_partitions, selected_partitions, starting_offsets

_NOTE = "start"
_EARLIEST = "earliest"


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a checkpoint's first batch: offsets by source; a source that is not named, at its earliest.

    `continues` are the commits of another query that the checkpoint continues from. The dead letters up to the offsets
    `dead_letters` are in their table already: it may be a batch ahead of that of the rows.
    """

    offsets: Mapping[str, EndOffsets] = field(default_factory=dict)
    continues: tuple[LastCommit, ...] = ()
    dead_letters: Mapping[str, EndOffsets] = field(default_factory=dict)


def decide_start(
    checkpoint: QueryCheckpoint,
    settings: PipelineSettings,
    last: LastCommit | None,
    last_letters: LastCommit | None = None,
    *,
    continue_from_table: bool,
) -> Start:
    """Return the query's start, and note a new one in the checkpoint.

    `last` and `last_letters` are the last commits of the tables of rows and of dead letters. Raises
    CheckpointMismatchError if one of them is of another query or of a batch that the checkpoint does not have, unless
    `continue_from_table` says to continue from there with a new checkpoint; PipelineSettingsError if that cannot be,
    since the query keeps state.
    """
    start = read_start(checkpoint)
    planned = checkpoint.newest_planned()
    there = tuple(each for each in (last, last_letters) if each is not None)
    strange = [each for each in there if not _fits(checkpoint, settings, start, planned, each)]
    if strange:
        if not continue_from_table or planned is not None:
            raise CheckpointMismatchError(_mismatch(checkpoint, settings, strange[0], planned))
        _refuse_state(settings)
        start = Start(there[0].end_offsets, there, last_letters.end_offsets if last_letters is not None else {})
        _write_start(checkpoint, start)
    if checkpoint.newest_finished() is not None:
        return start or Start()
    if start is None:
        moving = [each for each in settings.sources if each.starting_offsets.strip().lower() != _EARLIEST]
        start = Start({each.name: _looked_up(each) for each in moving})
        if start.offsets:
            _write_start(checkpoint, start)
    return start


def check_fit(checkpoint: QueryCheckpoint, settings: PipelineSettings, last: LastCommit) -> None:
    """Raises CheckpointMismatchError where the checkpoint does not continue from a table's last commit."""
    planned = checkpoint.newest_planned()
    if not _fits(checkpoint, settings, read_start(checkpoint), planned, last):
        raise CheckpointMismatchError(_mismatch(checkpoint, settings, last, planned))


def read_start(checkpoint: QueryCheckpoint) -> Start | None:
    """The start that is noted in the checkpoint; None where none is. Raises PipelineError."""
    note = checkpoint.note(_NOTE)
    if note is None:
        return None
    continues = tuple(
        LastCommit(str(each["query_id"]), int(each["batch_id"]), _offsets(each["end_offsets"]))
        for each in note.get("continues", [])
    )
    return Start(_offsets(note.get("offsets", {})), continues, _offsets(note.get("dead_letters", {})))


def starting_option(start: Start, source: SourceSettings, *, finished: bool) -> str:
    """`startingOffsets` of a source. Raises PipelineError if its topics cannot be asked for."""
    offsets = start.offsets.get(source.name)
    if finished or offsets is None:  # Spark continues from its log, or only the beginning is left to start from.
        return source.starting_offsets if not start.continues else _EARLIEST
    return json.dumps(_with_new_partitions(source, offsets))


def _fits(
    checkpoint: QueryCheckpoint, settings: PipelineSettings, start: Start | None, planned: int | None, last: LastCommit
) -> bool:
    if start is not None and last in start.continues:
        return True
    if checkpoint.query_id() != last.query_id or planned is None or planned < last.batch_id:
        return False
    batch = checkpoint.batch(last.batch_id)
    # Spark removes old entries; what is there has to be what the table was given.
    return batch is None or _plain(by_source(settings.sources, batch.sources)) == _plain(last.end_offsets)


def _refuse_state(settings: PipelineSettings) -> None:
    step = step_with_state(settings)
    if step is not None:
        raise PipelineSettingsError(
            f"step {step} keeps state that was lost with the checkpoint, so that its results would not be those of all "
            "records: start from the beginning, and choose another table"
        )


def _mismatch(checkpoint: QueryCheckpoint, settings: PipelineSettings, last: LastCommit, planned: int | None) -> str:
    if planned is None:
        what = "is new or was lost"
    elif checkpoint.query_id() != last.query_id:
        what = "is of another query"
    else:
        what = "is older than that, or not the one that wrote it"
    cure = "continue from the offsets in that commit with --continue-from-table"
    if planned is not None:
        cure += " and a new checkpoint"
    return (
        f"the table has batch {last.batch_id} of pipeline {settings.name}, and the checkpoint {checkpoint.url} {what}: "
        f"{cure}, or choose another table"
    )


def _looked_up(source: SourceSettings) -> EndOffsets:
    options = parse_read_options(
        read_options(source, schema=source.schema, starting=source.starting_offsets), streaming=True
    )
    try:
        with connect(options.connection) as client:
            found = starting_offsets(client, list(selected_partitions(client, options.selection)), options)
    except (SparkRefusal, _client_error()) as problem:
        raise PipelineError(f"source {source.name}: {problem}") from None
    return _by_topic({(each.topic, each.partition): offset for each, offset in found.items()})


def _with_new_partitions(source: SourceSettings, offsets: EndOffsets) -> dict[str, dict[str, int]]:
    """The offsets as an option, in which every partition has to be named; ones that came since from their beginning."""
    options = parse_read_options(read_options(source, schema=source.schema, starting=_EARLIEST), streaming=True)
    try:
        with connect(options.connection) as client:
            there = existing_partitions(client, options.selection)
    except (SparkRefusal, _client_error()) as problem:
        raise PipelineError(f"source {source.name}: {problem}") from None
    named = {(each.topic, each.partition): offsets.get(each.topic, {}).get(each.partition, EARLIEST) for each in there}
    return offsets_as_json(_by_topic(named))


def _client_error() -> type[Exception]:
    return ClientError


def _by_topic(offsets: Mapping[tuple[str, int], int]) -> EndOffsets:
    found: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in offsets.items():
        found.setdefault(topic, {})[partition] = offset
    return found


def _write_start(checkpoint: QueryCheckpoint, start: Start) -> None:
    note: dict[str, Any] = {"offsets": _plain(start.offsets), "dead_letters": _plain(start.dead_letters)}
    note["continues"] = [
        {"query_id": each.query_id, "batch_id": each.batch_id, "end_offsets": _plain(each.end_offsets)}
        for each in start.continues
    ]
    checkpoint.write_note(_NOTE, note)


def _plain(offsets: Mapping[str, EndOffsets]) -> dict[str, dict[str, dict[str, int]]]:
    return {name: offsets_as_json(each) for name, each in offsets.items()}


def _offsets(document: object) -> dict[str, EndOffsets]:
    if not isinstance(document, Mapping):
        raise PipelineError(f"{document!r} is not offsets by source; start with another checkpoint")
    return {str(name): offsets_of_json(each) for name, each in document.items()}


def step_with_state(settings: PipelineSettings) -> str | None:
    """The first step that keeps state, None where there is none. SQL that cannot be read counts as if it did.

    Raises MissingExtraError.
    """
    streams = {each.name.lower() for each in settings.sources}
    for step in settings.steps:
        if step.deduplicate_by or _keeps_state(step, streams):
            return step.name
        streams.add(step.name.lower())
    return None


def _keeps_state(step: StepSettings, streams: set[str]) -> bool:
    from ottla.records.extras import require_extra

    require_extra("a look at a pipeline's SQL", "pipelines", "sqlglot")
    import sqlglot
    import sqlglot.errors
    from sqlglot import expressions

    try:
        tree = sqlglot.parse_one(step.sql, dialect="spark")
    except sqlglot.errors.SqlglotError:
        return True
    if tree.find(expressions.Group, expressions.Distinct, expressions.AggFunc) is not None:
        return True
    read = [each for each in tree.find_all(expressions.Table) if each.name.lower() in streams]
    if tree.find(expressions.Union) is not None and tree.find(expressions.Join) is None:
        return False
    return len(read) > 1
