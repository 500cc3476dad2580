"""Memory that a Python worker of Spark's holds and never uses again.

Workers import PySpark from `pyspark.zip`, which has no bytecode. So each compiles what it imports, and what compiling
took stays in the heap. Before Python 3.12 each package of the archive also gets a list of its own of all 1,300 files
when Spark invalidates the caches of imports. See docs/decisions/0098-what-spark-s-processes-cost.md.
"""

from __future__ import annotations

import sys
from zipimport import zipimporter


def give_back() -> None:
    """Free both. It takes 10 ms, and is worth it once, in a process that lasts."""
    _share_lists_of_archives()
    _trim_heap()


def _share_lists_of_archives() -> None:
    """One list of files for all packages of an archive, as there is until the caches are invalidated."""
    if sys.version_info >= (3, 12):  # Lists are read when they are needed.
        return
    lists: dict[str, object] = {}
    for finder in sys.path_importer_cache.values():
        if isinstance(finder, zipimporter) and hasattr(finder, "_files"):
            finder._files = lists.setdefault(finder.archive, finder._files)


def _trim_heap() -> None:
    """Let the C library return its free pages, where it is glibc."""
    try:
        import ctypes
    except ImportError:  # A Python that was built without libffi.
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
