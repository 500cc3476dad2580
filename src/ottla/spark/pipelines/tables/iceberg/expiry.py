"""Old snapshots expire, and files that only they had are removed: at once, or after a crash by the next driver.

What may be removed is written down before the snapshots expire. Whoever finds such a list removes what no snapshot of
the table refers to, and then the list: so a crash at any moment leaves at worst a list.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ottla.spark.pipelines.tables.iceberg.location import IcebergLocation

if TYPE_CHECKING:
    import pyarrow.fs
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

#: Snapshots that are kept however old they are, and the age below which all are kept, where the table does not say.
KEPT_SNAPSHOTS: Final = 20
KEPT_MS: Final = 60 * 60 * 1000
#: Snapshots that wait until there are so many to expire, since all manifests are read for it.
AT_LEAST: Final = 20
_AGE: Final = "history.expire.max-snapshot-age-ms"
_KEPT: Final = "history.expire.min-snapshots-to-keep"
_FOLDER: Final = "metadata/ottla-expired"


class Expiry:
    """The snapshots of one table."""

    def __init__(self, location: IcebergLocation, filesystem: pyarrow.fs.FileSystem, url: str) -> None:
        """`url` is the table's folder."""
        self._location = location
        self._filesystem = filesystem
        self._url = url
        _, self._root = location.open_files(url)

    def expire(self) -> None:
        """Let old snapshots expire, and remove what only they had. Raises what pyiceberg raises, and OSError."""
        from contextlib import suppress

        from pyiceberg.exceptions import CommitFailedException

        table = self._location.load()
        if table is None:
            return
        old = expirable(table, time.time_ns() // 1_000_000)
        if len(old) >= AT_LEAST:
            ids = {each.snapshot_id for each in old}
            kept = [each for each in table.snapshots() if each.snapshot_id not in ids]
            files = reachable(table, old) - reachable(table, kept)
            self._write_list(sorted(each for each in files if each.startswith(f"{self._url}/")))
            with suppress(CommitFailedException):  # Another commit came between; there is a next time.
                table.maintenance.expire_snapshots().by_ids(sorted(ids)).commit()
        self.finish()

    def finish(self) -> None:
        """Remove what lists name and no snapshot has. Raises OSError."""
        from pyarrow.fs import FileSelector, FileType

        where = FileSelector(f"{self._root}/{_FOLDER}", allow_not_found=True)
        lists = [each.path for each in self._filesystem.get_file_info(where) if each.type == FileType.File]
        if not lists:
            return
        table = self._location.load()
        if table is None:
            return
        referred = reachable(table, table.snapshots())
        for path in lists:
            with self._filesystem.open_input_file(path) as file:
                named = json.loads(file.readall())
            for url in named:
                if url not in referred:
                    self._remove(url)
            self._filesystem.delete_file(path)

    def _write_list(self, files: list[str]) -> None:
        folder = f"{self._root}/{_FOLDER}"
        if self._filesystem.type_name == "local":
            self._filesystem.create_dir(folder, recursive=True)
        with self._filesystem.open_output_stream(f"{folder}/{uuid.uuid4()}.json") as file:
            file.write(json.dumps(files).encode())

    def _remove(self, url: str) -> None:
        from contextlib import suppress

        with suppress(FileNotFoundError):
            self._filesystem.delete_file(f"{self._root}/{url.removeprefix(f'{self._url}/')}")


def expirable(table: Table, now_ms: int) -> list[Snapshot]:
    """Snapshots that are old enough, by the table's own properties if it has them; never one with a name."""
    properties = table.metadata.properties
    age_ms = int(properties.get(_AGE, KEPT_MS))
    kept = int(properties.get(_KEPT, KEPT_SNAPSHOTS))
    named = {each.snapshot_id for each in table.metadata.refs.values()}
    newest_first = sorted(table.snapshots(), key=lambda each: each.timestamp_ms, reverse=True)
    return [
        each for each in newest_first[kept:] if each.timestamp_ms < now_ms - age_ms and each.snapshot_id not in named
    ]


def reachable(table: Table, snapshots: Iterable[Snapshot]) -> set[str]:
    """All files that these snapshots refer to: lists of manifests, manifests, and files of rows and of deletes."""
    found: set[str] = set()
    for snapshot in snapshots:
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in found:
                found.add(manifest.manifest_path)
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                found.update(each.data_file.file_path for each in entries)
    return found
