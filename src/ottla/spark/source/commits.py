"""Offsets in the query's consumer group, so that its lag is visible to every Kafka tool.

Spark resumes from its checkpoint and never from the group. A group's committed offset is never ahead of what the query
has finished.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.client.model import TopicPartition
from ottla.spark.source.offsets import Offsets

if TYPE_CHECKING:
    from ottla.client.sync import Client

log = logging.getLogger(__name__)

COMMIT_WAIT_S = 2.0
"""Longest wait for the answer to a commit, in seconds."""


class FailureLog:
    """Logs the first of several failures to commit in a row, and the first success after them."""

    def __init__(self) -> None:
        self._is_failing = False

    def failed(self, group: str, reason: object) -> None:
        """Note a commit that failed."""
        if not self._is_failing:
            self._is_failing = True
            log.warning(
                "offsets are not committed to group %s; the query continues, and each batch tries it again: %s",
                group,
                reason,
            )

    def succeeded(self, group: str) -> None:
        """Note a commit that did not."""
        if self._is_failing:
            self._is_failing = False
            log.warning("offsets are committed to group %s again", group)


class GroupCommits:
    """The commits of a stream to its group; without a group nothing is committed.

    A failure does not stop the query; the commit after the next batch makes up for it. A commit that is not answered in
    time stays under way in a thread of its own, and no other is sent before it has ended: so a silent coordinator
    delays one batch in `default.api.timeout.ms`, and an older offset cannot replace a newer one.
    """

    def __init__(self, group: str | None, wait_s: float = COMMIT_WAIT_S) -> None:
        self._group = group
        self._wait_s = wait_s
        self._committed: Offsets = {}
        self._failures = FailureLog()
        self._under_way: threading.Thread | None = None

    def commit(self, client: Client, done: Offsets) -> None:
        """Commit what changed; returns after `wait_s` seconds, answered or not."""
        changed = {each: offset for each, offset in done.items() if self._committed.get(each) != offset}
        if self._group is None or not changed or (self._under_way is not None and self._under_way.is_alive()):
            return
        sending = (client, self._group, changed)
        self._under_way = threading.Thread(target=self._send, args=sending, name="ottla-spark-commit", daemon=True)
        self._under_way.start()
        self._under_way.join(self._wait_s)
        if self._under_way.is_alive():
            self._failures.failed(self._group, f"the coordinator has not answered within {self._wait_s:g} s")

    def _send(self, client: Client, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        from ottla.client.errors import ClientError

        try:
            client.commit(group, offsets)
        except ClientError as problem:
            self._failures.failed(group, problem)
        else:
            self._committed |= offsets
            self._failures.succeeded(group)
