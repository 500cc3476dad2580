"""A disk that knows what a loss of power would leave of it, and whose forcing to disk can be held up."""

from __future__ import annotations

import os
import threading
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path

from ottla.env.disk import Disk, DiskFile
from ottla.testing.disk_faulty import FaultyDisk, FaultyFile

HELD_TIMEOUT_S = 60.0


class PowerLossDisk(FaultyDisk):
    """Only what was forced survives: a file's bytes up to its length when it was last forced, under a name that its
    folder had when that was last forced. Bytes that were overwritten in place do not occur: logs are appended to, and
    small files replaced. A replaced file that was not forced loses its content.
    """

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk)
        self._guard = threading.Lock()
        self._synced: dict[str, int] = {}
        self._names: dict[str, set[str]] = {}
        self._held: dict[str, threading.Event] = {}
        #: How often each path was forced to disk, or was about to be.
        self.flushes: Counter[str] = Counter()

    # Holding up

    def hold(self, pattern: str) -> None:
        """Forcing paths that match does not end until `let_go`."""
        self._held[pattern] = threading.Event()

    def let_go(self) -> None:
        """Whatever was held up continues."""
        held, self._held = self._held, {}
        for event in held.values():
            event.set()

    def check(self, operation: str, path: str) -> None:
        """See `FaultyDisk.check`."""
        if operation == "flush":
            self.flushes[path] += 1
            for pattern, event in list(self._held.items()):
                if fnmatchcase(path, pattern):
                    assert event.wait(HELD_TIMEOUT_S), f"nobody let {path} go"
        super().check(operation, path)

    # What survives

    def open(self, path: str, create: bool = False) -> DiskFile:
        """See `Disk.open`."""
        self.check("open", path)
        return _File(self, self.disk.open(path, create))

    def write_atomic(self, path: str, data: bytes, sync: bool = True) -> None:
        """See `Disk.write_atomic`."""
        super().write_atomic(path, data, sync)
        with self._guard:
            if sync:
                self._synced[path] = len(data)
                self._force_names(os.path.dirname(path))
            else:
                self._synced.pop(path, None)

    def rename(self, source: str, target: str) -> None:
        """See `Disk.rename`."""
        super().rename(source, target)
        with self._guard:
            if source in self._synced:
                self._synced[target] = self._synced.pop(source)

    def fsync_dir(self, path: str) -> None:
        """See `Disk.fsync_dir`."""
        super().fsync_dir(path)
        with self._guard:
            self._force_names(path)

    def _force_names(self, folder: str) -> None:
        self._names[folder] = set(self.disk.listdir(folder))

    def forced(self, path: str, size: int) -> None:
        """A file was forced when it had this many bytes."""
        with self._guard:
            self._synced[path] = size

    def cut(self, path: str, size: int) -> None:
        """A file was shortened: what is cut off is gone whether or not the new end is forced."""
        with self._guard:
            if path in self._synced:
                self._synced[path] = min(self._synced[path], size)

    def survivors(self, folder: Path, target: Path) -> None:
        """Make `target` what `folder` would be after a loss of power now."""
        with self._guard:
            self._copy(str(folder), target)

    def _copy(self, folder: str, target: Path) -> None:
        target.mkdir()
        for name in self._names.get(folder, ()):
            path = f"{folder}/{name}"
            if self.disk.is_dir(path):
                self._copy(path, target / name)
            elif self.disk.exists(path):
                (target / name).write_bytes(self.disk.read_bytes(path)[: self._synced.get(path, 0)])


class _File(FaultyFile):
    """A file of such a disk."""

    __slots__ = ("_loss",)

    def __init__(self, disk: PowerLossDisk, file: DiskFile) -> None:
        super().__init__(disk, file)
        self._loss = disk

    def truncate(self, size: int) -> None:
        """See `DiskFile.truncate`."""
        super().truncate(size)
        self._loss.cut(self.path, size)

    def flush(self) -> None:
        """See `DiskFile.flush`: what is written meanwhile is not known to be forced."""
        size = self.size
        super().flush()
        self._loss.forced(self.path, size)
