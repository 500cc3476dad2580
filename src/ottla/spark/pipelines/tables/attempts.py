"""Folders inside a table in which tasks write the files of one attempt at a batch, where readers follow a log.

Files stay where tasks wrote them, so those of attempts that never commit must go. Only attempts that cannot be
committed any more are removed.
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import pyarrow.fs
from pyarrow.fs import FileSelector, FileType

log = logging.getLogger(__name__)

#: Batches whose folders lie in one folder, so that no listing grows with the age of the table.
GROUP: Final = 1000
#: What stands for the query in the folders of files that compaction wrote; they are counted from 1.
COMPACTIONS: Final = "compactions"
#: Bits of the number of an attempt; it must fit a signed number of 64 bits.
_ATTEMPT_BITS = 62


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a batch; `folder` is relative to the table's root."""

    number: int
    folder: str


class AttemptFolders:
    """The folders of one pipeline's attempts below `root`, a folder of `filesystem`."""

    def __init__(self, filesystem: pyarrow.fs.FileSystem, root: str, pipeline: str) -> None:
        self.filesystem = filesystem
        self._root = root.rstrip("/")
        #: Where all of them are, relative to the root.
        self.folder = f"data/{_safe(pipeline)}"
        self._open: dict[tuple[str, int], Attempt] = {}

    def path(self, name: str) -> str:
        """The path in `filesystem` of what is relative to the root."""
        return f"{self._root}/{name}"

    def new_file(self, name: str) -> str:
        """The path in `filesystem` of a file to be written, relative to the root, in a folder that is there."""
        path = self.path(name)
        if self.filesystem.type_name == "local":
            self.filesystem.create_dir(path.rpartition("/")[0], recursive=True)
        return path

    def new(self, query_id: str, batch_id: int) -> Attempt:
        """A place that no other attempt has."""
        number = secrets.randbits(_ATTEMPT_BITS)
        attempt = Attempt(number, f"{self._of_batch(query_id, batch_id)}/{number:x}")
        self._open[query_id, batch_id] = attempt
        return attempt

    def newest(self, query_id: str, batch_id: int) -> Attempt:
        """The newest attempt that was made here. Raises ValueError if there was none."""
        try:
            return self._open[query_id, batch_id]
        except KeyError:
            raise ValueError(f"batch {batch_id} of query {query_id} was never staged here") from None

    def committed(self, query_id: str, batch_id: int, kept: Collection[str]) -> None:
        """After the commit: remove what else was written for the batch; `kept` are paths relative to the table."""
        self._open.pop((query_id, batch_id), None)
        with _only_logged("what failed attempts left"):
            for path in self._files(self._of_batch(query_id, batch_id)):
                if path not in kept:
                    self.filesystem.delete_file(f"{self._root}/{path}")

    def abandon(self, query_id: str, batch_id: int) -> None:
        """Remove the newest attempt, which was not committed and never will be."""
        attempt = self._open.pop((query_id, batch_id), None)
        if attempt is not None:
            with _only_logged("an attempt that was not committed"):
                self._remove(attempt.folder)

    def remove_never_committed(self, last_batches: Mapping[str, int]) -> int:
        """Remove the attempts at batches after the last one of their query (by query id); gives of how many batches.

        Right only where the commits of all older drivers fail. Raises OSError.
        """
        removed = 0
        lasts = {_safe(query): last for query, last in last_batches.items()}
        for query in self._folders(self.folder):
            first = lasts.get(_name(query), -1)
            for group in self._folders(query):
                if int(_name(group)) < first // GROUP:
                    continue
                for batch in self._folders(group):
                    if int(_name(batch)) > first:
                        self._remove(batch)
                        removed += 1
        return removed

    def _of_batch(self, query_id: str, batch_id: int) -> str:
        return f"{self.folder}/{_safe(query_id)}/{batch_id // GROUP}/{batch_id}"

    def _folders(self, folder: str) -> list[str]:
        """Folders below a folder whose names can be ours, relative to the root."""
        deep = folder.count("/") > 1
        return [
            f"{folder}/{each.base_name}"
            for each in self._list(folder, recursive=False)
            if each.type == FileType.Directory and (each.base_name.isdigit() or not deep)
        ]

    def _files(self, folder: str) -> list[str]:
        start = f"{self._root}/"
        return [
            each.path[each.path.index(start) + len(start) :]
            for each in self._list(folder, recursive=True)
            if each.type == FileType.File
        ]

    def _list(self, folder: str, *, recursive: bool) -> list[pyarrow.fs.FileInfo]:
        where = FileSelector(f"{self._root}/{folder}", recursive=recursive, allow_not_found=True)
        found: list[pyarrow.fs.FileInfo] = self.filesystem.get_file_info(where)
        return found

    def _remove(self, folder: str) -> None:
        with suppress(FileNotFoundError):
            self.filesystem.delete_dir(f"{self._root}/{folder}")


@contextmanager
def _only_logged(what: str) -> Iterator[None]:
    """Log errors of removing files that readers do not see: they do not harm the batch."""
    try:
        yield
    except OSError as error:
        log.warning("%s could not be removed: %s", what, error)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _safe(name: str) -> str:
    """The name, with what could mean something in a path or a URL replaced, and then a checksum."""
    made = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    return made if made == name else f"{made}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
