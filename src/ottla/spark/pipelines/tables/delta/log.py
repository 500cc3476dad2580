"""The `txn` actions of a Delta table, all of them: deltalake gives the version of an application id, but no ids.

Source: Delta's protocol (PROTOCOL.md), "Delta Log Entries", "Checkpoints", "Transaction Identifiers".
"""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow.fs
import pyarrow.parquet
from pyarrow.fs import FileSelector, FileType

_FOLDER: Final = "_delta_log"


class TransactionLog:
    """The newest version of each application id at one version of the table, kept from call to call."""

    def __init__(self, filesystem: pyarrow.fs.FileSystem, root: str) -> None:
        """`root` is the table's folder in `filesystem`. Reads nothing yet."""
        self._filesystem = filesystem
        self._folder = f"{root.rstrip('/')}/{_FOLDER}"
        self._version = -1
        self._versions: dict[str, int] = {}

    @property
    def versions(self) -> dict[str, int]:
        """By application id, at the table's version of the last successful `read_to`."""
        return self._versions

    def read_to(self, version: int) -> bool:
        """Read on to this version of the table, one that exists; False if it is gone from the log: take a newer one.

        Raises OSError, and ValueError if the log is damaged.
        """
        if version < self._version:  # another table stands where ours was
            self._version, self._versions = -1, {}
        if self._read_commits(version):
            return True
        if not self._read_checkpoint(version):
            return False
        return self._read_commits(version)

    def _read_commits(self, version: int) -> bool:
        while self._version < version:
            try:
                found = self._of_commit(self._version + 1)
            except FileNotFoundError:
                return False
            self._versions.update(found)
            self._version += 1
        return True

    def _of_commit(self, version: int) -> dict[str, int]:
        return self._of_json(f"{self._folder}/{version:020}.json")

    def _of_json(self, path: str) -> dict[str, int]:
        import io

        found: dict[str, int] = {}
        with self._filesystem.open_input_stream(path) as stream:
            for line in io.BufferedReader(stream):
                if b'"txn"' in line:
                    _take(json.loads(line).get("txn"), found)
        return found

    def _read_checkpoint(self, version: int) -> bool:
        """Start again from the newest checkpoint that is not after `version`."""
        found = self._checkpoint(version)
        if found is None:
            return False
        of_version, paths = found
        versions: dict[str, int] = {}
        for path in paths:
            versions.update(self._of_json(path) if path.endswith(".json") else self._of_parquet(path))
        self._version, self._versions = of_version, versions
        return True

    def _checkpoint(self, version: int) -> tuple[int, list[str]] | None:
        try:
            with self._filesystem.open_input_stream(f"{self._folder}/_last_checkpoint") as stream:
                last = json.loads(stream.read())
        except FileNotFoundError:
            return self._listed_checkpoint(version)
        of_version = int(last["version"])
        if of_version > version or last.get("parts") or "v2Checkpoint" in last:
            return self._listed_checkpoint(version)
        path = f"{self._folder}/{of_version:020}.checkpoint.parquet"
        return (of_version, [path]) if self._exists(path) else self._listed_checkpoint(version)

    def _listed_checkpoint(self, version: int) -> tuple[int, list[str]] | None:
        """The newest whole checkpoint in the folder, by its names: in one file, in parts, or with an id of its own."""
        found: dict[int, list[str]] = {}
        for each in self._filesystem.get_file_info(FileSelector(self._folder, allow_not_found=True)):
            fields = each.base_name.split(".")
            if len(fields) > 2 and fields[1] == "checkpoint" and fields[0].isdigit() and int(fields[0]) <= version:
                found.setdefault(int(fields[0]), []).append(each.path)
        for of_version in sorted(found, reverse=True):
            paths = _whole(found[of_version])
            if paths:
                return of_version, paths
        return None

    def _exists(self, path: str) -> bool:
        return bool(self._filesystem.get_file_info(path).type == FileType.File)

    def _of_parquet(self, path: str) -> dict[str, int]:
        found: dict[str, int] = {}
        with pyarrow.parquet.ParquetFile(self._filesystem.open_input_file(path)) as file:
            if "txn" not in file.schema_arrow.names:
                return found
            for batch in file.iter_batches(columns=["txn.appId", "txn.version"]):
                for txn in batch.column("txn").drop_null().to_pylist():
                    _take(txn, found)
        return found


def _take(txn: Any, found: dict[str, int]) -> None:
    if txn and txn["appId"] is not None:
        found[txn["appId"]] = int(txn["version"])


def _whole(paths: list[str]) -> list[str]:
    """One whole checkpoint among the files of a version: a name may have an id, or the part and the parts."""
    parts: dict[int, list[str]] = {}
    for path in sorted(paths):
        between = path.rpartition("/")[2].split(".")[2:-1]
        if len(between) < 2:
            return [path]
        parts.setdefault(int(between[1]), []).append(path)
    return next((each for count, each in parts.items() if len(each) == count), [])
