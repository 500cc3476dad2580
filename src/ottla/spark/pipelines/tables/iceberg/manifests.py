"""The files that snapshots of an Iceberg table refer to, remembered from one look to the next: they never change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

#: Names of files that are remembered of one manifest; those of larger ones are read again.
NAMES_AT_MOST: Final = 200


class ReferredFiles:
    """Manifests and names of files by snapshot; remembers no more than the snapshots of one table have."""

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
