"""DescribeConfigs (key 32), versions 0-4: the settings of topics and of this broker (KIP-133).

1 adds the source of each value and its synonyms (KIP-226); 3 types and documentation (KIP-569); 4 is flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.broker.authorization import Accesses
from ottla.broker.config_changes import accesses_of, logger_levels
from ottla.cluster.acls import CLUSTER_NAME, Operation, ResourceType
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
from ottla.wire.sliced import encoded_array, mapped

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.services import BrokerServices

OPERATION = Operation.DESCRIBE_CONFIGS
#: Most different descriptions cached while a request is answered.
SHARED_DESCRIPTIONS = 256


def accesses(context: RequestContext, request: DescribeConfigsRequest) -> Accesses:
    return accesses_of(OPERATION, request.resources)


def handle(context: RequestContext, request: DescribeConfigsRequest) -> None:
    description = _Description(context, request)
    context.reply_in_slices(DescribeConfigsResponse(results=mapped(request.resources, description.of)))


class _Description:
    """Encodes settings as one request asks for them; topics with equal settings are encoded once."""

    def __init__(self, context: RequestContext, request: DescribeConfigsRequest) -> None:
        self._context = context
        self._request = request
        self._encoded: dict[object, Any] = {}

    def of(self, resource: DescribeConfigsResource) -> DescribeConfigsResult:
        result = DescribeConfigsResult(
            error_code=0, error_message="", resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        found = self._refusal(resource) or self._configs(resource)
        if isinstance(found, TopicRefusal):
            result.error_code = int(found.error)
            result.error_message = found.response_message
        else:
            result.configs = found
        return result

    def _refusal(self, resource: DescribeConfigsResource) -> TopicRefusal | None:
        context = self._context
        if resource.resource_type == TOPIC:
            if not context.permits(OPERATION, ResourceType.TOPIC, resource.resource_name):
                return TopicRefusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "")
        elif not context.permits(OPERATION, ResourceType.CLUSTER, CLUSTER_NAME):
            return TopicRefusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "")
        return None

    def _configs(self, resource: DescribeConfigsResource) -> Any | TopicRefusal:
        broker, version = self._context.broker, self._context.api_version
        keys = frozenset(resource.configuration_keys or ())
        known = broker.image.topics.get(resource.resource_name) if resource.resource_type == TOPIC else None
        same = resource.resource_name if known is None else frozenset(known.configs.items())
        key = (resource.resource_type, known is None, same, keys)
        encoded = self._encoded.get(key)
        if encoded is None:
            found = _entries(broker, resource)
            if isinstance(found, TopicRefusal):
                return found
            settings = [_setting(entry, self._request, version) for entry in found if not keys or entry.name in keys]
            encoded = encoded_array(DescribeConfigsResponse, "configs", settings, version)
            if len(self._encoded) >= SHARED_DESCRIPTIONS:
                self._encoded.clear()
            self._encoded[key] = encoded
        return encoded


def _entries(broker: BrokerServices, resource: DescribeConfigsResource) -> list[DescribedConfig] | TopicRefusal:
    if resource.resource_type == TOPIC:
        return _topic_entries(broker, resource.resource_name)
    if resource.resource_type == BROKER:
        return _broker_entries(broker, resource.resource_name)
    if resource.resource_type == CLIENT_METRICS:
        return TopicRefusal(ErrorCode.INVALID_REQUEST, "Config type client-metrics is only supported on KRaft clusters")
    if resource.resource_type == BROKER_LOGGER:
        return _logger_entries(broker, resource.resource_name)
    return TopicRefusal(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}")


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
    return _other_broker(broker, name, " or empty string,") or describe_broker(broker.config)


def _logger_entries(broker: BrokerServices, name: str) -> list[DescribedConfig] | TopicRefusal:
    if not name:
        return TopicRefusal(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    return _other_broker(broker, name, "") or describe_loggers(logger_levels())


def _other_broker(broker: BrokerServices, name: str, or_what: str) -> TopicRefusal | None:
    """The refusal of a broker that is not this one."""
    number = node_id(name)
    if number is None:
        return TopicRefusal(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if number == broker.id:
        return None
    problem = f"Unexpected broker id, expected {broker.id}{or_what} but received {name}"
    return TopicRefusal(ErrorCode.INVALID_REQUEST, problem)


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
