"""Opening many logs in parallel: some threads per log directory, each thread with its own open files."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final

from ottla.env.disk import DiskError
from ottla.env.executor import Executor
from ottla.storage.checkpoints import NewerVersionError
from ottla.storage.index import DEFAULT_INDEX_MEMORY
from ottla.storage.log import PartitionLog
from ottla.storage.recovery import LogPlace, load_log
from ottla.storage.resources import LogResources

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
