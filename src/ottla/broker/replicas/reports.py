"""When the same trouble of a partition is worth another line of the log. Pure."""

from __future__ import annotations

from typing import Final

#: The same trouble is logged again after this time.
REPORT_AGAIN_MS: Final = 60_000


def is_report_due(reported_ms: float | None, now_ms: float) -> bool:
    """Whether trouble that was logged at `reported_ms`, or never (None), is logged at `now_ms`, of the same clock."""
    return reported_ms is None or now_ms - reported_ms >= REPORT_AGAIN_MS
