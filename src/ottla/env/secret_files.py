"""Files with secrets: read whole up to a limit, or made for a library that takes a path only."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path


def read_whole(path: str, most_bytes: int) -> bytes:
    """The bytes of a file. Raises OSError, with EFBIG where it has more than `most_bytes`."""
    with open(path, "rb") as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    return data


def version_of(path: str) -> tuple[int, int, int] | None:
    """A value that changes with the content of a file; None while there is none."""
    with suppress(OSError):
        found = os.stat(path)
        return found.st_ino, found.st_size, found.st_mtime_ns
    return None


@contextmanager
def path_of_secret(data: bytes) -> Iterator[str]:
    """A path from which this process reads `data` until the block ends.

    On Linux the bytes stay in memory. Elsewhere they are in a file of mode 600 in a directory of its own, which is
    removed when the block ends.
    """
    descriptor = _memory_file()
    if descriptor is None:
        with tempfile.TemporaryDirectory(prefix="ottla-") as folder:  # its mode is 700
            path = os.path.join(folder, "secret")
            with open(path, "xb", opener=partial(os.open, mode=0o600)) as file:
                file.write(data)
            yield path
        return
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        yield f"/proc/self/fd/{descriptor}"


def _memory_file() -> int | None:
    """A file without a name, None where the system has none or does not show it by a path."""
    create = getattr(os, "memfd_create", None)
    if create is None:
        return None
    with suppress(OSError):
        descriptor: int = create("ottla")
        if Path(f"/proc/self/fd/{descriptor}").exists():
            return descriptor
        os.close(descriptor)
    return None
