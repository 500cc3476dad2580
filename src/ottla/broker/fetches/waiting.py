"""One fetch from its beginning to its response: it reads, waits where there is too little, and reads again."""

from __future__ import annotations

import logging

from ottla.broker.cold_reads import when_warm
from ottla.broker.context import RequestContext
from ottla.broker.fetch_sessions import TopicKey
from ottla.broker.fetches.answering import FetchAnswer
from ottla.broker.fetches.reading import FetchedSoFar, FetchReader
from ottla.broker.fetches.requested import PARTITIONS_AT_ONCE, READ_COMMITTED, BegunFetch
from ottla.broker.fetches.results import release
from ottla.broker.replicas.purgatory import DelayedFetch
from ottla.wire.messages.fetch import FetchRequest

log = logging.getLogger("ottla.broker")


class Fetch:
    """One fetch in work: what it reads, and whether it waits."""

    __slots__ = ("_answer", "_answers_at_once", "_context", "_reader", "_request")

    def __init__(
        self, context: RequestContext, request: FetchRequest, begun: BegunFetch, beyond: dict[TopicKey, set[int]]
    ) -> None:
        self._context = context
        self._request = request
        self._reader = reader = FetchReader(context, request, begun)
        self._answer = FetchAnswer(context, begun, beyond)
        #: Whether it waits for nothing: it has errors, or there is nothing to wait for.
        self._answers_at_once = bool(beyond) or (not begun.wanted and reader.followed_session is None)
        if reader.is_follower:
            context.connection.gathers_ranges = True

    def begin(self) -> None:
        """Reply now with enough data, an error or the end of a segment; otherwise wait for the partitions to grow."""
        reader = self._reader
        if len(reader.wanted) <= PARTITIONS_AT_ONCE:
            when_warm(self._context, lambda: self._answer_or_wait(reader.read_all()))
        else:
            reader.bind_each()
            self._context.run(self._read_and_answer_or_wait())

    async def _read_and_answer_or_wait(self) -> None:
        self._answer_or_wait(await self._reader.read_in_slices())

    def _answer_or_wait(self, reading: FetchedSoFar) -> None:
        request = self._request
        size = reading.total
        at_once = reading.at_once or self._answers_at_once
        if at_once or size >= request.min_bytes or request.max_wait_ms <= 0:
            self._give(reading)
            return
        release(reading.found)
        reader = self._reader
        reader.bind()
        throttle, max_wait_ms = reading.throttle, float(request.max_wait_ms)
        if throttle is not None and throttle.holds_back:
            max_wait_ms = min(max_wait_ms, throttle.wait_ms)
        DelayedFetch(
            self._context.client_state,
            self._queues(),
            request.min_bytes - size,
            max_wait_ms,
            self._answer_late,
            reader.has_visible if request.isolation_level == READ_COMMITTED and not reader.is_follower else None,
            gathers=reader.is_follower,
        )

    def _queues(self) -> list[dict[DelayedFetch, None]]:
        """The queues in which this fetch waits: its session's, which gets all changes, or each partition's."""
        reader = self._reader
        followed = reader.followed_session
        if followed is not None:
            return [followed.waiting]
        # Appends to a partition that a quota holds back do not count.
        free = [wanted for wanted in reader.wanted if not wanted.is_held_back]
        partitions = [partition for wanted in free if (partition := reader.find(wanted)) is not None]
        return [each.waiting_followers if reader.is_follower else each.waiting for each in partitions]

    def _answer_late(self) -> None:
        """Reply after the wait. Called by a timer or an append, so exceptions must not leave this method."""
        reader = self._reader
        reader.begin_late()
        try:
            if len(reader.wanted) <= PARTITIONS_AT_ONCE:
                when_warm(self._context, lambda: self._give(reader.read_all()))
            else:
                self._context.run(self._read_and_answer())
        except Exception:
            log.exception("a fetch of %s failed", self._context.client_host)
            self._context.disconnect()

    async def _read_and_answer(self) -> None:
        self._give(await self._reader.read_in_slices())

    def _give(self, reading: FetchedSoFar) -> None:
        charge = self._context.charge
        if charge is not None and charge.fetched(self._context, reading.total):
            release(reading.found)
            self._answer.give_none()
            return
        if reading.throttle is not None:
            reading.throttle.sent()
        if self._reader.is_follower:
            self._context.broker.partitions.replication_bytes_out += reading.total
        else:
            for traffic, size in reading.sizes:
                traffic.bytes_out += size
        self._answer.give(reading.found)
