"""`BatchTable` of a Delta table."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import unquote

import deltalake
import pyarrow
import pyarrow.compute as pc
from deltalake.transaction import create_table_with_add_actions

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.settings.model import TableSinkSettings
from ottla.spark.pipelines.tables.attempts import Attempt, AttemptFolders
from ottla.spark.pipelines.tables.contract import BatchCommit, Staging
from ottla.spark.pipelines.tables.delta import schemas, state
from ottla.spark.pipelines.tables.delta.files import add_actions, partition_text, replacements
from ottla.spark.pipelines.tables.delta.location import DeltaLocation
from ottla.spark.pipelines.tables.delta.log import TransactionLog
from ottla.spark.pipelines.tables.log_table import LogTable, OldFile, PartitionFiles, Replacement
from ottla.spark.pipelines.tables.pipeline_state import EMPTY

_PARTITION: Final = "partition."
#: Attempts to read the log while it is cleaned up or the table recreated.
_MAX_READS: Final = 10
_CONSTRAINTS: Final = "delta.constraints."
#: How long `txn` actions are kept; without it they are kept for ever.
_RETENTION: Final = "delta.setTransactionRetentionDuration"
#: Properties of tables that ottla does not write to, unless they have such a value.
_REFUSED: Final = {
    "delta.columnMapping.mode": ("none",),
    "delta.enableRowTracking": ("false",),
    "delta.enableIcebergCompatV1": ("false",),
    "delta.enableIcebergCompatV2": ("false",),
}
_REFUSED_OF_COLUMNS: Final = ("delta.invariants", "delta.generationExpression", "delta.identity.start")


class DeltaBatchTable(LogTable):
    """A Delta table and the commits of one pipeline in it. One thread at a time may use it."""

    def __init__(self, sink: TableSinkSettings, pipeline: str) -> None:
        """Reads the table, if there is one. Raises PipelineError."""
        self._location = DeltaLocation(sink)
        super().__init__(sink, pipeline, self._location.name)
        self._log = TransactionLog(self._location.filesystem, self._location.root)
        self._attempts = AttemptFolders(self._location.filesystem, self._location.root, pipeline)
        self._table: deltalake.DeltaTable | None = None
        self._open()

    def staging(self, query_id: str, batch_id: int) -> Staging:
        """A folder inside the table, which readers do not look into before its files are committed."""
        folder = self._attempts.new(query_id, batch_id).folder
        sink = self._sink
        return Staging(
            self._location.below(folder), dict(sink.storage_options), tuple(sink.partition_by), sink.compression
        )

    @property
    def _configuration(self) -> dict[str, str]:
        return {} if self._table is None else self._table.metadata().configuration

    @property
    def _version(self) -> int | None:
        return None if self._table is None else self._table.version()

    def _read(self) -> None:
        """The table at its newest version, and the pipeline's state at the same version."""
        for _ in range(_MAX_READS):
            try:
                self._table = self._location.newest(self._table)
                if self._table is None:
                    self._state = EMPTY
                    return
                there = self._log.read_to(self._table.version())
            except Exception as error:
                raise self._failure("read", error) from error
            if there:
                _check_writable(self._table, self._sink, self._location.name)
                self._state = state.pipeline_state(self._pipeline, self._log.versions)
                return
            self._table = None
        raise PipelineError(
            f"{self._location.name}: its log lacks versions since the last checkpoint; make a checkpoint, with "
            "deltalake: DeltaTable(…).create_checkpoint()"
        )

    def _write(self, batch: BatchCommit, attempt: Attempt) -> None:
        schema = schemas.delta_schema(batch.schema)
        table = self._table
        lacks_columns = table is not None and schemas.lacks_columns(table.schema(), schema, self._location.name)
        required = [] if table is None else schemas.required_columns(table.schema())
        now_ms = time.time_ns() // 1_000_000
        adds = add_actions(batch, attempt.folder, self._sink.partition_by, required, self._configuration, now_ms)
        if table is not None and lacks_columns:
            # deltalake cannot change the schema and add given files in one commit; columns alone do no harm.
            self._location.add_columns(table, schemas.keeping_required(schema, table.schema()))
            return
        entries = state.batch_entries(self._pipeline, self._state, batch, attempt.number)
        if self._recovered_driver is not None and self._recovered_driver != self._state.driver:
            entries |= state.driver_entry(self._pipeline, self._recovered_driver)
        if table is not None:
            self._append(adds, entries)
            return
        self._location.make_root()
        create_table_with_add_actions(
            self._location.uri,
            schema,
            adds,
            mode="error",
            partition_by=list(self._sink.partition_by),
            storage_options=self._location.options,
            commit_properties=self._location.properties(entries),
        )

    def _write_recovery(self) -> None:
        self._append([], state.driver_entry(self._pipeline, self._driver.number))

    def _write_replacements(self, made: Sequence[Replacement], number: int) -> None:
        actions = replacements(made, self._configuration)
        self._append(actions, state.compaction_entry(self._pipeline, number))

    def _own_files(self) -> Iterator[PartitionFiles]:
        assert self._table is not None
        return own_files(self._table, f"{self._attempts.folder}/")

    def _live_names(self) -> set[str]:
        assert self._table is not None
        return live_names(self._table)

    def _append(self, adds: list[Any], entries: dict[str, int]) -> None:
        assert self._table is not None
        self._table.create_write_transaction(
            adds,
            "append",
            self._table.schema(),
            list(self._sink.partition_by),
            commit_properties=self._location.properties(entries),
        )


def _check_writable(table: deltalake.DeltaTable, sink: TableSinkSettings, where: str) -> None:
    """Raises PipelineError if this table has rules that ottla does not keep, or is partitioned otherwise.

    Those rules would have to be checked for each row.
    """
    metadata = table.metadata()
    if tuple(metadata.partition_columns) != tuple(sink.partition_by):
        raise PipelineError(
            f"{where} is partitioned by {_names(metadata.partition_columns)}, and partition_by is "
            f"{_names(sink.partition_by)}; set partition_by to the table's columns, or write to another table"
        )
    for key, value in metadata.configuration.items():
        if key == _RETENTION:
            raise PipelineError(
                f"{where} has {_RETENTION}, which would delete the pipeline's last batch; unset that property"
            )
        if key.startswith(_CONSTRAINTS) or str(value).lower() not in _REFUSED.get(key, (str(value).lower(),)):
            raise PipelineError(f"{where} has {key} = {value}, which ottla does not write; write to another table")
    for field in table.schema().fields:
        for key in _REFUSED_OF_COLUMNS:
            if key in json.loads(field.to_json())["metadata"]:
                raise PipelineError(
                    f"column {field.name} of {where} has {key}, which ottla does not write; write to another table"
                )


def _names(columns: object) -> str:
    return ", ".join(map(str, columns)) if isinstance(columns, list | tuple) and columns else "nothing"


def live_names(table: deltalake.DeltaTable) -> set[str]:
    """The files of the table's version, relative to it."""
    return {unquote(path) for path in _actions(table).column("path").to_pylist()}


def own_files(table: deltalake.DeltaTable, own_folder: str) -> Iterator[PartitionFiles]:
    """Yield the files in `own_folder`, oldest first; none of tables with deletion vectors.

    Small ones are replaced by larger ones, rows unchanged, not by deltalake's own optimize, which retries its commit
    after a conflict, whatever its options: where two compact the same files, rows are there twice (seen with 1.6.6).
    Here the commit is made at the version in which the files were seen, or not at all.
    """
    if "deletionVectors" in (table.protocol().reader_features or ()):
        return
    columns = table.metadata().partition_columns
    actions = _actions(table)
    actions = actions.take(_oldest_first(actions))
    values = [actions.column(_PARTITION + column).to_pylist() for column in columns]
    files: dict[tuple[Any, ...], list[OldFile]] = defaultdict(list)
    for number, (path, size) in enumerate(
        zip(actions.column("path").to_pylist(), actions.column("size_bytes").to_pylist(), strict=True)
    ):
        if path.startswith(own_folder):
            files[tuple(column[number] for column in values)].append(OldFile(unquote(path), size))
    for partition, found in files.items():
        texts = dict(zip(columns, map(partition_text, partition), strict=True))
        yield PartitionFiles(texts, found, texts)


def _actions(table: deltalake.DeltaTable) -> Any:
    return pyarrow.table(table.get_add_actions(flatten=True))


def _oldest_first(actions: Any) -> Any:
    return pc.sort_indices(actions, sort_keys=[("modification_time", "ascending"), ("path", "ascending")])
