"""Incremental fetch sessions (KIP-227): a client names its partitions once, then sends only changes.

Epochs: -1 requests a full fetch without a session, 0 a full fetch that creates one; every further fetch carries
the session's id and the next epoch, wrapping from 2^31-1 to 1.

The sessions of followers hold thousands of partitions, of which few change between two fetches: such a session knows
which (`FetchSession.due`), and only these are looked at. The others are as they were when they were last read: the
follower has all of their records, and knows their high watermarks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.replicas.partition import Partition
    from ottla.broker.replicas.purgatory import DelayedFetch

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
NO_SESSION = 0
MAX_EPOCH = 2**31 - 1
#: A session unused for this long may be evicted by a new one (Kafka's fixed two minutes).
EVICTION_AGE_MS = 120_000
#: Most partitions of all sessions together, about 350 bytes each. If a session would exceed it, the client gets none,
#: or loses the one it has, and names its partitions in each fetch.
REMEMBERED_PARTITIONS_LIMIT = 250_000
#: Most partitions of one session that are not hosted here. A client with old metadata names some, and a follower may
#: hear of new partitions before their leader. They must be kept, since their errors are repeated until they are gone.
UNKNOWN_PARTITIONS_LIMIT = 1_000
#: All partitions of a follower's session are looked at in this interval: retention moves log starts unannounced.
LOOK_AT_ALL_MS = 5_000

TopicKey: TypeAlias = str | UUID
"""A topic's name, or its id from Fetch 13 on."""

PartitionKey: TypeAlias = tuple[TopicKey, int]


class SessionPartition:
    """A partition of a session: the client's fetch position and limits, and what it was last sent."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "follower_log_start",
        "high_watermark",
        "index",
        "is_held_back",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "replica",
        "session",
        "topic",
    )

    def __init__(
        self,
        topic: TopicKey,
        index: int,
        fetch_offset: int,
        max_bytes: int,
        leader_epoch: int,
        last_fetched_epoch: int = -1,
        follower_log_start: int = -1,
    ) -> None:
        self.topic = topic
        self.index = index
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        #: The start of the follower's log; -1 for a consumer.
        self.follower_log_start = follower_log_start
        self.high_watermark = -1
        self.log_start_offset = -1
        #: Of a follower: the session, and the replica that tells it of its changes (`Partition.watched_by`).
        self.session: FetchSession | None = None
        self.replica: Partition | None = None
        #: Of a follower: whether a quota holds its records back, so that it is not woken for more of them.
        self.is_held_back = False

    def changed(self) -> bool:
        """Of a follower: have the next fetch look at this partition; return whether it was not going to."""
        session = self.session
        if session is None or session.due is None or self in session.due:
            return False
        session.due[self] = None
        return True

    def update(self, other: SessionPartition) -> None:
        """Take over the values of a newer request."""
        self.fetch_offset = other.fetch_offset
        self.max_bytes = other.max_bytes
        self.current_leader_epoch = other.current_leader_epoch
        self.last_fetched_epoch = other.last_fetched_epoch
        self.follower_log_start = other.follower_log_start

    def knows(self, high_watermark: int, log_start_offset: int) -> bool:
        """Whether the client has these offsets already, so that without records the partition can be left out."""
        return self.high_watermark == high_watermark and self.log_start_offset == log_start_offset

    def must_include(self, error: int, size: int, high_watermark: int, log_start_offset: int) -> bool:
        """Whether an incremental response has to include this partition; updates what the client was last sent."""
        is_included = size > 0 or error != 0
        if self.high_watermark != high_watermark:
            self.high_watermark = high_watermark
            is_included = True
        if self.log_start_offset != log_start_offset:
            self.log_start_offset = log_start_offset
            is_included = True
        if error != 0:
            # An error is repeated until it is gone, and the next state without error is always sent.
            self.high_watermark = -1
        return is_included


class FetchSession:
    """One client's session; partitions in the order in which they are served."""

    __slots__ = (
        "due",
        "epoch",
        "last_used_ms",
        "looked_at_all_ms",
        "partitions",
        "session_id",
        "unknown",
        "uses_topic_ids",
        "waiting",
    )

    def __init__(self, session_id: int, uses_topic_ids: bool, now_ms: float, of_follower: bool = False) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.epoch = 1
        self.last_used_ms = now_ms
        self.partitions: dict[PartitionKey, SessionPartition] = {}
        #: The partitions that were not hosted here when they were added; some may be by now, or be forgotten.
        self.unknown: list[SessionPartition] = []
        #: Of a follower: the partitions that the next fetch has to look at, in their order; None for consumers.
        self.due: dict[SessionPartition, None] | None = {} if of_follower else None
        self.looked_at_all_ms = now_ms
        #: Of a follower: the fetch that waits.
        self.waiting: dict[DelayedFetch, None] = {}

    def to_read(self, now_ms: float) -> list[SessionPartition]:
        """The partitions that a fetch has to look at."""
        if self.due is None:
            return list(self.partitions.values())
        if now_ms - self.looked_at_all_ms >= LOOK_AT_ALL_MS:
            self.looked_at_all_ms = now_ms
            self.due = dict.fromkeys(self.partitions.values())
        return list(self.due)

    def change(self, wanted: Iterable[SessionPartition], forgotten: Iterable[PartitionKey]) -> list[SessionPartition]:
        """Add, update and drop partitions; return those added."""
        partitions = self.partitions
        added: list[SessionPartition] = []
        for partition in wanted:
            key = (partition.topic, partition.index)
            known = partitions.get(key)
            if known is None:
                partitions[key] = partition
                added.append(partition)
                known = partition
            else:
                known.update(partition)
            if self.due is not None:
                known.session = self
                self.due[known] = None
        for key in forgotten:
            gone = partitions.pop(key, None)
            if gone is not None and self.due is not None:
                self.due.pop(gone, None)
                gone.session = None
                if gone.replica is not None:
                    gone.replica.unwatch(gone)
        return added

    def has(self, partition: SessionPartition) -> bool:
        """Whether this is a partition of the session, and not forgotten."""
        return self.partitions.get((partition.topic, partition.index)) is partition

    def served(self, partition: SessionPartition) -> None:
        """Move a partition with data to the end, so that all partitions are served in turn."""
        key = (partition.topic, partition.index)
        if self.partitions.pop(key, None) is not None:
            self.partitions[key] = partition
            if self.due is not None:
                self.due.pop(partition, None)
                self.due[partition] = None


class FetchSessionCache:
    """The sessions, at most `max.incremental.fetch.session.cache.slots` of them.

    `is_hosted` says whether this broker hosts a partition.
    """

    def __init__(
        self, slots: int, random_id: Callable[[], int], is_hosted: Callable[[SessionPartition], bool] = lambda _: True
    ) -> None:
        self._slots = slots
        self._random_id = random_id
        self._is_hosted = is_hosted
        self._sessions: dict[int, FetchSession] = {}
        #: Partitions of all sessions.
        self.partitions = 0
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def create(
        self, uses_topic_ids: bool, wanted: Collection[SessionPartition], now_ms: float, of_follower: bool = False
    ) -> FetchSession | None:
        """Create a session; None if the cache is full of sessions in use, or the client names too many partitions."""
        unknown = self._unknown_of(wanted)
        if len(unknown) > UNKNOWN_PARTITIONS_LIMIT or len(wanted) > REMEMBERED_PARTITIONS_LIMIT:
            return None
        while len(self._sessions) >= self._slots or self.partitions + len(wanted) > REMEMBERED_PARTITIONS_LIMIT:
            if not self._evict(now_ms):
                return None
        session_id = self._random_id()
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._random_id()
        session = FetchSession(session_id, uses_topic_ids, now_ms, of_follower)
        session.change(wanted, ())
        session.unknown = unknown
        self.partitions += len(session.partitions)
        self._sessions[session_id] = session
        return session

    def change(
        self, session: FetchSession, wanted: Iterable[SessionPartition], forgotten: Iterable[PartitionKey]
    ) -> bool:
        """Change a session's partitions; if it exceeds its limits, remove it and return False."""
        before = len(session.partitions)
        added = session.change(wanted, forgotten)
        self.partitions += len(session.partitions) - before
        if not added:
            return True
        session.unknown += self._unknown_of(added)
        if len(session.unknown) > UNKNOWN_PARTITIONS_LIMIT:
            session.unknown = self._unknown_of(filter(session.has, session.unknown))
        if len(session.unknown) > UNKNOWN_PARTITIONS_LIMIT or self.partitions > REMEMBERED_PARTITIONS_LIMIT:
            self.remove(session.session_id)
            return False
        return True

    def _unknown_of(self, partitions: Iterable[SessionPartition]) -> list[SessionPartition]:
        is_hosted = self._is_hosted
        return [partition for partition in partitions if not is_hosted(partition)]

    def get(self, session_id: int) -> FetchSession | None:
        """The session, whatever its epoch."""
        return self._sessions.get(session_id)

    def remove(self, session_id: int) -> None:
        """Remove a session if it exists."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partitions -= len(session.partitions)

    def resume(self, session_id: int, epoch: int, uses_topic_ids: bool, now_ms: float) -> FetchSession | ErrorCode:
        """Find the session of an incremental fetch and advance its epoch, or return the error for the client."""
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        session.epoch = 1 if epoch == MAX_EPOCH else epoch + 1
        if session.last_used_ms != now_ms:
            session.last_used_ms = now_ms
            # In order of last use: eviction checks the head only.
            self._sessions[session_id] = self._sessions.pop(session_id)
        return session

    def _evict(self, now_ms: float) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now_ms - oldest.last_used_ms < EVICTION_AGE_MS:
            return False
        self.remove(oldest.session_id)
        self.evictions += 1
        return True
