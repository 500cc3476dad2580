"""The process that runs this code."""

from __future__ import annotations

import os
from collections.abc import Callable
from os import getpid as process_id

__all__ = ["call_after_fork", "process_id"]


def call_after_fork(work: Callable[[], object]) -> None:
    """Call `work` in each child of this process right after its fork; nothing where the system has no fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=work)
