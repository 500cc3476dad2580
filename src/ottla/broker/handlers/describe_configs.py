"""DescribeConfigs (key 32), versions 0-4: the settings of topics and of this broker (KIP-133).

1 adds where a value comes from and its synonyms (KIP-226); 3 types and documentation (KIP-569); 4 is flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.loggers import logger_levels
from ottla.cluster.configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, TOPIC, node_id
from ottla.cluster.refusal import TopicRefusal
from ottla.cluster.topics import topic_name_problem
from ottla.config.describe import (
    DEFAULT_CONFIG,
    DYNAMIC_BROKER_LOGGER_CONFIG,
    ConfigEntry,
    describe_broker,
    describe_broker_defaults,
    describe_loggers,
    describe_topic,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.server import Broker

MIN_VERSION = 0
MAX_VERSION = 4


def handle(context: RequestContext, request: DescribeConfigsRequest) -> None:
    """Answer for each resource; an unknown one is an error of its own."""
    context.reply(DescribeConfigsResponse(results=[_describe(context, request, asked) for asked in request.resources]))


def _describe(
    context: RequestContext, request: DescribeConfigsRequest, asked: DescribeConfigsResource
) -> DescribeConfigsResult:
    found = _entries(context.broker, asked)
    result = DescribeConfigsResult(
        error_code=0, error_message="", resource_type=asked.resource_type, resource_name=asked.resource_name
    )
    if isinstance(found, TopicRefusal):
        result.error_code = int(found.error)
        result.error_message = found.told
        return result
    keys = frozenset(asked.configuration_keys or ())
    result.configs = [
        _setting(entry, request, context.api_version) for entry in found if not keys or entry.name in keys
    ]
    return result


def _entries(broker: Broker, asked: DescribeConfigsResource) -> list[ConfigEntry] | TopicRefusal:
    if asked.resource_type == TOPIC:
        return _topic_entries(broker, asked.resource_name)
    if asked.resource_type == BROKER:
        return _broker_entries(broker, asked.resource_name)
    if asked.resource_type == CLIENT_METRICS:
        return TopicRefusal(ErrorCode.INVALID_REQUEST, "Config type client-metrics is only supported on KRaft clusters")
    if asked.resource_type == BROKER_LOGGER:
        return _logger_entries(broker, asked.resource_name)
    return TopicRefusal(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {asked.resource_type}")


def _topic_entries(broker: Broker, name: str) -> list[ConfigEntry] | TopicRefusal:
    problem = topic_name_problem(name)
    if problem is not None:
        return TopicRefusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
    if name not in broker.image.topics:
        return TopicRefusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    return describe_topic(broker.control.log_config(name), broker.config)


def _broker_entries(broker: Broker, name: str) -> list[ConfigEntry] | TopicRefusal:
    if not name:
        return describe_broker_defaults(broker.config)
    number = node_id(name)
    if number is None:
        return TopicRefusal(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if number != broker.id:
        return TopicRefusal(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {broker.id} or empty string, but received {name}",
        )
    return describe_broker(broker.config)


def _logger_entries(broker: Broker, name: str) -> list[ConfigEntry] | TopicRefusal:
    if not name:
        return TopicRefusal(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    number = node_id(name)
    if number is None:
        return TopicRefusal(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if number != broker.id:
        return TopicRefusal(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {broker.id} but received {name}"
        )
    return describe_loggers(logger_levels())


def _setting(entry: ConfigEntry, request: DescribeConfigsRequest, version: int) -> DescribeConfigsResourceResult:
    result = DescribeConfigsResourceResult(
        name=entry.name, value=entry.value, read_only=entry.read_only, is_sensitive=entry.is_sensitive
    )
    if version == 0:
        result.is_default = entry.source == DEFAULT_CONFIG
        return result
    result.config_source = entry.source
    result.config_type = entry.type
    if request.include_synonyms:
        result.synonyms = [
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in entry.synonyms
        ]
    if request.include_documentation or entry.source == DYNAMIC_BROKER_LOGGER_CONFIG:
        result.documentation = entry.documentation
    return result
