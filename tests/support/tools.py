"""Waiting for other programs that `./run test` gets while the first tests run already."""

from __future__ import annotations

import os
import time
from pathlib import Path

#: Names the file that `run` writes when the set-up has ended. Not set where nothing is being set up.
VARIABLE = "OTTLA_TOOLS"
#: After this long tests run without them, and say what is missing.
TIMEOUT_S = 1800.0
_POLL_INTERVAL_S = 0.2


def tools_are_there() -> bool:
    """Whether the set-up has ended, or there is none."""
    path = os.environ.get(VARIABLE)
    return path is None or Path(path).exists()


def wait_for_tools() -> None:
    """Wait for the end of the set-up."""
    deadline = time.monotonic() + TIMEOUT_S
    while not tools_are_there() and time.monotonic() < deadline:
        time.sleep(_POLL_INTERVAL_S)
