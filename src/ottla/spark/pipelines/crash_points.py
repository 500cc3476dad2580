"""Named points of a pipeline at which a crash must do no harm.

They do nothing, but for tests, which kill or stop there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

FILES_WRITTEN: Final = "files written, nothing committed"
TABLE_COMMITTED: Final = "table committed, Spark's log not"
BATCH_LOGGED: Final = "Spark's log written, group offsets not"
MIRROR_PRODUCED: Final = "between produce and checkpoint of the mirror"
COMPACTING: Final = "in compaction"
RECOVERING: Final = "in the start after a kill"

ALL: Final = (FILES_WRITTEN, TABLE_COMMITTED, BATCH_LOGGED, MIRROR_PRODUCED, COMPACTING, RECOVERING)

#: Called with each point that is reached; tests put their own function here, in the process that reaches it.
on_reached: Callable[[str], None] | None = None


def reach(point: str) -> None:
    """Say that this point is reached now."""
    if on_reached is not None:
        on_reached(point)
