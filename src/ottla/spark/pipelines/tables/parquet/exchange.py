"""Two folders change places in one step: Linux' `renameat2` with `RENAME_EXCHANGE`, which Python does not have."""

from __future__ import annotations

import ctypes
import errno
import os
from functools import lru_cache
from typing import Any, Final

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_UNSUPPORTED: Final = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


def exchange(one: str, other: str) -> bool:
    """Let two paths of one local file system change places; False where that cannot be done. Raises OSError."""
    function = _renameat2()
    if function is None:
        return False
    if function(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), one, None, other)


@lru_cache(maxsize=1)
def _renameat2() -> Any:
    """The C library's function; None on other systems than Linux, and in libraries older than it."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
        function = library.renameat2
    except (AttributeError, OSError, TypeError):
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    function.restype = ctypes.c_int
    return function
