"""The location of an Iceberg table: its catalog, and its folder for pyarrow and for tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Final

import pyarrow.fs
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import LongType, NestedField

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.settings.model import TableSinkSettings
from ottla.spark.pipelines.tables.filesystems import open_filesystem

#: The catalog's names of S3's settings, and pyarrow's.
_S3_SETTINGS: Final = {
    "s3.endpoint": "endpoint_override",
    "s3.access-key-id": "access_key",
    "s3.secret-access-key": "secret_key",
    "s3.session-token": "session_token",
    "s3.region": "region",
}
#: pyiceberg tries a failed commit again by this property, whatever came between; see `IcebergLocation.prepared`.
_RETRIES: Final = "commit.retry.num-retries"
#: Properties for tables that do not set them. Iceberg merges manifests by default, from 100 on; pyiceberg does not. All
#: manifests of a snapshot are listed in each commit and read by each reader, so fewer are wanted.
MERGING: Final = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "20"}

#: How often a catalog is opened at most. A new SQL catalog looks for its two tables, then makes those that are missing,
#: and fails where another driver made one of them in between: once for each table, and the third attempt finds both.
_OPENED_AT_MOST: Final = 3


class IcebergLocation:
    """A table's catalog and identifier."""

    def __init__(self, sink: TableSinkSettings) -> None:
        """Raises PipelineError if the catalog or the table is not named, or the catalog cannot be opened."""
        if not sink.catalog or not sink.table:
            raise PipelineError("a sink of format iceberg needs catalog and table, the names of both")
        self.identifier = tuple(sink.table.split("."))
        if len(self.identifier) < 2:
            raise PipelineError(f"table = {sink.table!r} names no namespace; write it as NAMESPACE.TABLE")
        self.name = f"the Iceberg table {sink.table}"
        self._sink = sink
        self.catalog = _catalog(sink)

    def load(self) -> Table | None:
        """The table at its newest version, as `prepared`; None if there is none."""
        try:
            return self.prepared(self.catalog.load_table(self.identifier))
        except (NoSuchTableError, NoSuchNamespaceError):
            return None

    def prepared(self, table: Table) -> Table:
        """The table, whose transactions are not tried again, and merge manifests unless it says no.

        In this process only: nothing of it is sent to the catalog.
        """
        properties = {**MERGING, **table.metadata.properties, _RETRIES: "0"}
        table.metadata = table.metadata.model_copy(update={"properties": properties})
        return table

    def narrowed(self, table: Table, snapshots: Sequence[Snapshot]) -> Table:
        """The same version of the table, for transactions that need no other snapshots than these and the newest.

        pyiceberg copies all snapshots that it sees, some twenty times in a transaction; the catalog has them all.
        """
        newest = table.current_snapshot()
        kept = {each.snapshot_id: each for each in (*snapshots, newest) if each is not None}
        seen = copy(table)
        seen.metadata = table.metadata.model_copy(update={"snapshots": [*kept.values()], "snapshot_log": []})
        return seen

    def url(self, table: Table | None) -> str:
        """The table's folder as its files are named; of a table to be made, where the catalog would make it."""
        if table is not None:
            return table.location().rstrip("/")
        if self._sink.path:
            return self._sink.path.rstrip("/")
        self.make_namespace()
        any_schema = Schema(NestedField(1, "any", LongType()))
        staged = self.catalog.create_table_transaction(self.identifier, any_schema)
        return staged.table_metadata.location.rstrip("/")

    def make_namespace(self) -> None:
        """The namespace, if it is not there; another driver may make it at the same moment."""
        try:
            self.catalog.create_namespace_if_not_exists(self.identifier[:-1])
        except Exception:
            # pyiceberg looks and creates in two steps, and passes on whatever the catalog says of a second one.
            if not self.catalog.namespace_exists(self.identifier[:-1]):
                raise

    def storage_options(self) -> dict[str, str]:
        """Return the settings' options; else the catalog's S3 settings by pyarrow's names."""
        if self._sink.storage_options:
            return dict(self._sink.storage_options)
        options = self._sink.catalog_options
        return {known: options[name] for name, known in _S3_SETTINGS.items() if name in options}

    def open_files(self, url: str) -> tuple[pyarrow.fs.FileSystem, str]:
        """The file system of the table's folder, and its path there."""
        return open_filesystem(plain_path(url), self.storage_options())


def plain_path(url: str) -> str:
    """A local folder without `file:`: pyiceberg takes the rest as it is, and does not resolve %20."""
    if not url.startswith("file:"):
        return url
    return "/" + url.removeprefix("file:").lstrip("/")


def _catalog(sink: TableSinkSettings) -> Catalog:
    options: Mapping[str, Any] = sink.catalog_options
    for attempt in range(_OPENED_AT_MOST):
        try:
            return load_catalog(sink.catalog, **options)
        except Exception as error:
            if attempt + 1 < _OPENED_AT_MOST:
                continue
            said = str(error).split("\n", 1)[0]
            raise PipelineError(f"the Iceberg catalog {sink.catalog} cannot be opened: {said}") from error
    raise AssertionError("the last attempt returns or raises")
