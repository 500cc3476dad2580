"""Opening many logs at one time: some threads for each folder of `log.dirs`, each thread with files of its own."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final

from ottla.env.disk import DiskError
from ottla.env.executor import Executor
from ottla.storage.index import DEFAULT_INDEX_MEMORY
from ottla.storage.log import PartitionLog
from ottla.storage.recovery import LogPlace, load_log
from ottla.storage.resources import LogResources

#: Files that a thread may have open at one time while it opens a log.
FILES_PER_THREAD: Final = 16
#: Memory for indexes that a thread may use.
INDEX_MEMORY_PER_THREAD: Final = DEFAULT_INDEX_MEMORY // 16

#: What the system answers to what was read, not for the sake of the disk: a position before a file's begin, a folder
#: where a file should be.
_OF_ONE_PARTITION: Final = frozenset({errno.EINVAL, errno.EOVERFLOW, errno.EISDIR, errno.ENOTDIR})


class Unreadable(Exception):
    """A partition's folder cannot be opened, and the others beside it can; the text names it and says why."""


Loaded = PartitionLog | DiskError | Unreadable | None


def load_logs(
    resources: LogResources, executor: Executor, folders: Sequence[Sequence[LogPlace]], threads: int, now_ms: int
) -> list[list[Loaded]]:
    """Open the logs of each folder, with `threads` threads a folder, and wait for them.

    In the order of `folders`: each log, or why it could not be opened. A DiskError is the whole folder's, and those
    behind it are None; what the contents of one partition's files lead to is its own (Unreadable).
    """
    outcomes: list[list[Loaded]] = [[None] * len(places) for places in folders]
    works = []
    for places, loaded in zip(folders, outcomes, strict=True):
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
    """What one thread does: open what waits until nothing does, or something of the folder cannot be read."""
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
            # Whatever bytes lie in a folder: they must not keep the broker from serving the others.
            loaded[number] = _unreadable(places[number], error)


def _unreadable(place: LogPlace, error: Exception) -> Unreadable:
    return Unreadable(
        f"{place.folder} cannot be opened ({type(error).__name__}: {error}), so that "
        f"{place.topic}-{place.partition} is offline. "
        f"'ottla log verify' on it, with the broker stopped, tells what is damaged and what a repair would cost"
    )
