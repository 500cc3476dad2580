"""DescribeConfigs (key 32), versions 0-4: the settings of topics and of this broker (KIP-133).

1 adds the source of each value and its synonyms (KIP-226); 3 types and documentation (KIP-569); 4 is flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.broker.authorization import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.config_changes import accesses_of
from ottla.broker.loggers import logger_levels
from ottla.cluster.configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, TOPIC, node_id
from ottla.cluster.refusal import TopicRefusal
from ottla.cluster.topics import topic_name_problem
from ottla.config.describe import (
    DEFAULT_CONFIG,
    DYNAMIC_BROKER_LOGGER_CONFIG,
    DescribedConfig,
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
from ottla.wire.stepwise import encoded_array, mapped

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.broker.authorization import Access
    from ottla.broker.context import RequestContext
    from ottla.broker.services import BrokerServices

MIN_VERSION = 0
MAX_VERSION = 4

OPERATION = Operation.DESCRIBE_CONFIGS
#: Most different descriptions cached while a request is answered.
SHARED_DESCRIPTIONS = 256


def accesses(context: RequestContext, request: DescribeConfigsRequest) -> Iterable[Access]:
    """DESCRIBE_CONFIGS of each topic, or of the cluster for brokers."""
    return accesses_of(OPERATION, request.resources)


def handle(context: RequestContext, request: DescribeConfigsRequest) -> None:
    """Describe each resource; an unknown one has its own error."""
    description = _Description(context, request)
    context.reply_in_slices(DescribeConfigsResponse(results=mapped(request.resources, description.of)))


class _Description:
    """Encodes settings as one request asks for them; topics with equal settings are encoded once."""

    def __init__(self, context: RequestContext, request: DescribeConfigsRequest) -> None:
        self._context = context
        self._request = request
        self._encoded: dict[object, Any] = {}

    def of(self, asked: DescribeConfigsResource) -> DescribeConfigsResult:
        """The settings of one resource."""
        result = DescribeConfigsResult(
            error_code=0, error_message="", resource_type=asked.resource_type, resource_name=asked.resource_name
        )
        found = self._refusal(asked) or self._configs(asked)
        if isinstance(found, TopicRefusal):
            result.error_code = int(found.error)
            result.error_message = found.response_message
        else:
            result.configs = found
        return result

    def _refusal(self, asked: DescribeConfigsResource) -> TopicRefusal | None:
        context = self._context
        if asked.resource_type == TOPIC:
            if not context.permits(OPERATION, ResourceType.TOPIC, asked.resource_name):
                return TopicRefusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "")
        elif not context.permits(OPERATION, ResourceType.CLUSTER, CLUSTER_NAME):
            return TopicRefusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "")
        return None

    def _configs(self, asked: DescribeConfigsResource) -> Any | TopicRefusal:
        """The encoded settings, or the refusal."""
        broker, version = self._context.broker, self._context.api_version
        keys = frozenset(asked.configuration_keys or ())
        known = broker.image.topics.get(asked.resource_name) if asked.resource_type == TOPIC else None
        same = asked.resource_name if known is None else frozenset(known.configs.items())
        key = (asked.resource_type, known is None, same, keys)
        encoded = self._encoded.get(key)
        if encoded is None:
            found = _entries(broker, asked)
            if isinstance(found, TopicRefusal):
                return found
            settings = [_setting(entry, self._request, version) for entry in found if not keys or entry.name in keys]
            encoded = encoded_array(DescribeConfigsResponse, "configs", settings, version)
            if len(self._encoded) >= SHARED_DESCRIPTIONS:
                self._encoded.clear()
            self._encoded[key] = encoded
        return encoded


def _entries(broker: BrokerServices, asked: DescribeConfigsResource) -> list[DescribedConfig] | TopicRefusal:
    if asked.resource_type == TOPIC:
        return _topic_entries(broker, asked.resource_name)
    if asked.resource_type == BROKER:
        return _broker_entries(broker, asked.resource_name)
    if asked.resource_type == CLIENT_METRICS:
        return TopicRefusal(ErrorCode.INVALID_REQUEST, "Config type client-metrics is only supported on KRaft clusters")
    if asked.resource_type == BROKER_LOGGER:
        return _logger_entries(broker, asked.resource_name)
    return TopicRefusal(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {asked.resource_type}")


def _topic_entries(broker: BrokerServices, name: str) -> list[DescribedConfig] | TopicRefusal:
    problem = topic_name_problem(name)
    if problem is not None:
        return TopicRefusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
    if name not in broker.image.topics:
        return TopicRefusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    return describe_topic(broker.control.topic_configs.log_config(name), broker.config)


def _broker_entries(broker: BrokerServices, name: str) -> list[DescribedConfig] | TopicRefusal:
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


def _logger_entries(broker: BrokerServices, name: str) -> list[DescribedConfig] | TopicRefusal:
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


def _setting(entry: DescribedConfig, request: DescribeConfigsRequest, version: int) -> DescribeConfigsResourceResult:
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
