"""CreateTopics (key 19), versions 0-7: create topics.

1 adds `validate_only` and error messages; 2 the throttle time; 4 takes -1 for the broker's default counts (KIP-464); 5
is flexible and returns the topic's settings (KIP-525); 6 may answer THROTTLING_QUOTA_EXCEEDED (KIP-599); 7
returns topic ids.
"""

from __future__ import annotations

from collections import Counter

from ottla.broker.authorization import Accesses, on_cluster, on_topics, or_else, unlogged
from ottla.broker.config_changes import CHANGES_LIMIT
from ottla.broker.context import RequestContext
from ottla.cluster.acls import CLUSTER_NAME, Operation, ResourceType
from ottla.cluster.controller_events import TopicCreated
from ottla.cluster.refusal import TopicRefusal
from ottla.cluster.topics import TopicSpec
from ottla.config.broker import BrokerConfig
from ottla.config.describe import describe_topic
from ottla.config.topic import LogConfig
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

CONFIGS_SINCE = 5
#: The first version that is refused where a quota is used up; older ones are only throttled.
REFUSES_SINCE = 6
#: Most partitions of one topic with a manual assignment in a request.
ASSIGNMENTS_LIMIT = 20_000
TOO_MUCH = (
    f"A topic has at most {ASSIGNMENTS_LIMIT} partitions placed by hand and {CHANGES_LIMIT} settings in one request."
)


def accesses(context: RequestContext, request: CreateTopicsRequest) -> Accesses:
    """CREATE of the cluster or of each topic; DESCRIBE_CONFIGS for the settings in the response."""
    created = on_topics(Operation.CREATE, (topic.name for topic in request.topics))
    yield from or_else(on_cluster(Operation.CREATE), created)
    if context.api_version >= CONFIGS_SINCE:
        yield from unlogged(on_topics(Operation.DESCRIBE_CONFIGS, (topic.name for topic in request.topics)))


def handle(context: RequestContext, request: CreateTopicsRequest) -> None:
    context.spawn(_create(context, request))


async def _create(context: RequestContext, request: CreateTopicsRequest) -> None:
    await context.broker.control.served.wait_for_controller(request.timeout_ms, lambda: context.is_gone)
    slices = context.broker.slices
    counts: Counter[str] = Counter()
    for topic in request.topics:
        await slices.point()
        counts[topic.name] += 1
    creates_all = context.permits(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
    # Topics without settings of their own share one configuration and its description.
    described: dict[LogConfig, list[CreatableTopicConfigs]] = {}
    results = []
    for topic in request.topics:
        await slices.point()
        if context.is_gone:
            return
        if not creates_all and not context.permits(Operation.CREATE, ResourceType.TOPIC, topic.name):
            made: TopicCreated | TopicRefusal = TopicRefusal(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed."
            )
        elif len(topic.assignments) > ASSIGNMENTS_LIMIT or len(topic.configs) > CHANGES_LIMIT:
            made = TopicRefusal(ErrorCode.INVALID_REQUEST, TOO_MUCH)
        elif counts[topic.name] > 1:
            made = TopicRefusal(ErrorCode.INVALID_REQUEST, "Found multiple entries for this topic.")
        else:
            made = await _created(context, _spec(topic), request.validate_only)
        result = _result(topic.name, made, request.validate_only, context.api_version)
        if context.api_version >= CONFIGS_SINCE and not context.permits(
            Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name
        ):
            result.topic_config_error_code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            result.num_partitions = result.replication_factor = -1
        elif isinstance(made, TopicCreated) and context.api_version >= CONFIGS_SINCE:
            if made.log_config not in described:
                described[made.log_config] = _configs(made.log_config, context.broker.config)
            result.configs = described[made.log_config]
        results.append(result)
    await context.replied(CreateTopicsResponse(topics=results))


async def _created(context: RequestContext, spec: TopicSpec, validate_only: bool) -> TopicCreated | TopicRefusal:
    """Create a topic, unless the client's quota of changes is used up; what is not valid does not count in it."""
    create = context.broker.control.admin.create_topic
    if not validate_only and context.charge is not None and context.charge.limits_mutations:
        valid = await create(spec, validate_only=True)
        if isinstance(valid, TopicRefusal):
            return valid
        partitions = len(valid.topic.partitions)
        refusal = context.charge.mutation_refusal(partitions, strict=context.api_version >= REFUSES_SINCE)
        if refusal is not None:
            return refusal
    return await create(spec, validate_only=validate_only)


def _spec(topic: CreatableTopic) -> TopicSpec:
    return TopicSpec(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        {assignment.partition_index: assignment.broker_ids for assignment in topic.assignments},
        {config.name: config.value for config in topic.configs},
    )


def _result(name: str, made: TopicCreated | TopicRefusal, validate_only: bool, version: int) -> CreatableTopicResult:
    if isinstance(made, TopicRefusal):
        return CreatableTopicResult(name=name, error_code=int(made.error), error_message=made.response_message)
    result = CreatableTopicResult(name=name, error_code=0)
    if not validate_only:
        result.topic_id = made.topic.topic_id
    if version >= CONFIGS_SINCE:
        result.num_partitions = len(made.topic.partitions)
        result.replication_factor = made.topic.replication_factor
    return result


def _configs(log_config: LogConfig, config: BrokerConfig) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
        )
        for entry in describe_topic(log_config, config)
    ]
