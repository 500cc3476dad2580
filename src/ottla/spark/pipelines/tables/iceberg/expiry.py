"""Old snapshots expire, and files that only they had are removed an hour later: by this driver or by a later one.

What may be removed is written down before the snapshots expire, and once they have expired it is written again with the
moment. A crash in between leaves the first list: whoever finds it writes the second one, of what nothing refers to by
then. So whoever began to read a snapshot that is expiring has an hour to end, and a crash leaves at worst a list.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Final

import pyarrow.fs
from pyarrow.fs import FileSelector, FileType
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from ottla.spark.pipelines.tables.iceberg.location import IcebergLocation

#: Names of files that are remembered of one manifest; those of larger ones are read again.
NAMES_AT_MOST: Final = 200
#: Snapshots that are kept however old they are, and the age below which all are kept, where the table does not say.
KEPT_SNAPSHOTS: Final = 20
KEPT_MS: Final = 60 * 60 * 1000
#: Snapshots that are kept however young they are, where the table does not say an age: all of them are read and written
#: with each commit.
KEPT_AT_MOST: Final = 100
#: Snapshots that expire at once at least, since manifests are read for it; fewer wait.
AT_LEAST: Final = 20
#: Snapshots that expire at once, the oldest first; more wait for the next look.
AT_ONCE: Final = 100
#: Time between the expiry of a snapshot and the removal of its files, for those who still read it.
REMOVED_AFTER_MS: Final = 60 * 60 * 1000
_AGE: Final = "history.expire.max-snapshot-age-ms"
_KEPT: Final = "history.expire.min-snapshots-to-keep"
_FOLDER: Final = "metadata/ottla-expired"
_PLANNED: Final = "planned"
#: The name of a list of manifests: with the snapshot, the attempt, and what the names of its manifests begin with.
_LIST: Final = re.compile(r"snap-\d+-\d+-([^/]*)\.avro$")


@dataclass(frozen=True, slots=True)
class ExpiredFiles:
    """URLs of lists of manifests and manifests; and of files of rows and of deletes."""

    metadata: list[str]
    rows: list[str]


class Expiry:
    """The snapshots of one table."""

    def __init__(self, location: IcebergLocation, filesystem: pyarrow.fs.FileSystem, url: str) -> None:
        """`url` is the table's folder."""
        self._location = location
        self._filesystem = filesystem
        self._url = url
        _, self._root = location.open_files(url)
        self._referred = ReferredFiles()

    def expire(self, table: Table) -> None:
        """Let old snapshots of the newest version expire, and remove what others had before them.

        Raises what pyiceberg raises, and OSError.
        """
        old = expirable(table, _now_ms())[-AT_ONCE:]
        if len(old) < AT_LEAST:
            return
        ids = {each.snapshot_id for each in old}
        kept = [each for each in table.snapshots() if each.snapshot_id not in ids]
        files = self._only_of(table, old, kept)
        planned = self._write_list(_PLANNED, files)
        try:
            self._location.narrowed(table, old).maintenance.expire_snapshots().by_ids(sorted(ids)).commit()
        except CommitFailedException:  # Another commit came between; there is a next time.
            self._remove(planned)
            return
        self._write_list(str(_now_ms()), files)
        self._remove(planned)
        self.finish()

    def finish(self) -> None:
        """Remove what lists name for long enough, and no snapshot has. Raises OSError."""
        now_ms = _now_ms()
        due = [each for each in self._lists() if _expired_ms(each) < now_ms - REMOVED_AFTER_MS]
        table = self._location.load() if due else None
        if table is None:
            return
        for path in due:
            with suppress(FileNotFoundError):  # Another pipeline's driver was there first.
                files = self._unreferred(table, self._read_list(path))
                if not _expired_ms(path):
                    self._write_list(str(now_ms), files)
                else:
                    for url in (*files.metadata, *files.rows):
                        self._remove(f"{self._root}/{url.removeprefix(f'{self._url}/')}")
            self._remove(path)

    def _lists(self) -> list[str]:
        where = FileSelector(f"{self._root}/{_FOLDER}", allow_not_found=True)
        return sorted(each.path for each in self._filesystem.get_file_info(where) if each.type == FileType.File)

    def _only_of(self, table: Table, old: Sequence[Snapshot], kept: Sequence[Snapshot]) -> ExpiredFiles:
        """The files in the table's folder that old snapshots have, and those that are kept have not."""
        lists = {each.manifest_list for each in old} - {each.manifest_list for each in kept}
        shared = self._referred.manifests(table, kept)
        gone = {path: each for path, each in self._referred.manifests(table, old).items() if path not in shared}
        rows = {name for each in gone.values() for name in self._referred.live_names(table, each)}
        left = self._referred.without(table, rows, shared.values())
        self._referred.keep_only(kept)
        merged = {_first_manifest(each) for each in old} - set(shared)
        return ExpiredFiles(self._ours({*lists, *gone, *merged}), self._ours(left))

    def _unreferred(self, table: Table, files: ExpiredFiles) -> ExpiredFiles:
        """Return the files that no snapshot of the table has."""
        snapshots = table.snapshots()
        shared = self._referred.manifests(table, snapshots)
        metadata = set(files.metadata) - {each.manifest_list for each in snapshots} - set(shared)
        left = self._referred.without(table, files.rows, shared.values())
        self._referred.keep_only(snapshots)
        return ExpiredFiles(self._ours(metadata), self._ours(left))

    def _ours(self, urls: Iterable[str]) -> list[str]:
        return sorted(each for each in urls if each.startswith(f"{self._url}/"))

    def _write_list(self, name: str, files: ExpiredFiles) -> str:
        folder = f"{self._root}/{_FOLDER}"
        if self._filesystem.type_name == "local":
            self._filesystem.create_dir(folder, recursive=True)
        path = f"{folder}/{name}-{uuid.uuid4()}.json"
        with self._filesystem.open_output_stream(path) as file:
            file.write(json.dumps(asdict(files)).encode())
        return path

    def _read_list(self, path: str) -> ExpiredFiles:
        with self._filesystem.open_input_file(path) as file:
            return ExpiredFiles(**json.loads(file.readall()))

    def _remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._filesystem.delete_file(path)


def expirable(table: Table, now_ms: int) -> list[Snapshot]:
    """Snapshots that are old or many enough, by the table's own properties if it has them; never one with a name."""
    properties = table.metadata.properties
    age_ms = int(properties.get(_AGE, KEPT_MS))
    kept = int(properties.get(_KEPT, KEPT_SNAPSHOTS))
    named = {each.snapshot_id for each in table.metadata.refs.values()}
    newest_first = sorted(table.snapshots(), key=lambda each: each.timestamp_ms, reverse=True)
    at_most = len(newest_first) if _AGE in properties else max(KEPT_AT_MOST, kept)
    return [
        each
        for rank, each in enumerate(newest_first)
        if rank >= kept and (rank >= at_most or each.timestamp_ms < now_ms - age_ms) and each.snapshot_id not in named
    ]


def _first_manifest(snapshot: Snapshot) -> str:
    """The manifest of the files that a commit added; pyiceberg leaves it there if it was merged in the same commit."""
    return _LIST.sub(r"\1-m0.avro", snapshot.manifest_list)


def _expired_ms(path: str) -> int:
    """When the snapshots of a list had expired; 0 if they may not have."""
    moment = path.rpartition("/")[2].partition("-")[0]
    return int(moment) if moment.isdigit() else 0


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class ReferredFiles:
    """Manifests and names of files by snapshot, which never change; remembers only those of one table's snapshots."""

    def __init__(self) -> None:
        #: By the URL of the list of manifests.
        self._manifests: dict[str, Sequence[ManifestFile]] = {}
        #: By the URL of the manifest.
        self._names: dict[str, Sequence[str]] = {}

    def manifests(self, table: Table, snapshots: Iterable[Snapshot]) -> dict[str, ManifestFile]:
        """The manifests of the snapshots by their URLs, the newest snapshot's first."""
        found: dict[str, ManifestFile] = {}
        for snapshot in sorted(snapshots, key=lambda each: each.timestamp_ms, reverse=True):
            known = self._manifests.get(snapshot.manifest_list)
            if known is None:
                known = self._manifests[snapshot.manifest_list] = snapshot.manifests(table.io)
            for each in known:
                found.setdefault(each.manifest_path, each)
        return found

    def live_names(self, table: Table, manifest: ManifestFile) -> Sequence[str]:
        """The URLs of the files of rows and of deletes in a manifest."""
        found = self._names.get(manifest.manifest_path)
        if found is None:
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            found = [each.data_file.file_path for each in entries]
            if len(found) <= NAMES_AT_MOST:
                self._names[manifest.manifest_path] = found
        return found

    def without(self, table: Table, names: Iterable[str], manifests: Iterable[ManifestFile]) -> set[str]:
        """Return the names that none of the manifests has; read no more manifests than that takes."""
        left = set(names)
        for each in manifests:
            if not left:
                break
            left.difference_update(self.live_names(table, each))
        return left

    def keep_only(self, snapshots: Iterable[Snapshot]) -> None:
        """Forget what other snapshots had."""
        lists = {each.manifest_list for each in snapshots}
        self._manifests = {path: each for path, each in self._manifests.items() if path in lists}
        paths = {each.manifest_path for manifests in self._manifests.values() for each in manifests}
        self._names = {path: each for path, each in self._names.items() if path in paths}
