"""Waiting for other programs that `./run test` gets while the first tests run already."""

from __future__ import annotations

import os
import time
from functools import cache
from pathlib import Path

#: Names the file in which `run` writes the exit status of the set-up. Not set where nothing is being set up.
VARIABLE = "OTTLA_TOOLS"
#: After this long a process runs its tests without them; they say what is missing.
TIMEOUT_S = 1800.0
_POLL_INTERVAL_S = 0.2


def tools_are_there() -> bool:
    """Whether the set-up has ended, or there is none."""
    path = os.environ.get(VARIABLE)
    return path is None or Path(path).exists()


def why_no_tools() -> str:
    """Why other programs could not be set up; empty where they could, and while that is under way."""
    path = os.environ.get(VARIABLE)
    failed = path is not None and tools_are_there() and Path(path).read_text().strip() != "0"
    return "other programs could not be set up: .cache/tools.log says why" if failed else ""


def wait_for_tools() -> None:
    """Wait for the end of the set-up; all tests of a process together wait at most TIMEOUT_S."""
    while not tools_are_there() and time.monotonic() < _deadline_s():
        time.sleep(_POLL_INTERVAL_S)


@cache
def _deadline_s() -> float:
    return time.monotonic() + TIMEOUT_S
