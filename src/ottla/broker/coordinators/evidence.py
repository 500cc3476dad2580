"""Writes the evidence of rebalances to its internal topic; best effort, without delaying the group."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

from ottla.broker.coordinators.coordinator_log import CoordinatorLog
from ottla.broker.coordinators.shard import BrokerRequests, Topics
from ottla.env.futures import settle
from ottla.groups.evidence import EVIDENCE_TOPIC, Evidence
from ottla.net.reports import LimitedReports, call_later
from ottla.peer.errors import KNOWN_CODES
from ottla.records.record import Record, encode_batch
from ottla.wire.apis import ApiKey
from ottla.wire.broker_requests import BrokerOutcome, BrokerRequest
from ottla.wire.errors import ErrorCode

log = logging.getLogger("ottla.groups")

QUEUE_LIMIT = 1000
"""Records queued until the topic exists, or its leader has taken them; beyond this the oldest are dropped."""
SENT_AT_ONCE = 50
"""Most records of one request to the leader."""
TIMEOUT_MS: Final = 10_000
"""Time for the leader to answer."""
RETRY_S = 1.0
"""Pause before records are given again to a leader that did not take them."""
PARTITION = 0
"""All evidence goes to one partition, so that it is in order."""

TRIED_AGAIN = frozenset(
    (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
)
"""Errors while the topic has no leader, or this broker has not heard of a new one yet."""


class EvidenceWriter:
    """Appends evidence, or sends it to the leader; the topic is created with the first record.

    Without `requests`, which it closes, this broker is the only one. Their client id is the one that Kafka's brokers
    let write to internal topics.
    """

    def __init__(
        self, coordinator_log: CoordinatorLog, topics: Topics, enabled: bool, requests: BrokerRequests | None = None
    ) -> None:
        self._log = coordinator_log
        self._topics = topics
        self._enabled = enabled
        self._requests = requests
        self._queue: deque[Evidence] = deque()
        self._working: asyncio.Task[None] | None = None
        #: For metrics: records written, and records lost.
        self.written = 0
        self.dropped = 0
        self._report = partial(LimitedReports(log.warning, call_later), EVIDENCE_TOPIC)

    def add(self, notes: Iterable[Evidence]) -> None:
        """Queue evidence; records that cannot be written are counted and dropped."""
        for evidence in notes:
            log.info("%s", evidence.summary)
            if not self._enabled:
                continue
            if len(self._queue) == QUEUE_LIMIT:
                self._queue.popleft()
                self.dropped += 1
            self._queue.append(evidence)
        if self._queue and self._working is None and not self._append_here():
            self._working = asyncio.get_running_loop().create_task(self._work())

    def stop(self) -> None:
        """Drop the records that are queued."""
        if self._working is not None:
            self._working.cancel()
        if self._requests is not None:
            self._requests.close()

    def _append_here(self) -> bool:
        """Append what is queued as the topic's leader; False if this broker is not, or the topic is missing."""
        if EVIDENCE_TOPIC not in self._topics.image.topics:
            return not self._queue
        while self._queue:
            appended = self._log.append(
                EVIDENCE_TOPIC, PARTITION, bytearray(_batch([self._queue[0]])), None, needs_replicas=False
            )
            if appended is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                return False
            self._done([self._queue.popleft()], appended if isinstance(appended, ErrorCode) else ErrorCode.NONE)
        return True

    def _done(self, records: Sequence[Evidence], error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            self.written += len(records)
            return
        self.dropped += len(records)
        for evidence in records:
            self._report(f"evidence of a rebalance of group {evidence.group_id} is lost: {error.message}")

    async def _work(self) -> None:
        """Create the topic, and give it what is queued, until nothing is left."""
        try:
            while not self._append_here():
                is_there = EVIDENCE_TOPIC in self._topics.image.topics or await self._make_topic()
                # A topic that was made just now may be led here.
                if self._queue and not (is_there and (self._append_here() or await self._send())):
                    await asyncio.sleep(RETRY_S)
        finally:
            self._working = None

    async def _make_topic(self) -> bool:
        """Create the topic; False if it has no leader yet."""
        refusal = await self._topics.ensure_topic(EVIDENCE_TOPIC)
        if refusal is None:
            return True
        if refusal.error not in TRIED_AGAIN:
            self._report(f"the topic {EVIDENCE_TOPIC} cannot be made: {refusal.message}")
            self.dropped += len(self._queue)
            self._queue.clear()
        return False

    async def _send(self) -> bool:
        """Give records to the leader; False to try again."""
        if self._requests is None:
            return False
        records = [self._queue.popleft() for _ in range(min(SENT_AT_ONCE, len(self._queue)))]
        error = await _produce(self._requests, _batch(records))
        if error not in TRIED_AGAIN:
            self._done(records, error)
            return True
        room = QUEUE_LIMIT - len(self._queue)
        self.dropped += max(0, len(records) - room)
        self._queue.extendleft(reversed(records[-room:] if room else ()))
        return False


async def _produce(requests: BrokerRequests, batch: bytes) -> ErrorCode:
    """Send one batch, and return the leader's error; LEADER_NOT_AVAILABLE if none is known, or it is away."""
    from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

    data = TopicProduceData(name=EVIDENCE_TOPIC, partition_data=[PartitionProduceData(index=PARTITION, records=batch)])
    produced = ProduceRequest(acks=1, timeout_ms=TIMEOUT_MS, topic_data=[data])
    answered: asyncio.Future[BrokerOutcome] = asyncio.get_running_loop().create_future()
    request = BrokerRequest(ApiKey.PRODUCE, (EVIDENCE_TOPIC, PARTITION), produced, None)
    requests.send(request, partial(settle, answered))
    response: Any = (await answered).response
    if response is None:
        return ErrorCode.LEADER_NOT_AVAILABLE
    code = response.responses[0].partition_responses[0].error_code
    return KNOWN_CODES.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)


def _batch(records: Sequence[Evidence]) -> bytes:
    return encode_batch([Record(0, each.closed_at_ms, each.group_id.encode(), each.encode()) for each in records])
