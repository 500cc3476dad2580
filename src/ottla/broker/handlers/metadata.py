"""Metadata (key 3), versions 0-12: brokers, topics, leaders.

1 adds the controller, racks, `is_internal` and tells "all topics" (null) from "none" (empty); 2 the cluster id; 3 the
throttle time; 4 `allow_auto_topic_creation`; 5 offline replicas; 7 leader epochs; 8 authorized operations; 9 is
flexible; 10 topic ids; 11 drops the cluster's authorized operations; 12 asks by topic id.

A topic that is made on demand is made before the answer, so the client finds its leaders at once where Apache Kafka
says `LEADER_NOT_AVAILABLE` first. Encoded answers are cached until the cluster changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from ottla.cluster.topics import is_internal_topic, topic_name_problem
from ottla.wire.codec import encode
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.cluster.image import TopicImage

MIN_VERSION = 0
MAX_VERSION = 12

NO_ID = UUID(int=0)
NOT_ASKED = -(2**31)
#: READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS: everything, since nothing is refused.
TOPIC_OPERATIONS = 0b1101_1111_1000
#: CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE.
CLUSTER_OPERATIONS = 0b1_1111_1010_0000

#: Why a topic could not be made now and may be made later.
TRY_AGAIN = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER)

#: Encoded answers that are kept, and their bytes together: a request may name a million topics.
CACHED_ANSWERS = 256
CACHED_BYTES = 8 * 1024 * 1024


class MetadataCache:
    """Encoded answers, dropped whenever the cluster image changes."""

    __slots__ = ("_answers", "_bytes", "_version")

    def __init__(self) -> None:
        self._version = -1
        self._answers: dict[object, bytes] = {}
        self._bytes = 0

    def get(self, image_version: int, key: object) -> bytes | None:
        """The cached body for `key` made from this version of the image."""
        if image_version != self._version:
            self._answers.clear()
            self._bytes = 0
            self._version = image_version
        return self._answers.get(key)

    def put(self, image_version: int, key: object, body: bytes) -> None:
        """Keep a body, unless it was made from an older image or the cache is full."""
        size = self._bytes + len(body)
        if image_version == self._version and len(self._answers) < CACHED_ANSWERS and size <= CACHED_BYTES:
            self._answers[key] = body
            self._bytes = size


def handle(context: RequestContext, request: MetadataRequest) -> None:
    """Answer from the image, after making topics that are missing and may be made."""
    problem = _check_ids(context, request)
    if problem is not None:
        context.reply(problem)
        return
    missing = _to_create(context, request)
    if missing:
        context.spawn(_create_and_answer(context, request, missing))
    else:
        _answer(context, request, {})


async def _create_and_answer(context: RequestContext, request: MetadataRequest, missing: list[str]) -> None:
    errors: dict[str, ErrorCode] = {}
    for name in missing:
        refusal = await context.broker.control.ensure_topic(name)
        if refusal is None or refusal.error is ErrorCode.TOPIC_ALREADY_EXISTS:
            continue
        # Clients ask again for a topic whose leader is to come; of a ZooKeeper that is away they know nothing.
        errors[name] = ErrorCode.LEADER_NOT_AVAILABLE if refusal.error in TRY_AGAIN else refusal.error
    _answer(context, request, errors)


def _check_ids(context: RequestContext, request: MetadataRequest) -> MetadataResponse | None:
    """Topic ids may be asked for from version 12 on; before, the whole request is invalid."""
    if context.api_version >= 12 or request.topics is None or context.api_version < 10:
        return None
    if all(topic.name is not None and topic.topic_id == NO_ID for topic in request.topics):
        return None
    error = int(ErrorCode.INVALID_REQUEST)
    return MetadataResponse(
        brokers=[],
        topics=[
            MetadataResponseTopic(error_code=error, name=topic.name or "", topic_id=topic.topic_id, partitions=[])
            for topic in request.topics
        ],
    )


def _to_create(context: RequestContext, request: MetadataRequest) -> list[str]:
    if not request.topics or not request.allow_auto_topic_creation:
        return []
    known = context.broker.image.topics
    names = [topic.name for topic in request.topics if topic.name is not None and topic.name not in known]
    if not names:
        return []
    auto = context.broker.config.get_boolean("auto.create.topics.enable")
    return [name for name in names if (auto or is_internal_topic(name)) and topic_name_problem(name) is None]


def _answer(context: RequestContext, request: MetadataRequest, errors: dict[str, ErrorCode]) -> None:
    broker = context.broker
    image_version = broker.image.version
    names = None if request.topics is None else tuple((t.name, t.topic_id) for t in request.topics)
    key = (
        context.api_version,
        context.listener_name,
        names,
        request.include_topic_authorized_operations,
        request.include_cluster_authorized_operations,
    )
    body = broker.metadata_cache.get(image_version, key) if not errors else None
    if body is None:
        body = encode(_response(context, request, errors), context.api_version)
        if not errors:
            broker.metadata_cache.put(image_version, key, body)
    context.reply_body(body)


def _response(context: RequestContext, request: MetadataRequest, errors: dict[str, ErrorCode]) -> MetadataResponse:
    image = context.broker.image
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    if request.topics is None or (context.api_version == 0 and not request.topics):
        topics = [_topic(topic, operations) for topic in image.topics.values()]
    else:
        topics = []
        # A topic that is named twice is described once.
        for asked in {(asked.name, asked.topic_id): asked for asked in request.topics}.values():
            name = asked.name
            if name is None:
                name = image.topic_names.get(asked.topic_id)
            found = image.topics.get(name) if name is not None else None
            if found is not None:
                topics.append(_topic(found, operations))
            else:
                topics.append(_unknown(asked.name, asked.topic_id, errors))
    brokers = []
    for broker in image.brokers.values():
        endpoint = broker.endpoint(context.listener_name)
        if endpoint is not None:
            brokers.append(
                MetadataResponseBroker(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            )
    return MetadataResponse(
        brokers=brokers,
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _topic(topic: TopicImage, operations: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            MetadataResponsePartition(
                error_code=0 if partition.leader >= 0 else int(ErrorCode.LEADER_NOT_AVAILABLE),
                partition_index=index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                offline_replicas=list(partition.offline),
            )
            for index, partition in enumerate(topic.partitions)
        ],
        topic_authorized_operations=operations,
    )


def _unknown(name: str | None, topic_id: UUID, errors: dict[str, ErrorCode]) -> MetadataResponseTopic:
    if name is None:
        error = ErrorCode.UNKNOWN_TOPIC_ID
    elif topic_name_problem(name) is not None:
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
    else:
        error = errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return MetadataResponseTopic(
        error_code=int(error),
        name=name,
        topic_id=topic_id,
        is_internal=name is not None and is_internal_topic(name),
        partitions=[],
    )
