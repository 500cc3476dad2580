"""Resource limits of this process."""

from __future__ import annotations

import resource


def raise_open_files_limit() -> None:
    """Allow the process as many open files as its user may have; shells allow far fewer at first.

    Where the system refuses (macOS has a bound of its own) the limit stays as it is.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            return
