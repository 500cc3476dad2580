"""The partitions that a fetch asks for: those that it names, and those of its session (KIP-227)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.authorization import CONSUMER_REPLICA_ID, DEBUGGING_REPLICA_ID
from ottla.broker.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    UNKNOWN_PARTITIONS_LIMIT,
    FetchSession,
    PartitionKey,
    SessionPartition,
    TopicKey,
)
from ottla.broker.fetches.versions import TOPIC_IDS_SINCE
from ottla.broker.replicas.partition import NO_EPOCH
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchRequest, FetchTopic
from ottla.wire.stepwise import Steps

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext

#: A fetch of up to this many partitions is handled without slices.
PARTITIONS_AT_ONCE = 64
#: Partitions processed between two slices.
PARTITIONS_PER_STEP = 16


class RequestedPartitions:
    """The partitions of a request, each once."""

    __slots__ = ("beyond", "forgotten", "wanted")

    def __init__(self) -> None:
        self.wanted: dict[PartitionKey, SessionPartition] = {}
        #: Partitions beyond `UNKNOWN_PARTITIONS_LIMIT` that are not hosted here; only their numbers are kept.
        self.beyond: dict[TopicKey, set[int]] = {}
        #: Those of the session that it is to forget, in their order.
        self.forgotten: dict[PartitionKey, None] = {}


class BegunFetch(NamedTuple):
    """A fetch whose session is found."""

    #: The partitions to look at.
    wanted: list[SessionPartition]
    #: The session that continues, if any.
    session: FetchSession | None
    #: Whether the response leaves out what the client knows.
    is_incremental: bool


def replica_id(request: FetchRequest) -> int:
    """The id of the fetching broker, -1 for a consumer."""
    return max(request.replica_id, request.replica_state.replica_id)


def is_debugging(request: FetchRequest) -> bool:
    """Whether a tool asks that compares replicas: any replica answers it, up to the end of its log."""
    return DEBUGGING_REPLICA_ID in (request.replica_id, request.replica_state.replica_id)


def is_small(request: FetchRequest) -> bool:
    """Whether the request has few enough partitions to be handled without slices."""
    topics = request.topics
    return (
        len(topics) <= PARTITIONS_AT_ONCE
        and sum([len(topic.partitions) for topic in topics]) <= PARTITIONS_AT_ONCE
        and not request.forgotten_topics_data
    )


def named(context: RequestContext, request: FetchRequest) -> RequestedPartitions:
    """The partitions of a small request."""
    requested = RequestedPartitions()
    for topic in request.topics:
        requested.wanted.update(_wanted(topic, context.api_version))
    return requested


def _wanted(topic: FetchTopic, version: int) -> Iterable[tuple[PartitionKey, SessionPartition]]:
    key: TopicKey = topic.topic_id if version >= TOPIC_IDS_SINCE else topic.topic
    for requested in topic.partitions:
        yield (
            (key, requested.partition),
            SessionPartition(
                key,
                requested.partition,
                requested.fetch_offset,
                requested.partition_max_bytes,
                max(requested.current_leader_epoch, NO_EPOCH),
                requested.last_fetched_epoch,
                requested.log_start_offset,
            ),
        )


def collect(context: RequestContext, request: FetchRequest) -> Steps[RequestedPartitions]:
    """Collect the partitions of a large request. Of those not hosted here only a limited number is kept in full."""
    requested = RequestedPartitions()
    hosts = context.broker.partitions.hosts
    version = context.api_version
    unknown = number = 0
    for topic in request.topics:
        yield
        for (key, index), partition in _wanted(topic, version):
            number += 1
            if number % PARTITIONS_PER_STEP == 0:
                yield
            if not hosts(key, index):
                unknown += 1
                if unknown > UNKNOWN_PARTITIONS_LIMIT:
                    requested.beyond.setdefault(key, set()).add(index)
                    continue
            requested.wanted[key, index] = partition
    session = context.broker.sessions_of(replica_id(request)).get(request.session_id)
    if session is None:
        return requested
    known = session.partitions
    for forgotten in request.forgotten_topics_data:
        key = forgotten.topic_id if version >= TOPIC_IDS_SINCE else forgotten.topic
        yield
        indexes = forgotten.partitions
        for start in range(0, len(indexes), PARTITIONS_PER_STEP):
            requested.forgotten.update(
                {(key, index): None for index in indexes[start : start + PARTITIONS_PER_STEP] if (key, index) in known}
            )
            yield
    return requested


def begin(context: RequestContext, request: FetchRequest, requested: RequestedPartitions) -> BegunFetch | ErrorCode:
    """The partitions to read and the session, or the error for the whole fetch (KIP-227)."""
    sessions = context.broker.sessions_of(replica_id(request))
    by_id = context.api_version >= TOPIC_IDS_SINCE
    now_ms = context.broker.clock.monotonic_ms()
    epoch = request.session_epoch
    if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
        sessions.remove(request.session_id)
        wanted = list(requested.wanted.values())
        if epoch == FINAL_EPOCH or requested.beyond:
            return BegunFetch(wanted, None, False)
        is_follower = replica_id(request) > CONSUMER_REPLICA_ID
        return BegunFetch(wanted, sessions.create(by_id, wanted, now_ms, is_follower), False)
    session = sessions.resume(request.session_id, epoch, by_id, now_ms)
    if isinstance(session, ErrorCode):
        return session
    keeps = True
    if requested.wanted or requested.forgotten:
        keeps = sessions.change(session, requested.wanted.values(), requested.forgotten)
    if not session.partitions or not keeps or requested.beyond:
        wanted = list(session.partitions.values())
        sessions.remove(session.session_id)
        return BegunFetch(wanted, None, False)
    return BegunFetch(session.to_read(now_ms), session, True)
