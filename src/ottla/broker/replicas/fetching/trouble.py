"""The log of failures when records are fetched from a leader: few lines, not repeated.

After the death of a controller a leader refuses thousands of partitions for a moment: a response gives one line for
each kind of refusal, which names a few partitions and counts the others.
"""

from __future__ import annotations

import logging
from typing import Final

from ottla.broker.replicas.fetching.machine import PartitionKey
from ottla.broker.replicas.reports import is_report_due
from ottla.env.clock import Clock
from ottla.wire.errors import ErrorCode

log = logging.getLogger("ottla.broker")

#: Most partitions that a line names.
MOST_NAMED: Final = 3


class FetchTrouble:
    """The troubles of one fetcher; what is remembered of a partition goes with `forget`."""

    def __init__(self, leader_id: int, clock: Clock) -> None:
        self._leader_id = leader_id
        self._clock = clock
        #: When trouble of a partition was logged last; None: of the connection.
        self._logged_ms: dict[PartitionKey | None, float] = {}
        #: What the leader refused in the response in work.
        self._refused: dict[ErrorCode, list[PartitionKey]] = {}

    def cannot_fetch(self, error: object) -> None:
        """The leader cannot be reached, or its answer not be read."""
        if self._is_due(None):
            log.warning("cannot fetch from broker %d: %s", self._leader_id, error)

    def cannot_follow(self, key: PartitionKey, error: object) -> None:
        """The replica of this broker cannot take what the leader sent."""
        if self._is_due(key):
            log.warning("%s-%d cannot follow broker %d: %s", *key, self._leader_id, error)

    def refused(self, key: PartitionKey, error: ErrorCode) -> None:
        """The leader answered with an error; logged by `log_refused`."""
        if self._is_due(key):
            self._refused.setdefault(error, []).append(key)

    def log_refused(self) -> None:
        """Log what the response that was taken refused, in one line for each error."""
        refused, self._refused = self._refused, {}
        for error, keys in refused.items():
            named = ", ".join(f"{topic}-{index}" for topic, index in keys[:MOST_NAMED])
            more = f" and {len(keys) - MOST_NAMED} more" if len(keys) > MOST_NAMED else ""
            log.warning("%s%s of broker %d: %s", named, more, self._leader_id, error.name)

    def forget(self, key: PartitionKey) -> None:
        """The partition is fetched no more."""
        self._logged_ms.pop(key, None)

    def _is_due(self, key: PartitionKey | None) -> bool:
        now_ms = self._clock.monotonic_ms()
        is_due = is_report_due(self._logged_ms.get(key), now_ms)
        if is_due:
            self._logged_ms[key] = now_ms
        return is_due
