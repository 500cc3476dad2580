"""The requests of one fetcher to its leader, and the actions on the answers. Pure.

As in Kafka (`AbstractFetcherThread`, `ReplicaFetcherThread`, `RemoteLeaderEndPoint`). A fetcher copies some of the
partitions that one other broker leads, with one request under way. Each round: after `prepare`, `plan` returns the next
request, `answered` the action on one partition's response, and `moved`, `refused` or `gave_up` report the outcome. Each
event names the leader epoch in which its request was made: events of another role of the replica are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

from ottla.peer.fetch_session import SessionEpoch
from ottla.wire.errors import ErrorCode

#: Topic and partition.
PartitionKey = tuple[str, int]

NO_EPOCH: Final = -1
NO_TOPIC_ID: Final = UUID(int=0)
#: New or changed partitions in one request, where the leader grants a session: ten thousands would hold up both loops,
#: and requests of several fetchers may come in one slice.
MOST_NAMED: Final = 500
#: Partitions that are looked at in one slice of `prepare`.
PARTITIONS_PER_SLICE: Final = 1_000
#: Special timestamps of ListOffsets: the leader's log end, and its log start.
LATEST: Final = -1
EARLIEST: Final = -2

#: The answers of a leader that has not heard of its election, or of the topic: the controller tells brokers one by one.
NOT_HEARD_OF_YET: Final = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)
#: The delay after the first such answer in a leader epoch; each further one doubles it, up to the usual delay.
FIRST_BACKOFF_MS: Final = 10.0

#: Ask the leader again; the session's state is unknown or gone.
_SESSION_ERRORS: Final = frozenset(
    (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH, ErrorCode.NONE)
)


class LogEnds(NamedTuple):
    """A follower's log: its end, its newest leader epoch (-1: none), its start."""

    end_offset: int
    last_epoch: int
    start_offset: int


class ReplicaPosition(NamedTuple):
    """A partition's read position: the ends of its log, and the leader epoch."""

    leader_epoch: int
    log: LogEnds


class PartitionAnswer(NamedTuple):
    """A partition's part of an answer, without the records."""

    error: ErrorCode
    high_watermark: int = -1
    #: The largest epoch not above the one that was asked with, and its end; epoch -1: the logs agree.
    diverging_epoch: int = NO_EPOCH
    diverging_end: int = -1


class TakeRecords(NamedTuple):
    """Append the records, learn the leader's high watermark and log start."""


class TruncateTo(NamedTuple):
    """Truncate the log to this offset."""

    offset: int


class TruncateByEpoch(NamedTuple):
    """Truncate the log to the offset that `truncation_offset` gives: the leader's `epoch` ends at `end_offset`."""

    epoch: int
    end_offset: int


class AskOffset(NamedTuple):
    """Ask the leader for its log end (LATEST) or its log start (EARLIEST)."""

    timestamp: int


class StartAt(NamedTuple):
    """Remove all records and begin the log at this offset."""

    offset: int


Action = TakeRecords | TruncateTo | TruncateByEpoch | AskOffset | StartAt


class FetchRound(NamedTuple):
    """A request: what changes in the session."""

    session_id: int
    session_epoch: int
    #: Partitions that are new, or whose position has changed.
    changed: dict[PartitionKey, ReplicaPosition]
    #: With the ids of their topics.
    forgotten: list[tuple[PartitionKey, UUID]]
    #: Whether topics are named by their ids (Fetch 13 and newer); they are not while one has none.
    with_topic_ids: bool
    #: Whether the next request names further partitions: this one must not wait for records.
    is_partial: bool = False


@dataclass(slots=True, eq=False)
class FollowedPartition:
    """A partition, and how far it is fetched."""

    topic_id: UUID
    position: ReplicaPosition
    #: Records that the leader has committed and this replica lacks; None before the first answer.
    lag: int | None = None
    #: The position that the leader's session has; None if the session does not name it.
    requested: ReplicaPosition | None = None
    #: Not asked for before this time.
    delayed_until_ms: float | None = None
    #: The end of the log that was asked for, after the offset was out of range.
    leader_end: int | None = None
    #: For a log without epochs: where it is cut before anything is fetched, the high watermark.
    first_cut: int | None = None
    #: Whether a quota keeps it out of the requests.
    is_held: bool = False
    #: How often in turn the leader has not heard of it yet.
    unheard: int = 0
    #: Logs that were truncated since the leader last gave records.
    seen: set[LogEnds] = field(default_factory=set)

    @property
    def is_requested(self) -> bool:
        """Whether the next request asks the leader for it."""
        return self.delayed_until_ms is None and self.first_cut is None and not self.is_held

    @property
    def lags(self) -> bool:
        """Whether it lacks committed records, or may lack some."""
        return self.lag is None or self.lag > 0


def truncation_offset(requested: TruncateByEpoch, own_epoch: int, own_end: int, log_end: int) -> int:
    """The offset where a log that ends at `log_end` is cut (`AbstractFetcherThread.getOffsetTruncationState`).

    `own_epoch` is the largest epoch of the log not above the leader's, and `own_end` its end, -1 where there is none.
    If the follower does not know the leader's epoch, this is not the last truncation.
    """
    if own_epoch == NO_EPOCH:
        return min(requested.end_offset, log_end)
    if own_epoch != requested.epoch:
        return min(own_end, log_end)
    return min(own_end, requested.end_offset, log_end)


class FetcherMachine:
    """The partitions of one fetcher. Times are those of the monotonic clock."""

    def __init__(self, backoff_ms: float) -> None:
        self._backoff_ms = backoff_ms
        self._session = SessionEpoch()
        #: Whether the leader keeps a session; else each request names everything.
        self._is_granted = True
        self._followed: dict[PartitionKey, FollowedPartition] = {}
        #: To be named by the next request.
        self._changed: dict[PartitionKey, None] = {}
        self._forgotten: dict[tuple[PartitionKey, UUID], None] = {}
        self._to_cut: dict[PartitionKey, None] = {}
        #: The partitions that are delayed, by their deadlines, and a heap of these.
        self._delayed: dict[float, list[PartitionKey]] = {}
        self._deadlines: list[float] = []
        #: Partitions that a quota keeps out of the requests; None while it keeps out none.
        self._held: dict[PartitionKey, None] | None = None
        #: How many partitions are of topics without ids.
        self._without_ids = 0
        self._with_topic_ids = True
        #: Partitions that are not fetched until they get a new role, and why (Kafka's FailedPartitions).
        self.failed: dict[PartitionKey, ErrorCode] = {}

    def __len__(self) -> int:
        return len(self._followed)

    def __contains__(self, key: PartitionKey) -> bool:
        return key in self._followed

    def get(self, key: PartitionKey) -> FollowedPartition | None:
        """A partition's state; None if it is not fetched here."""
        return self._followed.get(key)

    @property
    def largest_lag(self) -> int:
        """The largest known lag, in records."""
        return max((followed.lag or 0 for followed in self._followed.values()), default=0)

    # -- roles

    def follow(self, key: PartitionKey, topic_id: UUID, leader_epoch: int, log: LogEnds, high_watermark: int) -> None:
        """Fetch this partition in `leader_epoch` from the log's end on; no effect if it is fetched in it already."""
        known = self._followed.get(key)
        if known is not None and known.position.leader_epoch == leader_epoch and known.topic_id == topic_id:
            return
        self.forget(key)
        self._followed[key] = followed = FollowedPartition(topic_id, ReplicaPosition(leader_epoch, log))
        self._without_ids += topic_id == NO_TOPIC_ID
        if log.last_epoch == NO_EPOCH and high_watermark < log.end_offset:
            followed.first_cut = high_watermark
            self._to_cut[key] = None
        else:
            self._changed[key] = None

    def forget(self, key: PartitionKey) -> None:
        """Fetch this partition no more; the replica has another role."""
        self.failed.pop(key, None)
        self._drop(key)

    def _drop(self, key: PartitionKey) -> None:
        followed = self._followed.pop(key, None)
        if followed is None:
            return
        self._without_ids -= followed.topic_id == NO_TOPIC_ID
        self._to_cut.pop(key, None)
        if self._held is not None:
            self._held.pop(key, None)
        self._leave_session(key, followed)

    def _leave_session(self, key: PartitionKey, followed: FollowedPartition) -> None:
        self._changed.pop(key, None)
        if followed.requested is not None:
            followed.requested = None
            self._forgotten[key, followed.topic_id] = None

    # -- requests

    def first_cuts(self) -> list[tuple[PartitionKey, int, TruncateTo]]:
        """The truncations that come before any request: key, leader epoch, action."""
        found = []
        for key in self._to_cut:
            followed = self._followed[key]
            if followed.first_cut is not None:
                found.append((key, followed.position.leader_epoch, TruncateTo(followed.first_cut)))
        return found

    def hold(self, is_throttled: Callable[[PartitionKey], bool] | None) -> None:
        """Leave out of the requests what lags and `is_throttled`: a quota is exceeded. None: it is not any more.

        As in Kafka a partition that has all records is asked for all the same.
        """
        held = self._held
        if is_throttled is None:
            self._held = None
            for key in held or ():
                followed = self._followed[key]
                followed.is_held = False
                if followed.is_requested:
                    self._changed[key] = None
            return
        if held is None:
            self._held = held = {}
            looked_at = tuple(self._followed)
        else:  # whatever else was asked for in a former round had been looked at then
            looked_at = tuple(self._changed)
        for key in looked_at:
            followed = self._followed[key]
            if followed.lags and not followed.is_held and is_throttled(key):
                followed.is_held = True
                held[key] = None
                self._leave_session(key, followed)

    @property
    def holds_any(self) -> bool:
        """Whether a quota keeps any partition out of the requests."""
        return bool(self._held)

    def prepare(self, now_ms: float) -> Iterator[None]:
        """End the delays that are over, and list everything for a new session, in slices between which roles change."""
        while self._deadlines and self._deadlines[0] <= now_ms:
            for count, key in enumerate(self._delayed.pop(heappop(self._deadlines)), 1):
                followed = self._followed.get(key)
                until_ms = followed.delayed_until_ms if followed is not None else None
                if followed is not None and until_ms is not None and until_ms <= now_ms:
                    followed.delayed_until_ms = None
                    if followed.is_requested:
                        self._changed[key] = None
                if not count % PARTITIONS_PER_SLICE:
                    yield
        if self._session.is_new:
            yield from self._list_all()

    def _list_all(self) -> Iterator[None]:
        self._changed.clear()
        for count, key in enumerate(list(self._followed), 1):
            followed = self._followed.get(key)
            if followed is not None and followed.is_requested:
                followed.requested = None
                self._changed[key] = None
            if not count % PARTITIONS_PER_SLICE:
                yield
        self._forgotten.clear()

    def plan(self) -> FetchRound | None:
        """The next request, after `prepare`; None if there is nothing to ask for now."""
        if self._with_topic_ids != (self._without_ids == 0):
            self._with_topic_ids = not self._with_topic_ids
            self._session.failed()
            for _ in self._list_all():  # once, when the last topic without an id is gone, or the first one has come
                pass
        named = tuple(islice(self._changed, MOST_NAMED if self._is_granted else None))
        if not named and not any(each.requested is not None for each in self._followed.values()):
            return None
        changed = {}
        for key in named:
            each = self._followed[key]
            each.requested = changed[key] = each.position
            self._forgotten.pop((key, each.topic_id), None)
            del self._changed[key]
        forgotten = list(self._forgotten)
        self._forgotten.clear()
        session = self._session
        return FetchRound(session.id, session.epoch, changed, forgotten, self._with_topic_ids, bool(self._changed))

    @property
    def next_deadline_ms(self) -> float | None:
        """When the first delay ends; None if there is none."""
        return self._deadlines[0] if self._deadlines else None

    def received(self, error: ErrorCode, session_id: int, now_ms: float) -> bool:
        """The answer to the request has come; False if it is void, and the next request must name everything."""
        if self._session.handled(int(error), session_id):
            self._is_granted = not self._session.is_new
            return True
        if error not in _SESSION_ERRORS:
            self.failed_round(now_ms)
        return False

    def failed_round(self, now_ms: float) -> None:
        """There was no answer: all partitions wait."""
        self._session.failed()
        until_ms = now_ms + self._backoff_ms
        waiting = self._waiting_until(until_ms)
        for key, followed in self._followed.items():
            followed.requested = None
            if followed.delayed_until_ms is None:
                followed.delayed_until_ms = until_ms
                waiting.append(key)
        self._changed.clear()
        self._forgotten.clear()

    # -- answers

    def answered(self, key: PartitionKey, answer: PartitionAnswer, now_ms: float) -> Action | None:
        """The action on the answer for a partition; None for nothing now.

        The answer to an outdated request is dropped.
        """
        followed = self._followed.get(key)
        if followed is None or followed.requested is not followed.position or followed.delayed_until_ms is not None:
            return None
        error = answer.error
        if error is ErrorCode.NONE:
            followed.unheard = 0
            if answer.diverging_epoch < 0:
                return TakeRecords()
            if followed.position.log in followed.seen:
                self._delay(key, followed, now_ms)  # the logs do not come together
                return None
            followed.seen.add(followed.position.log)
            return TruncateByEpoch(answer.diverging_epoch, answer.diverging_end)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            followed.leader_end = None
            return AskOffset(LATEST)
        self._refuse(key, followed, error, now_ms)
        return None

    def offset_found(
        self, key: PartitionKey, leader_epoch: int, timestamp: int, error: ErrorCode, offset: int, now_ms: float
    ) -> Action | None:
        """The leader's log end or log start, after an offset was out of range (`fetchOffsetAndTruncate`)."""
        followed = self._current(key, leader_epoch)
        if followed is None:
            return None
        if error is not ErrorCode.NONE:
            self._refuse(key, followed, error, now_ms)
            return None
        end = followed.position.log.end_offset
        if timestamp == LATEST:
            if offset < end:
                return TruncateTo(offset)
            followed.leader_end = offset
            return AskOffset(EARLIEST)
        if offset > end:
            return StartAt(offset)
        # The leader has the offset by now, or is about to have it.
        self._delay(key, followed, now_ms)
        return None

    def is_current(self, key: PartitionKey, leader_epoch: int) -> bool:
        """Whether the partition is still fetched in this leader epoch."""
        return self._current(key, leader_epoch) is not None

    def _current(self, key: PartitionKey, leader_epoch: int) -> FollowedPartition | None:
        followed = self._followed.get(key)
        return followed if followed is not None and followed.position.leader_epoch == leader_epoch else None

    # -- outcomes

    def moved(self, key: PartitionKey, leader_epoch: int, log: LogEnds, high_watermark: int | None = None) -> None:
        """An action was done, and the log is so now; `high_watermark` is the leader's, if it sent records."""
        followed = self._current(key, leader_epoch)
        if followed is None:
            return
        if high_watermark is not None:
            followed.lag = max(0, high_watermark - log.end_offset)
            followed.seen.clear()
        was_uncut = followed.first_cut is not None
        followed.first_cut = None
        self._to_cut.pop(key, None)
        if was_uncut or log != followed.position.log:
            followed.position = ReplicaPosition(leader_epoch, log)
            if followed.is_requested:
                self._changed[key] = None

    def refused(self, key: PartitionKey, leader_epoch: int, now_ms: float) -> None:
        """An action failed here, and may succeed later: damaged records were received, or the disk is full."""
        followed = self._current(key, leader_epoch)
        if followed is not None:
            self._delay(key, followed, now_ms)

    def gave_up(self, key: PartitionKey, leader_epoch: int, error: ErrorCode) -> None:
        """The log takes no more records: the partition is not fetched before its next role."""
        if self._current(key, leader_epoch) is not None:
            self._fail(key, error)

    def _refuse(self, key: PartitionKey, followed: FollowedPartition, error: ErrorCode, now_ms: float) -> None:
        """The leader refuses: after FENCED_LEADER_EPOCH there is a newer leader, of whom the controller will tell."""
        if error is ErrorCode.FENCED_LEADER_EPOCH:
            self._fail(key, error)
        elif error in NOT_HEARD_OF_YET:
            backoff_ms = self._patience_ms(followed)
            followed.unheard += 1
            self._delay(key, followed, now_ms, backoff_ms)
        else:
            self._delay(key, followed, now_ms)

    def _patience_ms(self, followed: FollowedPartition) -> float:
        return min(FIRST_BACKOFF_MS * 2.0 ** min(followed.unheard, 32), self._backoff_ms)

    def is_patient(self, key: PartitionKey) -> bool:
        """Whether the leader was to have heard of the partition by now: its next delay is the usual one."""
        followed = self._followed.get(key)
        return followed is None or self._patience_ms(followed) >= self._backoff_ms

    def _fail(self, key: PartitionKey, error: ErrorCode) -> None:
        self._drop(key)
        self.failed[key] = error

    def _delay(
        self, key: PartitionKey, followed: FollowedPartition, now_ms: float, backoff_ms: float | None = None
    ) -> None:
        if followed.delayed_until_ms is None:
            followed.delayed_until_ms = now_ms + (self._backoff_ms if backoff_ms is None else backoff_ms)
            self._waiting_until(followed.delayed_until_ms).append(key)
        self._leave_session(key, followed)

    def _waiting_until(self, deadline_ms: float) -> list[PartitionKey]:
        """The partitions that are delayed until then; there may be former ones among them."""
        waiting = self._delayed.get(deadline_ms)
        if waiting is None:
            waiting = self._delayed[deadline_ms] = []
            heappush(self._deadlines, deadline_ms)
        return waiting

    # -- for tests and operators

    def check_invariants(self) -> None:
        """Raise AssertionError if the parts contradict each other."""
        assert self._changed.keys() <= self._followed.keys()
        assert not self.failed.keys() & self._followed.keys()
        assert self._without_ids == sum(each.topic_id == NO_TOPIC_ID for each in self._followed.values())
        for key, each in self._followed.items():
            if each.delayed_until_ms is not None:
                assert each.requested is None
                assert key in self._delayed[each.delayed_until_ms]
            elif each.is_held:
                assert each.requested is None
                assert self._held is not None
                assert key in self._held
            elif each.first_cut is not None:
                assert key in self._to_cut
            else:
                assert each.requested is each.position or key in self._changed or self._session.is_new, key
