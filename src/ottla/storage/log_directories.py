"""The log directories of a broker together: locks, owner, which partition is where, and which of them have failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ottla.env.clock import Clock
from ottla.env.disk import Disk, DiskError
from ottla.env.executor import Executor
from ottla.storage.checkpoints import MetaProperties, TopicPartitionKey
from ottla.storage.log_directory import STRAY_SUFFIX, LogDirectory, renamed_directory_name
from ottla.storage.results import StorageRefusal

#: A log directory is probed at most once in this time.
PROBE_AGAIN_MS: Final = 1_000


class LogDirectories:
    """The directories of `log.dirs`. `note` receives messages to the operator.

    One that fails is taken out of service (`on_failed`), the others stay.
    """

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        executor: Executor,
        paths: Sequence[str],
        note: Callable[[str], None],
        on_failed: Callable[[LogDirectory], None],
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._executor = executor
        self._note = note
        self._on_failed = on_failed
        #: All log directories, in the order of `log.dirs`.
        self.all = [LogDirectory(disk, path.rstrip("/") or "/") for path in paths]
        #: Whether directories that are suspected are probed: while the broker runs.
        self.is_probing = False
        self._log_dir_by_partition: dict[TopicPartitionKey, LogDirectory] = {}
        #: How many logs each log directory holds, by its path.
        self._partition_counts: Counter[str] = Counter()
        self._under_probe: set[str] = set()
        self._probed_ms: dict[str, int] = {}
        self._renamed = 0

    def live(self) -> list[LogDirectory]:
        """The log directories in service."""
        return [log_dir for log_dir in self.all if log_dir.failure is None]

    # -- locks

    def lock(self) -> StorageRefusal | None:
        """Lock all. After a refusal none is locked.

        One with a disk error is left out, as long as another works; one that is in use leads to a refusal.
        """
        paths: dict[str, str] = {}
        for log_dir in self.all:
            absolute = self._disk.absolute(log_dir.path)
            if absolute in paths:
                self.release()
                return StorageRefusal(
                    f"{paths[absolute]} and {log_dir.path} of log.dirs are one directory. Name it once"
                )
            paths[absolute] = log_dir.path
            refusal = log_dir.lock()
            if refusal is not None:
                self.release()
                return refusal
        return self.refuse_if_all_failed()

    def refuse_if_all_failed(self) -> StorageRefusal | None:
        """A refusal, with all unlocked, if none is in service."""
        if any(log_dir.failure is None for log_dir in self.all):
            return None
        self.release()
        return StorageRefusal(
            f"Shutdown broker because none of the specified log dirs from "
            f"{', '.join(log_dir.path for log_dir in self.all)} can be created or validated: "
            f"{'; '.join(str(log_dir.failure) for log_dir in self.all)}. "
            f"{'. '.join(dict.fromkeys(log_dir.cure for log_dir in self.all))}, or choose another directory for the "
            f"log (log.dirs)"
        )

    def release(self) -> None:
        """Unlock all."""
        for log_dir in self.all:
            log_dir.release()

    # -- owner

    @property
    def stored_identity(self) -> MetaProperties:
        """Cluster and broker id in the `meta.properties`; None if they name none."""
        metas = [log_dir.meta for log_dir in self.all]
        return MetaProperties(
            next((meta.cluster_id for meta in metas if meta.cluster_id is not None), None),
            next((meta.broker_id for meta in metas if meta.broker_id is not None), None),
        )

    def claim(self, cluster_id: str, broker_id: int) -> StorageRefusal | None:
        """Write the ids into those that name none; refuse if one belongs to another cluster or broker."""
        for log_dir in self.all:
            meta = log_dir.meta
            if meta.cluster_id is not None and meta.cluster_id != cluster_id:
                return StorageRefusal(
                    f"The Cluster ID {cluster_id} doesn't match stored clusterId {meta.cluster_id} in "
                    f"meta.properties of {log_dir.path}. The broker is trying to join the wrong cluster. Use another "
                    f"directory (log.dirs), or the cluster that this one belongs to"
                )
            if meta.broker_id is not None and meta.broker_id != broker_id:
                return StorageRefusal(
                    f"Configured broker.id {broker_id} doesn't match stored broker.id {meta.broker_id} in "
                    f"meta.properties of {log_dir.path}. If you moved your data, make sure your configured broker.id "
                    f"matches. If you intend to create a new broker, you should remove all data in your data "
                    f"directories (log.dirs)."
                )
        for log_dir in self.live():
            try:
                log_dir.write_meta(MetaProperties(cluster_id, broker_id))
            except DiskError as error:
                self.fail(log_dir, error)
        return self.refuse_if_all_failed()

    # -- which partition is where

    def set_log_dir(self, key: TopicPartitionKey, log_dir: LogDirectory) -> None:
        """The partition's log is in this directory."""
        self._log_dir_by_partition[key] = log_dir
        self._partition_counts[log_dir.path] += 1

    def at(self, path: str) -> LogDirectory | None:
        """The directory of this absolute path, in service or not; None if `log.dirs` does not name it."""
        return next((log_dir for log_dir in self.all if self._disk.absolute(log_dir.path) == path), None)

    def remove_log_dir(self, key: TopicPartitionKey) -> LogDirectory:
        """Take the partition's log out of service; returns the directory where it was."""
        log_dir = self._log_dir_by_partition.pop(key)
        self._partition_counts[log_dir.path] -= 1
        return log_dir

    def log_dir_of(self, key: TopicPartitionKey) -> LogDirectory | None:
        """The directory that holds this partition's log."""
        return self._log_dir_by_partition.get(key)

    def keys_in(self, log_dir: LogDirectory) -> list[TopicPartitionKey]:
        """The partitions whose logs are in this directory."""
        return [key for key, place in self._log_dir_by_partition.items() if place is log_dir]

    def keys_by_path(self) -> dict[str, list[TopicPartitionKey]]:
        """The partitions of each directory, by its path."""
        found: dict[str, list[TopicPartitionKey]] = {log_dir.path: [] for log_dir in self.all}
        for key, place in self._log_dir_by_partition.items():
            found[place.path].append(key)
        return found

    def emptiest(self) -> LogDirectory:
        """The directory with the fewest logs, of those in service."""
        return min(self.live() or self.all, key=lambda log_dir: self._partition_counts[log_dir.path])

    # -- failures

    def fail(self, log_dir: LogDirectory, error: DiskError) -> None:
        """Take a log directory and its partitions out of service; the others stay."""
        if log_dir.failure is not None:
            return
        log_dir.note_failure(error)
        self._on_failed(log_dir)

    def probe_soon(self, log_dir: LogDirectory) -> None:
        """Probe a directory in a disk thread, after a disk error; it fails if it cannot be written and read."""
        path, now_ms = log_dir.path, self._clock.now_ms()
        probed_ms = self._probed_ms.get(path)
        if path in self._under_probe or log_dir.failure is not None or not self.is_probing:
            return
        if probed_ms is not None and 0 <= now_ms - probed_ms < PROBE_AGAIN_MS:
            return
        self._under_probe.add(path)
        self._probed_ms[path] = now_ms

        def done(_: None, error: BaseException | None) -> None:
            self._under_probe.discard(path)
            if isinstance(error, DiskError) and not error.is_exhausted:
                self.fail(log_dir, error)

        self._executor.call(log_dir.probe, done)

    def raise_unless_failed(self, log_dir: LogDirectory, error: DiskError) -> None:
        """Probe it now; raise the error, unless the whole directory has failed and another one can be tried."""
        if error.is_exhausted:
            raise error
        try:
            log_dir.probe()
        except DiskError as failed:
            if not failed.is_exhausted:
                self.fail(log_dir, failed)
                if self.live():
                    return
        raise error

    def in_background(
        self, work: Callable[[], None], log_dir: LogDirectory, ended: Callable[[], None] | None = None
    ) -> None:
        """Run it in a disk thread, then call `ended`; if it fails, probe the log directory concerned."""

        def done(_: None, error: BaseException | None) -> None:
            if error is not None:
                if log_dir.failure is None:
                    self._note(str(error))
                self.probe_soon(log_dir)
            if ended is not None:
                ended()

        self._executor.call(work, done)

    # -- partition directories

    def unique_id(self) -> str:
        """The unique part of the name of a partition directory that is not in service: 32 hexadecimal digits."""
        self._renamed += 1
        return f"{self._clock.now_ms():016x}{self._renamed:016x}"

    def rename_partition(self, log_dir: LogDirectory, path: str, key: TopicPartitionKey, suffix: str) -> str:
        """Rename a partition directory that is out of service; returns its new path. Raises DiskError."""
        renamed = f"{log_dir.path}/{renamed_directory_name(*key, self.unique_id(), suffix)}"
        while self._disk.exists(renamed):  # from before a start, by a clock that was set back
            renamed = f"{log_dir.path}/{renamed_directory_name(*key, self.unique_id(), suffix)}"
        self._disk.rename(path, renamed)
        return renamed

    def make_room(self, key: TopicPartitionKey) -> None:
        """Rename a directory with a new partition's name, which could not be renamed on deletion, in each of them.

        With a second directory of that name in another log directory the broker would refuse to start.
        """
        for log_dir in self.live():
            path = f"{log_dir.path}/{key[0]}-{key[1]}"
            if not self._disk.exists(path):
                continue
            try:
                aside = self.rename_partition(log_dir, path, key, STRAY_SUFFIX)
                self._disk.fsync_dir(log_dir.path)
            except DiskError as error:
                self.raise_unless_failed(log_dir, error)
                continue
            self._note(f"{path} was in the way of a new partition, and is {aside} now; remove it if it is not needed")

    def sync_soon(self, log_dir: LogDirectory) -> None:
        """Sync the directory's entries in a disk thread."""
        self.in_background(partial(self._disk.fsync_dir, log_dir.path), log_dir)
