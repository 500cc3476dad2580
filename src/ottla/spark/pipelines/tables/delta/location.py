"""The location of a Delta table, for pyarrow and for deltalake."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

import deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.settings.model import TableSinkSettings
from ottla.spark.pipelines.tables.filesystems import below, open_filesystem, shown

#: pyarrow's names of S3's settings, and those of object_store.
_OBJECT_STORE_NAMES: Final = {
    "access_key": "AWS_ACCESS_KEY_ID",
    "anonymous": "AWS_SKIP_SIGNATURE",
    "endpoint_override": "AWS_ENDPOINT_URL",
    "force_virtual_addressing": "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
    "region": "AWS_REGION",
    "secret_key": "AWS_SECRET_ACCESS_KEY",
    "session_token": "AWS_SESSION_TOKEN",
}


class DeltaLocation:
    """A table's folder: `url` as the user has it, `filesystem` and `root` for pyarrow, `uri` and `options` else."""

    def __init__(self, sink: TableSinkSettings) -> None:
        """Raises PipelineError without a path, or without its file system."""
        if not sink.path:
            raise PipelineError("a sink of format delta needs path, the URL of the table's folder")
        self.url = sink.path.rstrip("/")
        self.name = f"the Delta table {shown(self.url)}"
        self.filesystem, self.root = open_filesystem(self.url, sink.storage_options)
        self._local = self.filesystem.type_name == "local"
        self.uri = self.root if self._local else self.url
        self.options = None if self._local else object_store_options(sink.storage_options)

    def below(self, folder: str) -> str:
        """The URL of a folder of the table."""
        return below(self.url, folder)

    def make_root(self) -> None:
        """The folder, where file systems have such."""
        if self._local:
            self.filesystem.create_dir(self.root, recursive=True)

    def newest(self, table: deltalake.DeltaTable | None) -> deltalake.DeltaTable | None:
        """The table at its newest version, from an older one if there is one; None if it does not exist."""
        if table is not None:
            try:
                table.update_incremental()
            except DeltaError:
                pass  # It may have been recreated, or its log cleaned up.
            else:
                return table
        return self.open()

    def open(self) -> deltalake.DeltaTable | None:
        """The table; None if there is none."""
        try:
            return deltalake.DeltaTable(self.uri, storage_options=self.options)
        except TableNotFoundError:
            return None

    def properties(self, versions: Mapping[str, int]) -> deltalake.CommitProperties:
        """For a commit that fails if another came before it; with these versions of application ids."""
        now_ms = time.time_ns() // 1_000_000
        entries = [deltalake.Transaction(name, value, now_ms) for name, value in versions.items()]
        return deltalake.CommitProperties(max_commit_retries=0, app_transactions=entries)

    def add_columns(self, table: deltalake.DeltaTable, schema: deltalake.Schema) -> None:
        """Let the table have all columns of `schema`, and no new rows; fails if another commit came before it."""
        table.alter.add_columns(schema.fields, commit_properties=self.properties({}))


def object_store_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options of a file system in the words of the Rust library object_store, which deltalake uses.

    S3's have other names there; others are as they are.
    """
    made = {_OBJECT_STORE_NAMES.get(name, name): value for name, value in options.items() if name != "scheme"}
    endpoint = made.get("AWS_ENDPOINT_URL")
    if endpoint is not None:
        if "://" not in endpoint:
            endpoint = made["AWS_ENDPOINT_URL"] = f"{options.get('scheme', 'https')}://{endpoint}"
        if endpoint.startswith("http:"):
            made.setdefault("AWS_ALLOW_HTTP", "true")
    return made
