"""Topics: create, delete, list, describe."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ottla.client.cluster import Cluster
from ottla.client.errors import BrokerError, InvalidArgumentError, TopicExistsError, UnknownTopicError
from ottla.client.model import TopicMetadata
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

BROKER_DEFAULT = -1


class Admin:
    """What an administrator asks of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def create_topic(
        self,
        name: str,
        partitions: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic and return when it can be used; -1 stands for the broker's default.

        TopicExistsError where there is one of that name, BrokerError with the broker's words otherwise.
        """
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items()],
        )
        timeout_ms = self._cluster.settings.request_timeout_ms
        request = CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)
        attempts = 0

        async def attempt() -> None:
            nonlocal attempts
            attempts += 1
            answer: CreateTopicsResponse = await self._cluster.request_controller(request)
            for result in answer.topics:
                self._check_controller(result.error_code)
                if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
                    if attempts > 1:  # an earlier attempt, whose answer was lost, did it
                        return
                    raise TopicExistsError(result.error_code, f"topic {name} is not created", result.error_message)
                if result.error_code != ErrorCode.NONE:
                    raise BrokerError(result.error_code, f"topic {name} is not created", result.error_message)

        await self._cluster.retry(f"creating topic {name}", attempt)
        await self._cluster.retry(f"waiting for topic {name}", lambda: self._wait_for_leaders(name))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic; UnknownTopicError where there is none."""
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=self._cluster.settings.request_timeout_ms)
        attempts = 0

        async def attempt() -> None:
            nonlocal attempts
            attempts += 1
            answer: DeleteTopicsResponse = await self._cluster.request_controller(request)
            for result in answer.responses:
                self._check_controller(result.error_code)
                if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    if attempts > 1:
                        return
                    raise UnknownTopicError(name, self._cluster.name)
                if result.error_code != ErrorCode.NONE:
                    raise BrokerError(result.error_code, f"topic {name} is not deleted", result.error_message)

        await self._cluster.retry(f"deleting topic {name}", attempt)
        self._cluster.metadata.expire([name])

    async def list_topics(self, pattern: str | None = None) -> list[str]:
        """The names of all topics but internal ones, sorted; with `pattern`, those that it matches as a whole.

        InvalidArgumentError where the pattern is no regular expression.
        """
        try:
            wanted = re.compile(pattern) if pattern is not None else None
        except re.error as error:
            raise InvalidArgumentError(f"the topic pattern {pattern!r} is no regular expression: {error}") from error
        metadata = await self._cluster.retry("listing topics", lambda: self._cluster.refresh(None))
        return sorted(
            name
            for name, topic in metadata.topics.items()
            if not topic.is_internal and (wanted is None or wanted.fullmatch(name))
        )

    async def describe_topics(self, names: Sequence[str]) -> dict[str, TopicMetadata]:
        """Partitions, leaders and replicas of these topics; UnknownTopicError for one that is not there."""
        self._cluster.metadata.expire(names)
        found = await self._cluster.retry("describing topics", lambda: self._cluster.topics(names))
        return {topic.name: topic for topic in found}

    async def _wait_for_leaders(self, name: str) -> None:
        self._cluster.metadata.expire([name])
        (topic,) = await self._cluster.topics([name])
        if any(partition.leader < 0 for partition in topic.partitions):
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name} is not usable yet")

    def _check_controller(self, code: int) -> None:
        if code == ErrorCode.NOT_CONTROLLER:
            self._cluster.metadata.controller_id = -1
            raise BrokerError(code, "the controller has moved")
