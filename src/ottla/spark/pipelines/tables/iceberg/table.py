"""`BatchTable` of an Iceberg table."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ottla.records.extras import MissingExtraError, require_extra
from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.settings.model import TableSinkSettings
from ottla.spark.pipelines.tables.attempts import Attempt, AttemptFolders
from ottla.spark.pipelines.tables.contract import BatchCommit, Staging
from ottla.spark.pipelines.tables.filesystems import below
from ottla.spark.pipelines.tables.iceberg import schemas, state
from ottla.spark.pipelines.tables.iceberg.compaction import (
    ReplacementError,
    check_replacement,
    live_files,
    small_files,
)
from ottla.spark.pipelines.tables.iceberg.expiry import Expiry
from ottla.spark.pipelines.tables.iceberg.files import data_file, data_files
from ottla.spark.pipelines.tables.iceberg.location import MERGING, IcebergLocation, plain_path
from ottla.spark.pipelines.tables.log_table import Bin, LogTable, Replacement
from ottla.spark.pipelines.tables.pipeline_state import EMPTY

if TYPE_CHECKING:
    from pyiceberg.table import Table, Transaction

_log = logging.getLogger(__name__)

#: How often a replacement of files is prepared. pyiceberg looks at manifests in several threads with one evaluator that
#: keeps the one in work as an attribute: files are missed now and then, which is noticed before the commit.
_PREPARED_AT_MOST: Final = 10

_NAME_MAPPING: Final = "schema.name-mapping.default"
#: What tables get that are made here: old metadata files go by themselves, and manifests are merged.
_PROPERTIES: Final = {
    **MERGING,
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


class IcebergBatchTable(LogTable):
    """An Iceberg table and the commits of one pipeline in it. One thread at a time may use it."""

    def __init__(self, sink: TableSinkSettings, pipeline: str) -> None:
        """Reads the table, if there is one. Raises PipelineError."""
        try:
            require_extra("an Iceberg table", "iceberg", "pyiceberg", "pyarrow")
        except MissingExtraError as error:
            raise PipelineError(str(error)) from None
        self._location = IcebergLocation(sink)
        super().__init__(sink, pipeline, self._location.name)
        self._table: Table | None = None
        #: The table as a commit of this driver left it, to be taken by the next `_read`.
        self._written: Table | None = None
        try:
            self._url = self._location.url(self._location.load())
        except PipelineError:
            raise
        except Exception as error:
            raise self._failure("read", error) from error
        self._files, root = self._location.open_files(self._url)
        self._attempts = AttemptFolders(self._files, root, pipeline)
        self._expiry = Expiry(self._location, self._files, self._url)
        self._open()

    def staging(self, query_id: str, batch_id: int) -> Staging:
        """A folder inside the table, which readers do not look into before its files are committed."""
        folder = self._attempts.new(query_id, batch_id).folder
        return Staging(
            below(plain_path(self._url), folder),
            self._location.storage_options(),
            tuple(self._sink.partition_by),
            self._sink.compression,
            keep_partition_columns=True,
        )

    def recover(self) -> None:
        """Shut older drivers out; remove what they did not commit, and what expired snapshots alone had."""
        super().recover()
        if self._table is not None:
            self._expire(self._expiry.finish)

    def compact(self, watermark_ms: int | None) -> int:
        """As for all tables with a log; then let old snapshots expire, and remove what only they had."""
        replaced = super().compact(watermark_ms)
        table = self._table
        if table is not None and self._sink.compact_to_bytes is not None:
            self._expire(lambda: self._expiry.expire(table))
        return replaced

    def _expire(self, work: Callable[[], None]) -> None:
        try:
            work()
        except PipelineError:
            raise
        except FileNotFoundError as error:
            # Another process expires snapshots of this table; the next look finds what is left to do.
            _log.warning("%s: old snapshots went while they were looked at: %s", self._name, error)
        except Exception as error:
            raise self._failure("expire snapshots of", error) from error

    @property
    def _version(self) -> str | None:
        return None if self._table is None else self._table.metadata_location

    def _read(self) -> None:
        try:
            self._table, self._written = self._written or self._location.load(), None
            if self._table is None:
                self._state = EMPTY
                return
            self._state = state.pipeline_state(self._pipeline, self._table.metadata.properties)
        except Exception as error:
            raise self._failure("read", error) from error
        self._check_partitions(self._table)

    def _check_partitions(self, table: Table) -> None:
        from pyiceberg.transforms import IdentityTransform

        metadata = table.metadata
        fields = metadata.spec().fields
        columns = [metadata.schema().find_column_name(each.source_id) for each in fields]
        wanted = list(self._sink.partition_by)
        if columns != wanted or not all(isinstance(each.transform, IdentityTransform) for each in fields):
            found = ", ".join(f"{each.transform}({name})" for each, name in zip(fields, columns, strict=True))
            raise PipelineError(
                f"{self._name} is partitioned by {found or 'nothing'}, and partition_by is "
                f"{', '.join(wanted) or 'nothing'}; set partition_by to the table's columns, or write to another table"
            )

    def _write(self, batch: BatchCommit, attempt: Attempt) -> None:
        wanted = schemas.iceberg_schema(batch.schema)
        required: list[str] = []
        if self._table is None:
            transaction = self._new_table(wanted)
        else:
            transaction = self._location.narrowed(self._table, ()).transaction()
            self._grow(transaction, wanted)
            required = schemas.required_columns(self._table.schema())
        if _NAME_MAPPING not in transaction.table_metadata.properties:
            mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
            transaction.set_properties({_NAME_MAPPING: mapping})
        after = state.with_batch(replace(self._state, driver=self._recovered_driver), batch, attempt.number)
        transaction.set_properties(state.as_property(self._pipeline, after))
        folder = f"{self._url}/{attempt.folder}"
        files = data_files(batch, folder, self._sink.partition_by, required, transaction.table_metadata)
        with transaction.update_snapshot().merge_append() as append:
            for each in files:
                append.append_data_file(each)
        self._commit_transaction(transaction)

    def _commit_transaction(self, transaction: Transaction) -> None:
        written = transaction.commit_transaction()
        if self._table is not None:
            self._written = self._location.prepared(written)

    def _new_table(self, wanted: Any) -> Transaction:
        self._location.make_namespace()
        spec = schemas.partition_spec(wanted, self._sink.partition_by)
        return self._location.catalog.create_table_transaction(
            self._location.identifier, wanted, self._url, spec, properties=_PROPERTIES
        )

    def _grow(self, transaction: Transaction, wanted: Any) -> None:
        assert self._table is not None
        table = self._table.schema()
        if schemas.lacks_columns(table, wanted, self._name):
            with transaction.update_schema() as update:
                update.union_by_name(schemas.keeping_required(wanted, table))

    def _write_recovery(self) -> None:
        assert self._table is not None
        transaction = self._location.narrowed(self._table, ()).transaction()
        after = replace(self._state, driver=self._driver.number)
        transaction.set_properties(state.as_property(self._pipeline, after))
        with transaction.update_snapshot().fast_append():
            pass
        self._commit_transaction(transaction)

    def _write_replacements(self, made: Sequence[Replacement], number: int) -> None:
        from pyiceberg.exceptions import ValidationException

        for left in reversed(range(_PREPARED_AT_MOST)):
            try:
                transaction = self._prepared_replacements(made, number)
                break
            except (ValidationException, ReplacementError) as error:
                if not left:
                    raise
                _log.info("%s: a replacement of small files is prepared again: %s", self._name, error)
        self._commit_transaction(transaction)

    def _prepared_replacements(self, made: Sequence[Replacement], number: int) -> Transaction:
        """Everything but the commit. Raises ValidationException or ReplacementError where files were missed."""
        assert self._table is not None
        metadata = self._table.metadata
        transaction = self._location.narrowed(self._table, ()).transaction()
        transaction.set_properties(state.as_property(self._pipeline, replace(self._state, compactions=number)))
        removed = [old.entry for each in made for old in each.files]
        added = [
            data_file(f"{self._url}/{each.name}", each.made.size_bytes, each.made.footer, each.partition, metadata)
            for each in made
        ]
        with transaction.update_snapshot().overwrite() as overwrite:
            for each in removed:
                overwrite.delete_data_file(each)
            for each in added:
                overwrite.append_data_file(each)
        check_replacement(self._table, transaction, removed, added)
        return transaction

    def _small_files(self, watermark_ms: int | None, target_bytes: int) -> list[Bin]:
        assert self._table is not None
        return list(small_files(self._table, watermark_ms, target_bytes, self._url, self._attempts.folder))

    def _live_names(self) -> set[str]:
        assert self._table is not None
        return {each.file_path.removeprefix(f"{self._url}/") for each in live_files(self._table)}
