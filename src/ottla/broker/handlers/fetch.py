"""Fetch (key 1), versions 0-17: reads record batches, and sends them from the page cache to the socket.

1 adds the throttle time; 3 a limit for the whole response (KIP-74); 4 adds record batches v2, the isolation level and
last stable offsets; 5 log start offsets; 7 incremental sessions (KIP-227); 9 leader epochs; 10 zstd; 11 racks
(KIP-392); 12 is flexible; 13 topic ids; 15 replica state; 16 node endpoints (KIP-951); 17 directory ids.

A response has, for each partition, a head in memory and a range of a segment file that is sent with `sendfile`. For
versions 0-3 the ranges are converted to the message sets of that time instead (0 and 1: format 0; 2 and 3: format 1),
in threads and while they are sent (`ottla.storage.down_conversion`).

The work is in `ottla.broker.fetches`: what is asked for (`requested`), the reading of partitions (`reading`), the wait
(`waiting`), the response (`answering`).
"""

from __future__ import annotations

from ottla.broker.authorization import CLUSTER_ACTION, CONSUMER_REPLICA_ID, Accesses, on_topic
from ottla.broker.context import RequestContext
from ottla.broker.fetch_sessions import NO_SESSION, TopicKey
from ottla.broker.fetches.requested import (
    TOPIC_IDS_SINCE,
    RequestedPartitions,
    begin,
    collect,
    is_small,
    named,
    replica_id,
)
from ottla.broker.fetches.waiting import Fetch
from ottla.cluster.acls import Operation
from ottla.wire.errors import ErrorCode
from ottla.wire.hot import encode_fetch_response
from ottla.wire.messages.fetch import FetchRequest, FetchResponse


def accesses(context: RequestContext, request: FetchRequest) -> Accesses:
    """CLUSTER_ACTION for a broker, READ of each topic for a client."""
    if replica_id(request) > CONSUMER_REPLICA_ID:
        yield CLUSTER_ACTION
        return
    names = context.broker.image.topic_names
    session = context.broker.fetch_sessions.get(request.session_id)
    topics: list[TopicKey] = [] if session is None else [topic for topic, _ in session.partitions]
    topics += [topic.topic_id if context.api_version >= TOPIC_IDS_SINCE else topic.topic for topic in request.topics]
    for topic in dict.fromkeys(topics):
        name = topic if isinstance(topic, str) else names.get(topic)
        if name is not None:
            yield on_topic(Operation.READ, name)


def handle(context: RequestContext, request: FetchRequest) -> None:
    """Read the available records; reply at once, or when enough have been appended."""
    is_follower = replica_id(request) > CONSUMER_REPLICA_ID
    if is_follower:
        context.charge = None  # replication has quotas of its own
    figures = context.figures = context.broker.dispatcher.fetches[is_follower]
    figures.by_version[context.api_version] += 1
    if is_small(request):
        _begin(context, request, named(context, request))
    else:
        context.run(_take_up(context, request))


async def _take_up(context: RequestContext, request: FetchRequest) -> None:
    _begin(context, request, await context.broker.slices.through(collect(context, request)))


def _begin(context: RequestContext, request: FetchRequest, partitions: RequestedPartitions) -> None:
    begun = begin(context, request, partitions)
    if isinstance(begun, ErrorCode):
        if context.charge is not None:
            context.charge.answered(context)
        response = FetchResponse(
            error_code=int(begun), session_id=NO_SESSION, responses=[], throttle_time_ms=context.throttle_ms
        )
        parts, length = encode_fetch_response(response, context.api_version)
        context.reply_parts(parts, length)
        return
    Fetch(context, request, begun, partitions.beyond).begin()
