"""The contents of a broker's log directories when it starts: partitions, future logs, interrupted work."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from ottla.cluster.topics import CLUSTER_METADATA_TOPIC
from ottla.config.topic import LogConfig
from ottla.env.clock import Clock
from ottla.env.disk import Disk, DiskError
from ottla.env.executor import Executor
from ottla.storage.checkpoints import NewerVersionError, TopicPartitionKey, forget_moves, read_moves
from ottla.storage.index import DEFAULT_INDEX_MEMORY
from ottla.storage.log import PartitionLog
from ottla.storage.log_directories import LogDirectories
from ottla.storage.log_directory import (
    DELETE_SUFFIX,
    FUTURE_SUFFIX,
    STRAY_SUFFIX,
    LogDirectory,
    parse_partition_directory,
)
from ottla.storage.placement import parse_future_directory
from ottla.storage.recovery import LogPlace, load_log
from ottla.storage.removals import Removals
from ottla.storage.resources import LogResources
from ottla.storage.results import StorageRefusal


class _Place(NamedTuple):
    """A directory of a partition, and its log directory."""

    log_dir: LogDirectory
    log: LogPlace

    @property
    def key(self) -> TopicPartitionKey:
        return self.log.topic, self.log.partition


#: Index files that are named in the message about rebuilt ones.
MOST_PATHS: Final = 3
#: An opened log of a partition, and its log directory.
OpenedLog = tuple[LogDirectory, TopicPartitionKey, PartitionLog]


class LogOpening:
    """Finds the partition directories in all log directories, and opens them."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        directories: LogDirectories,
        resources: LogResources,
        removals: Removals,
        config_of: Callable[[str], LogConfig],
        note: Callable[[str], None],
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._directories = directories
        self._resources = resources
        self._removals = removals
        self._config_of = config_of
        self._note = note
        self._found: dict[TopicPartitionKey, _Place] = {}
        self._found_futures: list[_Place] = []
        #: After `load`: the future logs, and the partitions that cannot be opened because of their contents.
        self.futures: list[OpenedLog] = []
        self.unreadable: set[TopicPartitionKey] = set()

    # -- finding

    def find(self) -> StorageRefusal | None:
        """Open the log directories and look what is in them; a refusal if two hold the same partition."""
        for log_dir in self._directories.all:
            refusal = log_dir.check()  # all of them, before one is changed
            if refusal is not None:
                return refusal
        for log_dir in self._directories.all:
            refusal = log_dir.open()
            if refusal is not None:
                return refusal
            for place in self._partitions_in(log_dir) if log_dir.failure is None else []:
                other = self._found.get(place.key)
                kept = place if other is None else self._newer(other, place)
                if isinstance(kept, StorageRefusal):
                    return kept
                self._found[place.key] = kept
        return None

    def _partitions_in(self, log_dir: LogDirectory) -> list[_Place]:
        """The logs in a log directory, with their checkpoints; interrupted deletions are completed soon."""
        now_ms = self._clock.now_ms()
        for note in log_dir.read_checkpoints():
            self._note(note)
        found, futures = [], []
        try:
            for name in self._disk.listdir(log_dir.path):
                path = f"{log_dir.path}/{name}"
                if name.endswith(DELETE_SUFFIX) and self._disk.is_dir(path):
                    self._removals.add(now_ms, path)
                elif name.endswith(FUTURE_SUFFIX):
                    key = parse_future_directory(name)
                    if key is not None and self._disk.is_dir(path):
                        futures.append(self._place(log_dir, key, path))
                elif not name.endswith(STRAY_SUFFIX):
                    key = parse_partition_directory(name)
                    # The log of a KRaft quorum is not a topic's partition; Apache Kafka's LogManager skips it, too.
                    is_partition = key is not None and key[0] != CLUSTER_METADATA_TOPIC
                    if key is not None and is_partition and self._disk.is_dir(path):
                        found.append(self._place(log_dir, key, path))
        except DiskError as error:
            log_dir.note_failure(error)
            return []
        self._found_futures += futures
        return found

    def _place(self, log_dir: LogDirectory, key: TopicPartitionKey, path: str) -> _Place:
        place = LogPlace(
            path,
            key[0],
            key[1],
            self._config_of(key[0]),
            log_dir.clean,
            log_dir.recovery.get(key, 0),
            log_dir.log_starts.get(key, 0),
            log_dir.high_watermarks.get(key, 0),
        )
        return _Place(log_dir, place)

    def _newer(self, one: _Place, other: _Place) -> _Place | StorageRefusal:
        """Of two directories of one partition the one to which the log was moved last; the other one is removed."""
        moves = []
        for place in (one, other):
            try:
                moves.append(read_moves(self._disk, place.log.directory))
            except DiskError as error:
                place.log_dir.note_failure(error)
                return other if place is one else one
        if moves[0] == moves[1]:
            topic, partition = one.key
            return StorageRefusal(
                f"Duplicate log directories for {topic}-{partition} are found in both {one.log_dir.path} and "
                f"{other.log_dir.path}. Keep the right one and move the other out of log.dirs"
            )
        kept, old = (one, other) if moves[0] > moves[1] else (other, one)
        log_dir, directory = old.log_dir, old.log.directory
        try:
            renamed = self._directories.rename_partition(log_dir, directory, old.key, DELETE_SUFFIX)
            self._disk.fsync_dir(log_dir.path)
        except DiskError as error:
            log_dir.note_failure(error)
            return kept
        self._removals.add(self._clock.now_ms(), renamed)
        self._note(f"{directory} was moved to {kept.log.directory}; what is left of it is removed")
        return kept

    # -- opening

    def load(self, executor: Executor, threads: int) -> list[OpenedLog]:
        """Open all logs, `threads` at a time in each log directory; one with a read error is out of service."""
        directories = self._directories.all
        by_path: dict[str, list[_Place]] = {log_dir.path: [] for log_dir in directories}
        for place in (*self._found.values(), *self._found_futures):
            by_path[place.log_dir.path].append(place)
        places = [[place.log for place in by_path[log_dir.path]] for log_dir in directories]
        loaded = load_logs(self._resources, executor, places, threads, self._clock.now_ms())
        opened: list[OpenedLog] = []
        rebuilt = [path for of_one in places for place in of_one for path in place.rebuilt]
        if rebuilt:
            self._note(_rebuilt(rebuilt, are_all_clean=all(log_dir.clean for log_dir in directories)))
        for log_dir, logs in zip(directories, loaded, strict=True):
            for (_, its), log in zip(by_path[log_dir.path], logs, strict=True):
                key = (its.topic, its.partition)
                is_future = its.directory.endswith(FUTURE_SUFFIX)
                for note in its.notes:
                    self._note(note)
                if isinstance(log, PartitionLog):
                    (self.futures if is_future else opened).append((log_dir, key, log))
                elif isinstance(log, Unreadable):
                    self._note(str(log))
                    if not is_future:
                        self.unreadable.add(key)
                elif log is not None and log_dir.failure is None:
                    log_dir.note_failure(log)
        self._forget_moves()
        return opened

    def _forget_moves(self) -> None:
        """Remove the markers of moves, unless an older copy may be in a log directory that is out of service."""
        if len(self._directories.live()) < len(self._directories.all):
            return
        for place in self._found.values():
            if place.log.was_moved:
                try:
                    forget_moves(self._disk, place.log.directory)
                except DiskError as error:
                    self._note(str(error))


def _rebuilt(paths: list[str], *, are_all_clean: bool) -> str:
    """One message for all index files: after a broker was killed there may be one or two for each partition."""
    shown = ", ".join(paths[:MOST_PATHS])
    more = f" and {len(paths) - MOST_PATHS} more" if len(paths) > MOST_PATHS else ""
    usual = "" if are_all_clean else "; that is usual after a broker was killed, and nothing is lost"
    return f"index files that were missing or damaged are rebuilt from the logs: {shown}{more}{usual}"


#: Files that a thread may have open at one time while it opens a log.
FILES_PER_THREAD: Final = 16
#: Memory for indexes that a thread may use.
INDEX_MEMORY_PER_THREAD: Final = DEFAULT_INDEX_MEMORY // 16

#: Errors caused by the contents of one partition rather than by the disk: a negative file position, a directory in
#: place of a file.
_OF_ONE_PARTITION: Final = frozenset({errno.EINVAL, errno.EOVERFLOW, errno.EISDIR, errno.ENOTDIR})


class Unreadable(Exception):
    """A partition directory cannot be opened, though others beside it can; the message names it and the cause."""


Loaded = PartitionLog | DiskError | Unreadable | None


def load_logs(
    resources: LogResources, executor: Executor, directories: Sequence[Sequence[LogPlace]], threads: int, now_ms: int
) -> list[list[Loaded]]:
    """Open the logs of each log directory, with `threads` threads for each, and wait for them.

    Results are in the order of `directories`: each log, or why it could not be opened. A DiskError affects the whole
    log directory, and the logs after it are None; an error caused by one partition's files affects that partition only
    (Unreadable).
    """
    outcomes: list[list[Loaded]] = [[None] * len(places) for places in directories]
    works = []
    for places, loaded in zip(directories, outcomes, strict=True):
        waiting = deque(range(len(places)))
        work = partial(_load, resources, places, waiting, loaded, now_ms)
        works += [work] * min(threads, len(places))
    for error in executor.run_all(works, len(works)):
        if error is not None:
            raise error
    return outcomes


def _load(
    resources: LogResources, places: Sequence[LogPlace], waiting: deque[int], loaded: list[Loaded], now_ms: int
) -> None:
    """Body of one thread: open queued logs until none is left, or the log directory cannot be read."""
    scratch = LogResources(resources.disk, FILES_PER_THREAD, INDEX_MEMORY_PER_THREAD, resources.producer_expiration_ms)
    while waiting:
        try:
            number = waiting.popleft()
        except IndexError:
            return
        try:
            loaded[number] = load_log(resources, places[number], now_ms, scratch)
        except DiskError as error:
            if error.errno in _OF_ONE_PARTITION:
                loaded[number] = _unreadable(places[number], error)
            else:
                loaded[number] = error
                waiting.clear()
        except Exception as error:
            # Arbitrary contents of one partition directory must not keep the broker from serving the others.
            loaded[number] = _unreadable(places[number], error)


def _unreadable(place: LogPlace, error: Exception) -> Unreadable:
    if isinstance(error, NewerVersionError):
        return Unreadable(f"{place.topic}-{place.partition} is offline: {error}")
    return Unreadable(
        f"{place.directory} cannot be opened ({type(error).__name__}: {error}), so that "
        f"{place.topic}-{place.partition} is offline. "
        f"'ottla log verify' on it, with the broker stopped, reports what is damaged and what a repair would lose"
    )
