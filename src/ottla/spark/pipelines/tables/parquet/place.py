"""The folder of a table, on whatever file system it lies."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

import pyarrow.fs
from pyarrow import fs

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.tables.exclusive import create_exclusively, creates_exclusively, flush_folder
from ottla.spark.pipelines.tables.filesystems import filesystem_error, has_folders, open_filesystem, shown
from ottla.spark.pipelines.tables.parquet.names import is_hidden

#: What belongs to the pipeline; readers pass over it.
HIDDEN: Final = "_ottla"
#: Folders of attempts at batches, by their names.
STAGING: Final = f"{HIDDEN}/staging"
#: A file that is there; creating it again has to fail.
_PROBE: Final = f"{HIDDEN}/created-once"
#: Folders that a start looks through for other writers' files, and for what may be compacted.
FOLDERS_AT_MOST: Final = 10_000


class TablePlace:
    """Paths given and taken are relative to the table's folder."""

    def __init__(self, url: str, storage_options: Mapping[str, str]) -> None:
        self.url = url
        self.storage_options = storage_options
        self.filesystem, self.root = open_filesystem(url, storage_options)

        self.is_local = isinstance(self.filesystem, fs.LocalFileSystem)
        self._has_folders = has_folders(self.filesystem)

    def __str__(self) -> str:
        return shown(self.url)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn the file system's errors in the block into PipelineError."""
        try:
            yield
        except OSError as error:
            raise filesystem_error(self.url, error) from error

    def path(self, relative: str) -> str:
        """The path in the file system."""
        return f"{self.root}/{relative}" if relative else self.root

    def entries(self, relative: str) -> list[pyarrow.fs.FileInfo]:
        """List a folder's files and folders; nothing where it does not exist."""
        found: list[pyarrow.fs.FileInfo] = self.filesystem.get_file_info(
            fs.FileSelector(self.path(relative), allow_not_found=True)
        )
        return found

    def sizes(self, relative: str) -> dict[str, int]:
        """The files at any depth in a folder, as paths relative to it, with their bytes."""
        start = len(self.path(relative)) + 1
        found = self.filesystem.get_file_info(
            fs.FileSelector(self.path(relative), recursive=True, allow_not_found=True)
        )
        return {self._plain(each.path)[start:]: each.size for each in found if each.type == fs.FileType.File}

    def visible_folders(self, at_most: int | None = None) -> Iterator[tuple[str, list[pyarrow.fs.FileInfo]]]:
        """Each folder that readers see, with the files in it that they see; the table's own first, as `""`."""
        waiting = [""]
        yielded = 0
        while waiting and (at_most is None or yielded < at_most):
            folder = waiting.pop()
            yielded += 1
            files = []
            for each in self.entries(folder):
                if is_hidden(each.base_name):
                    continue
                if each.type == fs.FileType.Directory:
                    waiting.append(f"{folder}/{each.base_name}".lstrip("/"))
                else:
                    files.append(each)
            yield folder, files

    def exists(self, relative: str) -> bool:
        """Whether there is a file or folder."""
        return bool(self.filesystem.get_file_info(self.path(relative)).type != fs.FileType.NotFound)

    def read(self, relative: str) -> bytes | None:
        """A small file's content; None where it is not there."""
        try:
            with self.filesystem.open_input_file(self.path(relative)) as file:
                content: bytes = file.readall()
                return content
        except FileNotFoundError:
            return None

    def create(self, relative: str, data: bytes) -> bool:
        """Create a file, whole and durably; False where it is there already. See `create_exclusively`."""
        return create_exclusively(self.filesystem, self.path(relative), data)

    def creates_exclusively(self) -> bool:
        """Whether `create` is one conditional step. A store is tried: some take the condition and do not keep it."""
        if self.is_local or not creates_exclusively(self.filesystem):
            return self.is_local
        self.create(_PROBE, secrets.token_bytes(8))
        return not self.create(_PROBE, secrets.token_bytes(8))

    def move(self, source: str, target: str) -> None:
        """Make a file visible under another name, at once and whole; again does no harm.

        An object store has no renaming: the object is copied there, and the source stays until its folder is removed.
        """
        if self._has_folders:
            self.filesystem.move(self.path(source), self.path(target))
        else:
            self.filesystem.copy_file(self.path(source), self.path(target))

    def make_folder(self, relative: str) -> None:
        """Make a folder with those above it, where the file system has folders."""
        if self._has_folders:
            self.filesystem.create_dir(self.path(relative), recursive=True)

    def delete_folder(self, relative: str) -> None:
        """Remove a folder with all in it; nothing happens where there is none."""
        with suppress(FileNotFoundError):
            self.filesystem.delete_dir(self.path(relative))

    def delete_file(self, relative: str) -> None:
        """Remove a file; nothing happens where there is none."""
        with suppress(FileNotFoundError):
            self.filesystem.delete_file(self.path(relative))

    def flush_folders(self, relatives: set[str]) -> None:
        """Force the entries of local folders, and of those above them in the table, to the disk."""
        if not self.is_local:
            return
        with_parents = {""}
        for relative in relatives:
            while relative:
                with_parents.add(relative)
                relative = relative.rpartition("/")[0]
        for relative in with_parents:
            with suppress(FileNotFoundError):
                flush_folder(self.path(relative))

    def refuse_other_tables(self) -> None:
        """Raise PipelineError if the folder holds a table of another format, or Parquet files."""
        if self.exists("_delta_log"):
            raise PipelineError(f'{self} is a Delta table; choose another folder, or format = "delta"')
        for folder, files in self.visible_folders(FOLDERS_AT_MOST):
            for each in files:
                if each.base_name.endswith(".parquet"):
                    self.refuse_foreign(f"{folder}/{each.base_name}".lstrip("/"))

    def refuse_foreign(self, path: str) -> None:
        """Raise PipelineError, since no commit of this table names this file."""
        raise PipelineError(
            f"{self} holds {path}, which no commit of a pipeline names: another writer's file; "
            "choose another folder, or move the file away"
        )

    def _plain(self, path: str) -> str:
        """Fsspec's memory gives paths with a slash before them."""
        return path if path.startswith(self.root) else path.lstrip("/")
