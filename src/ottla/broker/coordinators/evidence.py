"""Writes the evidence of rebalances to its internal topic; best effort, without delaying the group."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from ottla.groups.evidence import EVIDENCE_TOPIC, Evidence
from ottla.records.record import Record, encode_batch
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.coordinators.coordinator_log import CoordinatorLog
    from ottla.cluster.image import ClusterImage
    from ottla.cluster.refusal import TopicRefusal

log = logging.getLogger("ottla.groups")

QUEUE_LIMIT = 1000
"""Records queued until the topic exists; beyond this the oldest are dropped."""
PARTITION = 0
"""All evidence goes to one partition, so that it is in order."""


class Topics(Protocol):
    """The part of `ottla.broker.control.plane.ControlPlane` that is needed here."""

    @property
    def image(self) -> ClusterImage:
        """The present image of the cluster."""
        ...

    async def ensure_topic(self, name: str) -> TopicRefusal | None:
        """Create an internal topic unless it exists."""
        ...


class EvidenceWriter:
    """Appends evidence; the topic is created with the first record.

    Where another broker leads the topic, the records are dropped; decision 78 says how they will be sent to it.
    """

    def __init__(self, coordinator_log: CoordinatorLog, topics: Topics, enabled: bool) -> None:
        self._log = coordinator_log
        self._topics = topics
        self._enabled = enabled
        self._queue: deque[Evidence] = deque(maxlen=QUEUE_LIMIT)
        self._making: asyncio.Task[None] | None = None
        #: For metrics: records written, and records lost.
        self.written = 0
        self.dropped = 0

    def add(self, notes: Iterable[Evidence]) -> None:
        """Queue evidence; records that cannot be written are counted and dropped."""
        for evidence in notes:
            log.info("%s", evidence.summary)
            if not self._enabled:
                continue
            if len(self._queue) == QUEUE_LIMIT:
                self.dropped += 1
            self._queue.append(evidence)
        if self._queue:
            self._write()

    def stop(self) -> None:
        """Drop the records queued for the topic."""
        if self._making is not None:
            self._making.cancel()

    def _write(self) -> None:
        if EVIDENCE_TOPIC not in self._topics.image.topics:
            if self._making is None:
                self._making = asyncio.get_running_loop().create_task(self._make_topic())
            return
        while self._queue:
            evidence = self._queue.popleft()
            record = Record(0, evidence.closed_at_ms, evidence.group_id.encode(), evidence.encode())
            appended = self._log.append(
                EVIDENCE_TOPIC, PARTITION, bytearray(encode_batch([record])), None, needs_replicas=False
            )
            if isinstance(appended, ErrorCode):
                self.dropped += 1
                log.warning("evidence of a rebalance of group %s is lost: %s", evidence.group_id, appended.message)
            else:
                self.written += 1

    async def _make_topic(self) -> None:
        refusal = await self._topics.ensure_topic(EVIDENCE_TOPIC)
        self._making = None
        if refusal is not None:
            log.warning("the topic %s cannot be made: %s", EVIDENCE_TOPIC, refusal.message)
            self.dropped += len(self._queue)
            self._queue.clear()
        elif self._queue:
            self._write()
