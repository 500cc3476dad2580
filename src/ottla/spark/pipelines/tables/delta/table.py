"""`BatchTable` of a Delta table."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.records.extras import MissingExtraError, require_extra
from ottla.spark.pipelines import points
from ottla.spark.pipelines.errors import PipelineError, SupersededError
from ottla.spark.pipelines.settings.model import TableSinkSettings
from ottla.spark.pipelines.tables.attempts import COMPACTIONS, Attempt, AttemptFolders
from ottla.spark.pipelines.tables.contract import BatchCommit, LastCommit, Staging
from ottla.spark.pipelines.tables.delta import schemas, state
from ottla.spark.pipelines.tables.delta.compaction import Bin, OldFile, live_paths, small_files
from ottla.spark.pipelines.tables.delta.files import add_actions, replacement
from ottla.spark.pipelines.tables.delta.location import DeltaLocation
from ottla.spark.pipelines.tables.delta.log import TransactionLog
from ottla.spark.pipelines.tables.delta.writable import check_writable
from ottla.spark.pipelines.tables.rewriting import alike, rewrite
from ottla.spark.pipelines.tables.superseding import Driver, is_committed

if TYPE_CHECKING:
    import deltalake

#: Times that a commit is tried again because another writer's came between.
MAX_TRIES: Final = 50
#: Times that the log is read again because it was cleaned up, or the table made anew, while it was read.
_MAX_READS: Final = 10
_DRIVER_BITS: Final = 62


class DeltaBatchTable:
    """A Delta table and the commits of one pipeline in it. One thread at a time may use it."""

    def __init__(self, sink: TableSinkSettings, pipeline: str) -> None:
        """Reads the table, if there is one. Raises PipelineError."""
        try:
            require_extra("a Delta table", "delta", "deltalake", "pyarrow")
        except MissingExtraError as error:
            raise PipelineError(str(error)) from None
        self._sink = sink
        self._pipeline = pipeline
        self._location = DeltaLocation(sink)
        self._log = TransactionLog(self._location.filesystem, self._location.root)
        self._attempts = AttemptFolders(self._location.filesystem, self._location.root, pipeline)
        self._table: deltalake.DeltaTable | None = None
        self._state = state.EMPTY
        self._is_unsure = False
        self._read()
        self._driver = Driver(self._state.last_query, secrets.randbits(_DRIVER_BITS))

    def last_commit(self) -> LastCommit | None:
        """The newest batch of this pipeline; None where there is none. Raises PipelineError."""
        self._read()
        return self._state.last_commit

    def staging(self, query_id: str, batch_id: int) -> Staging:
        """A folder inside the table, which readers do not look into before its files are committed."""
        folder = self._attempts.new(query_id, batch_id).folder
        sink = self._sink
        return Staging(
            self._location.below(folder), dict(sink.storage_options), tuple(sink.partition_by), sink.compression
        )

    def commit(self, batch: BatchCommit) -> bool:
        """Make the batch visible, with its end offsets, also if it has no files; see `BatchTable.commit`."""
        attempt = self._attempts.newest(batch.query_id, batch.batch_id)
        there = False

        def is_settled() -> bool:
            nonlocal there
            if self._is_ours(batch, attempt):
                return True
            there = is_committed(batch, self._driver, self._state, self._location.name)
            return there

        try:
            self._until(is_settled, lambda: self._write(batch, attempt), f"commit batch {batch.batch_id} to")
        except SupersededError:
            self._attempts.abandon(batch.query_id, batch.batch_id)
            raise
        if there:
            self._attempts.abandon(batch.query_id, batch.batch_id)
            return False
        files = {f"{attempt.folder}/{each.path}" for each in batch.files}
        self._attempts.committed(batch.query_id, batch.batch_id, files)
        return True

    def recover(self) -> None:
        """Shut older drivers of this pipeline out, and remove what they wrote and did not commit."""
        number = self._driver.number
        self._until(
            lambda: self._table is None or self._state.driver == number,
            lambda: self._append([], state.driver_entry(self._pipeline, number)),
            "recover",
        )
        self._driver.recovered(self._state)
        points.reach(points.RECOVERING)
        if self._table is None:
            return  # An older driver may still make the table, with what it wrote.
        lasts = {query: each.batch_id for query, each in self._state.queries.items()}
        try:
            self._attempts.remove_never_committed({**lasts, COMPACTIONS: self._state.compactions})
        except OSError as error:
            raise self._failure("remove old files from", error) from error

    def compact(self, watermark_ms: int | None) -> int:
        """Replace small files of partitions that the watermark has passed, of others if they are many.

        Old files stay until the user's vacuum. Only files of this pipeline are replaced.
        """
        target_bytes = self._sink.compact_to_bytes
        self._read()
        if target_bytes is None or self._table is None:
            return 0
        replaced = 0
        for each in list(small_files(self._table, watermark_ms, target_bytes, f"{self._attempts.folder}/")):
            try:
                replaced += self._replace(each)
            except OSError as error:
                raise self._failure("compact", error) from error
        return replaced

    def _replace(self, old: Bin) -> int:
        """Make one file of those, if they are all there still; gives how many files were replaced."""
        paths = [f"{self._location.root}/{each.name}" for each in old.files]
        replaced = 0
        for alike_paths in alike(self._location.filesystem, paths):
            files = [each for each, path in zip(old.files, paths, strict=True) if path in alike_paths]
            if len(files) > 1 and self._replace_alike(old, files, alike_paths):
                replaced += len(files)
        return replaced

    def _replace_alike(self, old: Bin, files: Sequence[OldFile], paths: Sequence[str]) -> bool:
        number = self._state.compactions + 1
        attempt = self._attempts.new(COMPACTIONS, number)
        name = f"{attempt.folder}/part.parquet"
        target = self._location.new_file(name)
        made = rewrite(self._location.filesystem, paths, target, self._sink.compression)
        points.reach(points.COMPACTING)
        is_made = False

        def is_settled() -> bool:
            nonlocal is_made
            assert self._table is not None
            live = live_paths(self._table)
            is_made = name in live
            if is_made:
                return True
            if self._driver.is_shut_out(self._state):
                raise SupersededError(f"another driver of this pipeline has taken over {self._location.name}")
            return self._state.compactions >= number or any(each.path not in live for each in files)

        try:
            actions = replacement(old, files, name, made, self._configuration)
            entry = state.compaction_entry(self._pipeline, number)
            self._until(is_settled, lambda: self._append(actions, entry), "compact")
        finally:
            if is_made:
                self._attempts.committed(COMPACTIONS, number, {name})
            elif not self._is_unsure:
                self._attempts.abandon(COMPACTIONS, number)
        return is_made

    def _until(self, is_settled: Callable[[], bool], write: Callable[[], None], doing: str) -> None:
        """Read the table and write to it at the version that was read, until what is there settles it.

        A write that failed may have been made, and so nothing is tried before the table was read again.
        """
        failed: Exception | None = None
        version = None
        self._is_unsure = True
        for _ in range(MAX_TRIES):
            self._read()
            if is_settled():
                self._is_unsure = False
                return
            if failed is not None and self._version == version:
                self._is_unsure = False
                raise self._failure(doing, failed) from failed
            version = self._version
            try:
                write()
            except PipelineError:
                raise
            except Exception as error:
                failed = error
        raise PipelineError(
            f"cannot {doing} {self._location.name}: other writers committed before each of {MAX_TRIES} tries; let "
            "fewer write to it, or give this pipeline a longer trigger interval"
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
                    self._state = state.EMPTY
                    return
                there = self._log.read_to(self._table.version())
            except Exception as error:
                raise self._failure("read", error) from error
            if there:
                check_writable(self._table, self._sink, self._location.name)
                self._state = state.pipeline_state(self._pipeline, self._log.versions)
                return
            self._table = None
        raise PipelineError(
            f"{self._location.name}: its log lacks versions since the last checkpoint; make a checkpoint, with "
            "deltalake: DeltaTable(…).create_checkpoint()"
        )

    def _is_ours(self, batch: BatchCommit, attempt: Attempt) -> bool:
        """Whether this very attempt is in the table; a commit that seemed to fail may have been made."""
        query = self._state.queries.get(batch.query_id)
        return query is not None and (query.batch_id, query.attempt) == (batch.batch_id, attempt.number)

    def _write(self, batch: BatchCommit, attempt: Attempt) -> None:
        from deltalake.transaction import create_table_with_add_actions

        schema = schemas.delta_schema(batch.schema)
        table = self._table
        required: list[str] = []
        if table is not None:
            if schemas.lacks_columns(table.schema(), schema, self._location.name):
                # deltalake cannot change the schema and add given files in one commit; columns alone harm nobody.
                self._location.add_columns(table, schemas.arrow_as_delta(batch.schema))
                return
            required = schemas.required_columns(table.schema())
        now_ms = time.time_ns() // 1_000_000
        adds = add_actions(batch, attempt.folder, self._sink.partition_by, required, self._configuration, now_ms)
        entries = state.batch_entries(self._pipeline, self._state, batch, attempt.number)
        if self._driver.has_recovered:
            entries |= state.driver_entry(self._pipeline, self._driver.number)
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

    def _append(self, adds: list[Any], entries: dict[str, int]) -> None:
        assert self._table is not None
        self._table.create_write_transaction(
            adds,
            "append",
            self._table.schema(),
            list(self._sink.partition_by),
            commit_properties=self._location.properties(entries),
        )

    def _failure(self, doing: str, error: Exception) -> PipelineError:
        if isinstance(error, PipelineError):
            return error
        text = str(error).split("\n", 1)[0]
        return PipelineError(f"cannot {doing} {self._location.name}: {text}")
