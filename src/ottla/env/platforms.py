"""Features that systems other than Linux lack: the one place that asks for them.

On Windows the clients work, and a broker that keeps its data in memory: there are no `fcntl` locks, no limits of
`resource`, no reads and writes at a position, no `sendmsg` and no `sendfile`. MacOS has all of these but `MSG_MORE` and
`RWF_NOWAIT`. `tests/interop/testing/test_simulated_windows.py` takes them away.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any, Final


def _module(name: str) -> Any:
    """The module, or None where the system has none."""
    try:
        return import_module(name)
    except ImportError:
        return None


_fcntl: Final = _module("fcntl")
_resource: Final = _module("resource")

#: MSG_MORE: more of the same response follows, so that a header and the file range behind it share packets.
MORE_FOLLOWS: Final[int] = getattr(socket, "MSG_MORE", 0)
#: Flag of `preadv`: fail instead of waiting for the disk; 0 where there is none.
NOT_WAITING: Final[int] = getattr(os, "RWF_NOWAIT", 0)
#: Files that Windows lets a process have open.
OPEN_FILES_WITHOUT_LIMITS: Final = 8192
#: Bytes of a file that are sent in one call where there is no `sendfile`.
READ_AND_SENT_BYTES: Final = 64 * 1024


def has_disk() -> bool:
    """Whether a broker can keep its data in a directory of this system."""
    return _fcntl is not None and hasattr(os, "pread") and hasattr(os, "pwritev")


def open_files_limit() -> int:
    """How many files this process may have open at one time."""
    return OPEN_FILES_WITHOUT_LIMITS if _resource is None else int(_resource.getrlimit(_resource.RLIMIT_NOFILE)[0])


def raise_open_files_limit() -> None:
    """Allow the process as many open files as its user may have; shells allow far fewer at first.

    Where the system refuses (macOS has a bound of its own) the limit stays as it is.
    """
    if _resource is None:
        return
    soft, hard = _resource.getrlimit(_resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            _resource.setrlimit(_resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            return


def lock_file(descriptor: int) -> None:
    """Lock a file for this process by `fcntl.lockf`: a lock taken by `flock` would not be seen by Java.

    Raises OSError: BlockingIOError or PermissionError where another process has the lock.
    """
    if _fcntl is None:
        raise OSError(errno.ENOSYS, "this system has no locks that Java would see")
    _fcntl.lockf(descriptor, _fcntl.LOCK_EX | _fcntl.LOCK_NB)


def sendmsg_of(sock: socket.socket) -> Callable[[Sequence[Any], Sequence[Any], int], int]:
    """`sock.sendmsg`, or what does the same by joining the parts."""
    found: Callable[[Sequence[Any], Sequence[Any], int], int] | None = getattr(sock, "sendmsg", None)
    if found is not None:
        return found
    return lambda parts, _ancillary, flags: sock.send(b"".join(parts), flags)


def sendfile_to(sock: socket.socket) -> Callable[[int, int, int], int]:
    """Send from a file: (descriptor, position, length) to bytes sent, 0 at the file's end."""
    if hasattr(os, "sendfile"):
        # The first four arguments are the same on all systems that have it.
        return partial(os.sendfile, sock.fileno())

    def send_read(descriptor: int, position: int, length: int) -> int:
        return sock.send(os.pread(descriptor, min(length, READ_AND_SENT_BYTES), position))

    return send_read


def take_address(sock: socket.socket) -> None:
    """Let a listening socket have an address that was in use a moment ago, and no other socket at the same time.

    `SO_REUSEADDR` means that everywhere but on Windows, where it lets two processes listen on one port.
    """
    exclusive = getattr(socket, "SO_EXCLUSIVEADDRUSE", None)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR if exclusive is None else exclusive, 1)
