"""Metadata (key 3), versions 0-12: brokers, topics, leaders.

1 adds the controller, racks, `is_internal`, and distinguishes "all topics" (null) from "none" (empty); 2 the cluster
id; 3 the throttle time; 4 `allow_auto_topic_creation`; 5 offline replicas; 7 leader epochs; 8 authorized operations; 9
is flexible; 10 topic ids; 11 drops the cluster's authorized operations; 12 takes topic ids.

A topic that is created on demand exists before the response, so the client finds its leaders at once; Apache Kafka
first answers `LEADER_NOT_AVAILABLE`. A broker that has just started answers when it has heard which brokers there are.
Encoded responses are cached until the cluster changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias
from uuid import UUID

from ottla.broker.authorization import (
    AUTHORIZED_OPERATIONS_OMITTED,
    Accesses,
    on_cluster,
    on_topic,
    on_topics,
    or_else,
    unlogged,
)
from ottla.broker.context import RequestContext
from ottla.cluster.acls import CLUSTER_NAME, Operation, ResourceType
from ottla.cluster.image import BrokerImage, PartitionImage, TopicImage
from ottla.cluster.topics import is_internal_topic, topic_name_problem
from ottla.config.listeners import Endpoint
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.sliced import Sliced, encode_in_slices, joined, mapped

NO_ID = UUID(int=0)
#: Errors after which the creation of a topic may succeed later.
TRY_AGAIN = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER)

#: Responses to requests with more topics are not cached.
CACHED_NAMES = 1_000
#: Topics processed between two slices.
TOPICS_PER_SLICE = 64

OfflineOf: TypeAlias = "Callable[[str, int, PartitionImage], tuple[int, ...]]"
"""Gives the offline replicas of a partition."""
OperationsOf: TypeAlias = Callable[[str], int]
"""Gives the authorized operations on a topic."""


def accesses(context: RequestContext, request: MetadataRequest) -> Accesses:
    """DESCRIBE of each topic, CREATE of those to be created, DESCRIBE of the cluster for its operations."""
    known = context.broker.image
    if request.include_cluster_authorized_operations:
        yield on_cluster(Operation.DESCRIBE)
    if _wants_all(context, request):
        names = (*known.topics, *context.broker.control.unheard_topics.names)
        yield from unlogged(on_topics(Operation.DESCRIBE, names))
        return
    creates = _creates(context, request)
    missing: dict[str, None] = {}
    for requested in request.topics or ():
        name = requested.name if requested.name is not None else known.topic_names.get(requested.topic_id)
        if name is not None:
            yield on_topic(Operation.DESCRIBE, name)
            if creates(name):
                missing[name] = None
    if missing:
        created = on_topics(Operation.CREATE, missing)
        yield from or_else(on_cluster(Operation.CREATE), created, where=Operation.DESCRIBE)


def handle(context: RequestContext, request: MetadataRequest) -> None:
    """Reply from the image, after creating topics that are missing and may be created."""
    context.run(_take_up(context, request))


async def _take_up(context: RequestContext, request: MetadataRequest) -> None:
    if not await knows_brokers(context):
        # Without an answer the client asks another broker; an answer without brokers would replace what it knows.
        context.disconnect()
        return
    slices = context.broker.slices
    problem = await slices.through(_check_ids(context, request))
    if problem is not None:
        await context.replied(problem)
        return
    missing, errors = await slices.through(_to_create(context, request))
    if missing:
        # The creation continues even if the client disconnects.
        context.spawn(_create_and_answer(context, request, missing, errors))
    else:
        await _answer(context, request, errors)


async def knows_brokers(context: RequestContext) -> bool:
    """Whether this broker can say which brokers there are; waits for it after a start."""
    broker = context.broker
    return bool(broker.image.brokers) or await broker.control.first_brokers.wait()


def reachable_brokers(context: RequestContext) -> list[tuple[BrokerImage, Endpoint]]:
    """The brokers with an endpoint on the listener that received the request."""
    brokers = context.broker.image.brokers.values()
    return [(each, found) for each in brokers if (found := each.endpoint(context.listener_name)) is not None]


async def _create_and_answer(
    context: RequestContext, request: MetadataRequest, missing: list[str], errors: dict[str, ErrorCode]
) -> None:
    for name in missing:
        await context.broker.slices.point()
        if context.is_gone:
            return
        if context.charge is not None:
            context.charge.created_on_demand(context.broker.config.get_int("num.partitions"))
        refusal = await context.broker.control.admin.ensure_topic(name)
        if refusal is None or refusal.error is ErrorCode.TOPIC_ALREADY_EXISTS:
            continue
        # Clients retry a topic without a leader; they know nothing of an unreachable ZooKeeper.
        errors[name] = ErrorCode.LEADER_NOT_AVAILABLE if refusal.error in TRY_AGAIN else refusal.error
    await _answer(context, request, errors)


def _wants_all(context: RequestContext, request: MetadataRequest) -> bool:
    return request.topics is None or (context.api_version == 0 and not request.topics)


def _check_ids(context: RequestContext, request: MetadataRequest) -> Sliced[MetadataResponse | None]:
    """Refuse topic ids before version 12: the whole request is invalid."""
    if context.api_version >= 12 or request.topics is None or context.api_version < 10:
        return None
    for number, topic in enumerate(request.topics):
        if number % TOPICS_PER_SLICE == 0:
            yield
        if topic.name is None or topic.topic_id != NO_ID:
            return MetadataResponse(brokers=[], topics=mapped(request.topics, _invalid))
    return None


def _invalid(topic: MetadataRequestTopic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=int(ErrorCode.INVALID_REQUEST), name=topic.name or "", topic_id=topic.topic_id, partitions=[]
    )


def _creates(context: RequestContext, request: MetadataRequest) -> Callable[[str], bool]:
    """Whether a topic is missing that the request may have created."""
    known = context.broker.image.topics
    unheard = context.broker.control.unheard_topics.names
    auto = context.broker.config.get_boolean("auto.create.topics.enable")

    def is_missing(name: str) -> bool:
        return name not in known and name not in unheard and (auto or is_internal_topic(name))

    return is_missing if request.allow_auto_topic_creation else lambda name: False


def _to_create(context: RequestContext, request: MetadataRequest) -> Sliced[tuple[list[str], dict[str, ErrorCode]]]:
    """The topics that are missing and may be created now, each once; the errors of those that may not."""
    creates = _creates(context, request)
    names: dict[str, None] = {}
    errors: dict[str, ErrorCode] = {}
    for number, topic in enumerate(request.topics or ()):
        if number % TOPICS_PER_SLICE == 0:
            yield
        name = topic.name
        if name is None or not creates(name) or not context.permits(Operation.DESCRIBE, ResourceType.TOPIC, name):
            continue
        if not _may_create(context, name):
            errors[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic_name_problem(name) is None:
            names[name] = None
    return list(names), errors


def _may_create(context: RequestContext, name: str) -> bool:
    create = Operation.CREATE
    return context.permits(create, ResourceType.CLUSTER, CLUSTER_NAME) or context.permits(
        create, ResourceType.TOPIC, name
    )


async def _answer(context: RequestContext, request: MetadataRequest, errors: dict[str, ErrorCode]) -> None:
    broker = context.broker
    image_version = broker.image.version
    requested = request.topics
    cached = (
        not errors
        and not broker.control.unheard_topics.names
        and not context.throttle_ms
        and not (context.permitted is not None and _wants_operations(request))
        and (requested is None or len(requested) <= CACHED_NAMES)
    )
    key = None
    if cached:
        key = (
            context.api_version,
            context.listener_name,
            None if requested is None else tuple((t.name, t.topic_id) for t in requested),
            request.include_topic_authorized_operations,
            request.include_cluster_authorized_operations,
            None if context.permitted is None else frozenset(context.permitted),
        )
        body = broker.metadata_cache.get(image_version, key)
        if body is not None and not _is_throttled(context):
            context.reply_body(body)
            return
    response = await broker.slices.through(_response(context, request, errors))
    if key is None or _is_throttled(context):
        await context.replied(response)
        return
    parts, _ = await broker.slices.through(encode_in_slices(response, context.api_version))
    body = b"".join(parts)
    broker.metadata_cache.put(image_version, key, body)
    context.reply_body(body)


def _is_throttled(context: RequestContext) -> bool:
    """Whether the client has to wait, as its response says; what is done from here on counts in no quota."""
    if context.charge is not None:
        context.charge.answered(context)
    return context.throttle_ms > 0


def _response(
    context: RequestContext, request: MetadataRequest, errors: dict[str, ErrorCode]
) -> Sliced[MetadataResponse]:
    image = context.broker.image
    offline_of = _offline_of(context)
    operations_of = _operations_of(context, request)
    if _wants_all(context, request):
        every = list(image.topics.values())
        if context.permitted is not None:
            every = [t for t in every if context.permits(Operation.DESCRIBE, ResourceType.TOPIC, t.name)]
        unheard = [
            name
            for name in context.broker.control.unheard_topics.names
            if context.permits(Operation.DESCRIBE, ResourceType.TOPIC, name)
        ]
        topics = joined(
            mapped(every, lambda topic: _topic(topic, operations_of, offline_of)),
            mapped(unheard, lambda name: _unknown(context, name, NO_ID, operations_of, errors)),
        )
    else:
        # A topic named twice is described once.
        requested: dict[tuple[str | None, UUID], None] = {}
        for number, one in enumerate(request.topics or ()):
            if number % TOPICS_PER_SLICE == 0:
                yield
            requested[one.name, one.topic_id] = None
        topics = mapped(requested, lambda key: _requested_topic(context, key, operations_of, offline_of, errors))
    brokers = [
        MetadataResponseBroker(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
        for broker, endpoint in reachable_brokers(context)
    ]
    return MetadataResponse(
        brokers=brokers,
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=topics,
        cluster_authorized_operations=cluster_operations(context, request.include_cluster_authorized_operations),
    )


def cluster_operations(context: RequestContext, are_wanted: bool) -> int:
    """The authorized operations on the cluster, none without DESCRIBE of it."""
    if not are_wanted:
        return AUTHORIZED_OPERATIONS_OMITTED
    if not context.permits(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return context.authorized_operations(ResourceType.CLUSTER, CLUSTER_NAME)


def _wants_operations(request: MetadataRequest) -> bool:
    return request.include_topic_authorized_operations or request.include_cluster_authorized_operations


def _operations_of(context: RequestContext, request: MetadataRequest) -> OperationsOf:
    if request.include_topic_authorized_operations:
        return lambda name: context.authorized_operations(ResourceType.TOPIC, name)
    return lambda name: AUTHORIZED_OPERATIONS_OMITTED


def _requested_topic(
    context: RequestContext,
    key: tuple[str | None, UUID],
    operations_of: OperationsOf,
    offline_of: OfflineOf,
    errors: dict[str, ErrorCode],
) -> MetadataResponseTopic:
    wanted_name, topic_id = key
    image = context.broker.image
    name = wanted_name if wanted_name is not None else image.topic_names.get(topic_id)
    if name is not None and not context.permits(Operation.DESCRIBE, ResourceType.TOPIC, name):
        # A client that may not describe a topic does not learn its name either.
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return MetadataResponseTopic(error_code=int(error), name=wanted_name, topic_id=topic_id, partitions=[])
    found = image.topics.get(name) if name is not None else None
    if found is None:
        return _unknown(context, wanted_name, topic_id, operations_of, errors)
    return _topic(found, operations_of, offline_of)


def _offline_of(context: RequestContext) -> OfflineOf:
    """The offline replicas as the controller last sent them; at the controller itself, as they are now."""
    control = context.broker.control
    return control.controller.controller.offline_replicas if control.served.is_active else _as_sent


def _as_sent(topic: str, index: int, state: PartitionImage) -> tuple[int, ...]:
    return state.offline


def _topic(topic: TopicImage, operations_of: OperationsOf, offline_of: OfflineOf) -> MetadataResponseTopic:
    def partition(index: int) -> MetadataResponsePartition:
        state = topic.partitions[index]
        return _partition(index, state, offline_of(topic.name, index, state))

    return MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=mapped(range(len(topic.partitions)), partition),
        topic_authorized_operations=operations_of(topic.name),
    )


def _partition(index: int, partition: PartitionImage, offline: tuple[int, ...]) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=0 if partition.leader >= 0 else int(ErrorCode.LEADER_NOT_AVAILABLE),
        partition_index=index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=list(offline),
    )


def _unknown(
    context: RequestContext,
    name: str | None,
    topic_id: UUID,
    operations_of: OperationsOf,
    errors: dict[str, ErrorCode],
) -> MetadataResponseTopic:
    if name is None:
        error = ErrorCode.UNKNOWN_TOPIC_ID
    elif name in errors:
        error = errors[name]
    elif topic_name_problem(name) is not None:
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
    else:
        is_unheard = name in context.broker.control.unheard_topics.names
        error = ErrorCode.LEADER_NOT_AVAILABLE if is_unheard else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    is_hidden = name is None or error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return MetadataResponseTopic(
        error_code=int(error),
        name=name,
        topic_id=topic_id,
        is_internal=name is not None and is_internal_topic(name),
        partitions=[],
        topic_authorized_operations=(
            AUTHORIZED_OPERATIONS_OMITTED if name is None or is_hidden else operations_of(name)
        ),
    )
