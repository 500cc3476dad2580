"""Topics that a consumer should read and that do not exist: logged once each, and reported by `health`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from ottla.client.errors import ClientError, UnknownTopicError
from ottla.peer.cluster import Cluster
from ottla.wire.errors import ErrorCode

log = logging.getLogger(__name__)

UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
MAX_NAMED = 5
"""Limit of overdue topics that are logged by name, with a similar name, at one time."""


class UnknownTopics:
    """Call `note` after each metadata response for the topics to read, from one event loop."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._since_ms: dict[str, float] = {}
        #: The logged topics, each with the most similar existing one.
        self._logged: dict[str, str | None] = {}
        self._logging: asyncio.Task[None] | None = None

    @property
    def errors(self) -> dict[str, UnknownTopicError]:
        """Return an error for each such topic, by name."""
        name = self._cluster.name
        return {each: UnknownTopicError(each, name, self._logged.get(each)) for each in self._since_ms}

    def note(self, topics: Iterable[str]) -> None:
        """Find those that do not exist by the metadata; log them once they are missing for long.

        Before `unknown_topic_timeout_ms` the topic may be about to be created, or the broker may have just started.
        """
        now_ms, known = self._cluster.clock.monotonic_ms(), self._cluster.metadata.errors
        self._since_ms = {each: self._since_ms.get(each, now_ms) for each in topics if known.get(each) in UNKNOWN}
        self._logged = {each: nearest for each, nearest in self._logged.items() if each in self._since_ms}
        missing_before_ms = now_ms - self._cluster.settings.unknown_topic_timeout_ms
        overdue = [
            each
            for each, since_ms in self._since_ms.items()
            if each not in self._logged and since_ms <= missing_before_ms
        ]
        if overdue and self._logging is None:
            self._logging = asyncio.get_running_loop().create_task(self._log(overdue))

    async def close(self) -> None:
        """Stop the search for similar names."""
        if self._logging is not None:
            self._logging.cancel()
            await asyncio.gather(self._logging, return_exceptions=True)

    async def _log(self, topics: list[str]) -> None:
        try:
            nearest = await self._cluster.nearest_topics(topics[:MAX_NAMED])
        except ClientError:
            nearest = {}
        finally:
            self._logging = None
        self._logged.update({each: nearest.get(each) for each in topics})
        for each in topics[:MAX_NAMED]:
            error = UnknownTopicError(each, self._cluster.name, nearest.get(each))
            log.warning("%s; it is read as soon as it exists", error)
        if len(topics) > MAX_NAMED:
            log.warning("%d more subscribed topics do not exist", len(topics) - MAX_NAMED)
