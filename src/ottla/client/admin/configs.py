"""Configs of topics, brokers and brokers' loggers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ottla.client.admin.model import ConfigEntry, ConfigOperation, ConfigResource, ConfigSynonym, ResourceType
from ottla.client.admin.outcomes import AdminCalls, Outcomes, no_such_broker, topic_error
from ottla.client.errors import BrokerError, ClientError, InvalidArgumentError
from ottla.peer.arguments import check_values, mapping, one_of, several
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import alter_configs, incremental_alter_configs
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from ottla.wire.schema import Message

SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
}
TYPES = {
    1: "BOOLEAN", 2: "STRING", 3: "INT", 4: "SHORT", 5: "LONG", 6: "DOUBLE", 7: "LIST", 8: "CLASS", 9: "PASSWORD",
}  # fmt: skip
OPERATIONS = {"set": 0, "delete": 1, "append": 2, "subtract": 3}

Changes = Mapping[str, str | None] | Iterable[ConfigOperation]
"""Values by name, None to restore the default; or operations, which can also append to and subtract from lists."""


def config_source(code: int) -> str:
    """Return Kafka's name of a config source."""
    return SOURCES.get(code, "UNKNOWN")


class ConfigAdmin(AdminCalls):
    """Admin calls about configs."""

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Return each resource's configs, by name. Raises UnknownTopicError, PartlyFailedError for several of them."""
        outcomes: Outcomes[ConfigResource, dict[str, ConfigEntry]] = Outcomes(
            "describing settings", [_resource(each) for each in several("resources", resources)]
        )

        def request(pending: list[ConfigResource]) -> Message:
            return DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(resource_type=each.type, resource_name=each.name, configuration_keys=None)
                    for each in pending
                ],
                include_synonyms=include_synonyms,
                include_documentation=include_documentation,
            )

        async def take(answer: DescribeConfigsResponse) -> None:
            for result in answer.results:
                resource = ConfigResource(ResourceType(result.resource_type), result.resource_name)
                if result.error_code == ErrorCode.NONE:
                    outcomes.succeed(resource, {each.name: config_entry(each) for each in result.configs})
                else:
                    what = "settings cannot be described"
                    outcomes.fail(resource, await self._error(resource, result.error_code, what, result.error_message))

        return await self._ask_each(outcomes, request, take, timeout_ms)

    async def incremental_alter_configs(
        self,
        configs: Mapping[ConfigResource, Changes],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Change some configs, and leave the others (KIP-339; brokers from Apache Kafka 2.3 on).

        Raises BrokerError with the broker's message (INVALID_CONFIG), UnknownTopicError, PartlyFailedError.
        """
        wanted = mapping("changes of settings", configs)
        changes = {_resource(resource): list(_operations(each)) for resource, each in wanted.items()}

        def request(pending: list[ConfigResource]) -> Message:
            return incremental_alter_configs.IncrementalAlterConfigsRequest(
                resources=[
                    incremental_alter_configs.AlterConfigsResource(
                        resource_type=each.type, resource_name=each.name, configs=changes[each]
                    )
                    for each in pending
                ],
                validate_only=validate_only,
            )

        await self._alter(configs, request, timeout_ms)

    async def alter_configs(
        self,
        configs: Mapping[ConfigResource, Mapping[str, str]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Replace all configs of each resource: those not given are reset to their defaults.

        For brokers before Apache Kafka 2.3; with newer ones use `incremental_alter_configs`. Raises the same errors.
        """
        for resource, values in mapping("settings", configs).items():
            check_values(f"{_resource(resource)}", values)

        def request(pending: list[ConfigResource]) -> Message:
            return alter_configs.AlterConfigsRequest(
                resources=[
                    alter_configs.AlterConfigsResource(
                        resource_type=each.type,
                        resource_name=each.name,
                        configs=[
                            alter_configs.AlterableConfig(name=name, value=value)
                            for name, value in configs[each].items()
                        ],
                    )
                    for each in pending
                ],
                validate_only=validate_only,
            )

        await self._alter(configs, request, timeout_ms)

    async def _alter(
        self,
        resources: Iterable[ConfigResource],
        request: Callable[[list[ConfigResource]], Message],
        timeout_ms: int | None,
    ) -> None:
        outcomes: Outcomes[ConfigResource, None] = Outcomes("changing settings", resources)

        async def take(answer: Any) -> None:
            for result in answer.responses:
                resource = ConfigResource(ResourceType(result.resource_type), result.resource_name)
                if result.error_code == ErrorCode.NONE:
                    outcomes.succeed(resource, None)
                else:
                    what = "settings are not changed"
                    outcomes.fail(resource, await self._error(resource, result.error_code, what, result.error_message))

        await self._ask_each(outcomes, request, take, timeout_ms)

    async def _ask_each(
        self,
        outcomes: Outcomes[ConfigResource, Any],
        request: Callable[[list[ConfigResource]], Message],
        take: Callable[[Any], Any],
        timeout_ms: int | None,
    ) -> dict[ConfigResource, Any]:
        """Ask the broker that a resource names; any broker for topics and for defaults of all brokers."""

        async def ask(node: int | None, pending: list[ConfigResource]) -> None:
            if node is None:
                answer = await self._cluster.request_any(request(pending))
            elif node in self._cluster.metadata.nodes:
                answer = await self._cluster.request(node, request(pending))
            else:
                raise no_such_broker(self._cluster, node)
            await take(answer)
            outcomes.check_answered(pending)

        async def attempt(pending: list[ConfigResource]) -> None:
            by_node: dict[int | None, list[ConfigResource]] = {}
            for each in pending:
                by_node.setdefault(each.node_id, []).append(each)
            if by_node.keys() - {None}:
                await self._cluster.refresh([])  # brokers are added, removed, and change their addresses
            await outcomes.ask_each(by_node, ask)

        return await outcomes.work_off(self._cluster, attempt, timeout_ms)

    async def _error(self, resource: ConfigResource, code: int, what: str, detail: str | None) -> ClientError:
        if resource.type == ResourceType.TOPIC and code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return await topic_error(self._cluster, code, resource.name, f"its {what}", detail)
        return BrokerError(code, f"{resource}: its {what}", detail or None)


def config_entry(result: DescribeConfigsResourceResult) -> ConfigEntry:
    """A config as a broker describes it."""
    return ConfigEntry(
        name=result.name,
        value=result.value,
        source=config_source(result.config_source),
        is_read_only=result.read_only,
        is_sensitive=result.is_sensitive,
        synonyms=tuple(ConfigSynonym(each.name, each.value, config_source(each.source)) for each in result.synonyms),
        type=TYPES.get(result.config_type, "UNKNOWN"),
        documentation=result.documentation,
    )


def _resource(value: Any) -> ConfigResource:
    if not isinstance(value, ConfigResource):
        raise InvalidArgumentError(
            f"a resource is a ConfigResource (ConfigResource.topic(name), ConfigResource.broker(id)), not {value!r:.80}"
        )
    return value


def _operations(changes: Changes) -> Iterable[incremental_alter_configs.AlterableConfig]:
    if isinstance(changes, Mapping):
        changes = [
            ConfigOperation("delete" if value is None else "set", name, value) for name, value in changes.items()
        ]
    change: Any
    for change in several("changes of settings", changes):
        if not isinstance(change, tuple | list) or len(change) != len(ConfigOperation._fields):
            raise InvalidArgumentError(f"a change is a ConfigOperation(operation, name, value), not {change!r:.80}")
        operation, name, value = change
        one_of(f"the operation for {name!r:.80}", operation, OPERATIONS)
        check_values("the change", {name: value})
        yield incremental_alter_configs.AlterableConfig(name=name, config_operation=OPERATIONS[operation], value=value)
