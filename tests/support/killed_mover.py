"""`ottla` as a program that kills itself at a named point of a move between log directories (`ReplicaMover.on_point`).

    OTTLA_KILL_AT=FILE python killed_mover.py serve …

kills it when it gets to the point for the first time that the file names, as soon as there is one: `renamed:1`.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from ottla.broker.replicas.moving import ReplicaMover
from ottla.cli.entry import main

KILL_AT = "OTTLA_KILL_AT"
#: So little is copied at once that a move of some kilobytes takes many steps.
SLICE_BYTES = 1024


class KilledMover(ReplicaMover):
    """Kills the process at the point that the file names; counts how often it was there."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._path = Path(os.environ[KILL_AT])
        self._seen = 0
        self.on_point = self._reached

    def _reached(self, name: str) -> None:
        point, _, count = self._path.read_text().partition(":") if self._path.exists() else ("", "", "")
        if name == point:
            self._seen += 1
            if self._seen >= int(count):
                os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    import ottla.broker.replicas.moving as moving

    moving.SLICE_BYTES = SLICE_BYTES  # type: ignore[misc]
    moving.ReplicaMover = KilledMover  # type: ignore[misc, assignment]
    sys.exit(main())  # type: ignore[func-returns-value]
