"""`BatchTable` of an Iceberg table."""

from __future__ import annotations

import json
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pyiceberg.exceptions import ValidationException
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.settings.model import TableSinkSettings
from ottla.spark.pipelines.tables.attempts import Attempt, AttemptFolders
from ottla.spark.pipelines.tables.contract import BatchCommit, Staging
from ottla.spark.pipelines.tables.filesystems import below
from ottla.spark.pipelines.tables.iceberg import schemas
from ottla.spark.pipelines.tables.iceberg.expiry import Expiry
from ottla.spark.pipelines.tables.iceberg.files import data_file, data_files, python_values
from ottla.spark.pipelines.tables.iceberg.location import MERGING, IcebergLocation, plain_path
from ottla.spark.pipelines.tables.log_table import LogTable, OldFile, PartitionFiles, Replacement
from ottla.spark.pipelines.tables.pipeline_state import EMPTY, PipelineState, QueryCommits

_log = logging.getLogger(__name__)

#: How often a replacement of files is prepared. pyiceberg looks at manifests in several threads with one evaluator that
#: keeps the one in work as an attribute: files are missed now and then, which is noticed before the commit.
_PREPARED_AT_MOST: Final = 10

_NAME_MAPPING: Final = "schema.name-mapping.default"
#: Begins the name of the property that has a pipeline's state, in JSON.
_PROPERTY: Final = "ottla.pipeline."
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
            self._state = _pipeline_state(self._pipeline, self._table.metadata.properties)
        except Exception as error:
            raise self._failure("read", error) from error
        self._check_partitions(self._table)

    def _check_partitions(self, table: Table) -> None:
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
        after = _with_batch(replace(self._state, driver=self._recovered_driver), batch, attempt.number)
        transaction.set_properties(_as_property(self._pipeline, after))
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
        transaction.set_properties(_as_property(self._pipeline, after))
        with transaction.update_snapshot().fast_append():
            pass
        self._commit_transaction(transaction)

    def _write_replacements(self, made: Sequence[Replacement], number: int) -> None:
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
        transaction.set_properties(_as_property(self._pipeline, replace(self._state, compactions=number)))
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

    def _own_files(self) -> Iterator[PartitionFiles]:
        assert self._table is not None
        return own_files(self._table, self._url, self._attempts.folder)

    def _live_names(self) -> set[str]:
        assert self._table is not None
        return {each.file_path.removeprefix(f"{self._url}/") for each in live_files(self._table)}


def _pipeline_state(pipeline: str, properties: Mapping[str, str]) -> PipelineState:
    """Of the table's properties. Raises ValueError, KeyError or TypeError if the property was damaged."""
    text = properties.get(_PROPERTY + pipeline)
    if text is None:
        return EMPTY
    found: Any = json.loads(text)
    queries = {query: QueryCommits(**each) for query, each in found["queries"].items()}
    offsets = {
        source: {topic: {int(number): end for number, end in ends.items()} for topic, ends in topics.items()}
        for source, topics in found["end_offsets"].items()
    }
    return PipelineState(found["driver"], found["compactions"], queries, offsets)


def _as_property(pipeline: str, state: PipelineState) -> dict[str, str]:
    """The property; `query_id` and `batch_id` are there for people, `queries` says the same and more."""
    last = state.last_commit
    text = json.dumps(
        {
            "query_id": None if last is None else last.query_id,
            "batch_id": None if last is None else last.batch_id,
            "end_offsets": state.end_offsets,
            "queries": {
                query: {"order": each.order, "batch_id": each.batch_id, "attempt": each.attempt}
                for query, each in state.queries.items()
            },
            "driver": state.driver,
            "compactions": state.compactions,
        }
    )
    return {_PROPERTY + pipeline: text}


def _with_batch(state: PipelineState, batch: BatchCommit, attempt: int) -> PipelineState:
    """The state after the batch."""
    query = QueryCommits(state.order_of(batch.query_id), batch.batch_id, attempt)
    offsets = {
        source: {topic: dict(ends) for topic, ends in topics.items() if ends}
        for source, topics in batch.end_offsets.items()
    }
    return replace(state, queries={**state.queries, batch.query_id: query}, end_offsets=offsets)


def live_files(table: Table) -> Iterator[DataFile]:
    """The data files of the newest snapshot, in the order of their manifests."""
    snapshot = table.current_snapshot()
    if snapshot is not None:
        yield from files_of(table, snapshot)


def files_of(table: Table, snapshot: Snapshot) -> Iterator[DataFile]:
    """The data files of a snapshot, which may not be committed yet."""
    for manifest in snapshot.manifests(table.io):
        if manifest.content == ManifestContent.DATA:
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                yield entry.data_file


def own_files(table: Table, url: str, own_folder: str) -> Iterator[PartitionFiles]:
    """Yield the files in `own_folder` of the table, whose folder is `url`.

    None of tables with files that say which rows are deleted.
    """
    snapshot = table.current_snapshot()
    if snapshot is None or any(each.content == ManifestContent.DELETES for each in snapshot.manifests(table.io)):
        return
    metadata = table.metadata
    files: dict[tuple[Any, ...], list[DataFile]] = defaultdict(list)
    for file in live_files(table):
        if file.file_path.startswith(f"{url}/{own_folder}/") and file.spec_id == metadata.default_spec_id:
            files[tuple(python_values(file.partition, metadata, file.spec_id))].append(file)
    for partition, found in files.items():
        found.sort(key=lambda each: each.file_path)
        texts = {
            field.name: None if value is None else str(value)
            for field, value in zip(metadata.spec().fields, partition, strict=True)
        }
        olds = [OldFile(each.file_path.removeprefix(f"{url}/"), each.file_size_in_bytes, each) for each in found]
        yield PartitionFiles(found[0].partition, olds, texts)


class ReplacementError(Exception):
    """A replacement of files that would have changed rows; it was not committed."""


def check_replacement(
    table: Table, transaction: Transaction, removed: Sequence[DataFile], added: Sequence[DataFile]
) -> None:
    """Before the commit: the new snapshot has exactly the old one's files but for these. Raises ReplacementError."""
    after = transaction.table_metadata.current_snapshot()
    expected = Counter(each.file_path for each in live_files(table))
    expected.subtract(each.file_path for each in removed)
    expected.update(each.file_path for each in added)
    found = Counter(each.file_path for each in files_of(table, after)) if after is not None else Counter()
    if found != +expected:
        raise ReplacementError("the replacement would have changed rows, and was not committed")
