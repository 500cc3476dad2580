"""Topics: create, delete, add partitions, list, describe."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ottla.client.admin.configs import config_source
from ottla.client.admin.model import BROKER_DEFAULT, ConfigEntry, CreatedTopic, NewPartitions, NewTopic
from ottla.client.admin.outcomes import AdminCalls, Outcomes, check_controller, topic_error
from ottla.client.errors import BrokerError, InvalidArgumentError, TopicExistsError, UnknownTopicError
from ottla.client.model import TopicMetadata
from ottla.peer.arguments import MAX_INT16, MAX_INT32, check_values, mapping, several, several_names, text, whole_number
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

BY_NAME = (1, 5)
BY_ID = (6, 6)
"""Versions of DeleteTopics."""


class TopicAdmin(AdminCalls):
    """Admin calls about topics."""

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> dict[str, CreatedTopic]:
        """Create topics and return when they can be used; with `validate_only`, only validate the request.

        Raises TopicExistsError for an existing name, else BrokerError with the broker's message;
        PartlyFailedError for several topics.
        """
        wanted = {_checked(topic).name: topic for topic in several("topics", topics)}
        outcomes: Outcomes[str, CreatedTopic] = Outcomes(_what("creating", wanted), wanted)

        async def attempt(names: list[str]) -> None:
            answer: CreateTopicsResponse = await self._cluster.request_controller(
                CreateTopicsRequest(
                    topics=[_creatable(wanted[name]) for name in names],
                    timeout_ms=self._cluster.settings.request_timeout_ms,
                    validate_only=validate_only,
                )
            )
            for result in answer.topics:
                self._take_created(result, outcomes)
            outcomes.check_answered(names)

        created = await outcomes.work_off(self._cluster, attempt, timeout_ms)
        if not validate_only:
            what = _what("waiting for", wanted)
            await self._cluster.retry(what, lambda: self._wait_for_leaders(list(wanted)), timeout_ms)
        return created

    def _take_created(self, result: CreatableTopicResult, outcomes: Outcomes[str, CreatedTopic]) -> None:
        name, code = result.name, result.error_code
        check_controller(self._cluster, code)
        # If an earlier attempt's response was lost, that attempt may have created the topic.
        if code == ErrorCode.NONE or (code == ErrorCode.TOPIC_ALREADY_EXISTS and name in outcomes.uncertain):
            outcomes.succeed(name, _created(result))
        else:
            kind = TopicExistsError if code == ErrorCode.TOPIC_ALREADY_EXISTS else BrokerError
            outcomes.fail(name, kind(code, f"topic {name} is not created", result.error_message))

    async def create_topic(
        self,
        name: str,
        partitions: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create one topic and return when it can be used; -1 is the broker's default. See `create_topics`."""
        await self.create_topics([NewTopic(name, partitions, replication_factor, configs=config or {})])

    async def delete_topics(
        self, names: Iterable[str] = (), *, topic_ids: Iterable[uuid.UUID] = (), timeout_ms: int | None = None
    ) -> None:
        """Delete topics, by name or by id.

        Raises UnknownTopicError if one does not exist, PartlyFailedError for several topics.
        """
        named, ids = several_names("names of topics", names), several("ids of topics", topic_ids)
        for each in ids:
            if not isinstance(each, uuid.UUID):
                raise InvalidArgumentError(f"the id of a topic is a UUID, not {each!r:.80}")
        if named and ids:
            raise InvalidArgumentError("delete topics by names or by topic_ids, not by both in one call")
        if ids:
            await self._delete(ids, BY_ID, timeout_ms)
            return
        try:
            await self._delete(named, BY_NAME, timeout_ms)
        finally:
            self._cluster.metadata.expire(named)

    async def _delete(
        self, topics: Sequence[str | uuid.UUID], versions: tuple[int, int], timeout_ms: int | None
    ) -> None:
        outcomes: Outcomes[str | uuid.UUID, None] = Outcomes(_what("deleting", topics), topics)

        async def attempt(pending: list[str | uuid.UUID]) -> None:
            request = DeleteTopicsRequest(
                topic_names=[each for each in pending if isinstance(each, str)],
                topics=[DeleteTopicState(topic_id=each) for each in pending if isinstance(each, uuid.UUID)],
                timeout_ms=self._cluster.settings.request_timeout_ms,
            )
            answer: DeleteTopicsResponse = await self._cluster.request_controller(request, versions=versions)
            for result in answer.responses:
                key: Any = result.name if versions == BY_NAME else result.topic_id
                await self._take_deleted(key, result, outcomes)
            outcomes.check_answered(pending)

        await outcomes.work_off(self._cluster, attempt, timeout_ms)

    async def _take_deleted(self, key: Any, result: DeletableTopicResult, outcomes: Outcomes[Any, None]) -> None:
        check_controller(self._cluster, result.error_code)
        gone = result.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
        if result.error_code == ErrorCode.NONE or (gone and key in outcomes.uncertain):
            outcomes.succeed(key, None)
        elif result.error_code == ErrorCode.UNKNOWN_TOPIC_ID:  # retriable in Kafka's table, but a retry would not help
            outcomes.fail(key, UnknownTopicError(str(key), self._cluster.name))
        else:
            why = result.error_message
            outcomes.fail(key, await topic_error(self._cluster, result.error_code, str(key), "is not deleted", why))

    async def delete_topic(self, name: str) -> None:
        """Delete one topic. Raises UnknownTopicError if it does not exist."""
        await self.delete_topics([name])

    async def create_partitions(
        self,
        partitions: Mapping[str, NewPartitions | int],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Increase topics to a total number of partitions. Keys map to other partitions from then on.

        Raises UnknownTopicError, BrokerError (INVALID_PARTITIONS if it has as many already), PartlyFailedError.
        """
        growing = {name: _growing(name, wanted) for name, wanted in mapping("partitions", partitions).items()}
        outcomes: Outcomes[str, None] = Outcomes(_what("adding partitions to", partitions), partitions)

        async def attempt(names: list[str]) -> None:
            answer: CreatePartitionsResponse = await self._cluster.request_controller(
                CreatePartitionsRequest(
                    topics=[growing[name] for name in names],
                    timeout_ms=self._cluster.settings.request_timeout_ms,
                    validate_only=validate_only,
                )
            )
            for result in answer.results:
                check_controller(self._cluster, result.error_code)
                if result.error_code == ErrorCode.NONE:
                    outcomes.succeed(result.name, None)
                else:
                    what = "does not get more partitions"
                    outcomes.fail(
                        result.name,
                        await topic_error(self._cluster, result.error_code, result.name, what, result.error_message),
                    )
            outcomes.check_answered(names)

        try:
            await outcomes.work_off(self._cluster, attempt, timeout_ms)
        finally:
            self._cluster.metadata.expire(partitions)

    async def list_topics(
        self, pattern: str | None = None, *, list_internal: bool = False, timeout_ms: int | None = None
    ) -> list[str]:
        """Return the names of all topics, sorted, without internal ones unless `list_internal` is set.

        With `pattern`, only names that it matches in full; InvalidArgumentError for an invalid regular expression.
        """
        try:
            wanted = None if pattern is None else re.compile(text("the topic pattern", pattern))
        except re.error as error:
            raise InvalidArgumentError(f"the topic pattern {pattern!r} is not a regular expression: {error}") from error
        metadata = await self._cluster.retry("listing topics", lambda: self._cluster.refresh(None), timeout_ms)
        return sorted(
            name
            for name, topic in metadata.topics.items()
            if (list_internal or not topic.is_internal) and (wanted is None or wanted.fullmatch(name))
        )

    async def describe_topics(self, names: Iterable[str], *, timeout_ms: int | None = None) -> dict[str, TopicMetadata]:
        """Return partitions, leaders and replicas of these topics.

        Raises UnknownTopicError if one does not exist, PartlyFailedError for several topics.
        """
        wanted = several_names("names of topics", names)
        outcomes: Outcomes[str, TopicMetadata] = Outcomes(_what("describing", wanted), wanted)

        async def attempt(pending: list[str]) -> None:
            self._cluster.metadata.expire(pending)
            for name, found in (await self._cluster.each_topic(pending)).items():
                if isinstance(found, BrokerError):
                    outcomes.fail(name, found)
                else:
                    outcomes.succeed(name, found)

        return await outcomes.work_off(self._cluster, attempt, timeout_ms)

    async def _wait_for_leaders(self, names: list[str]) -> None:
        self._cluster.metadata.expire(names)
        for topic in await self._cluster.topics(names):
            if any(partition.leader < 0 for partition in topic.partitions):
                raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic.name} is not usable yet")


def _checked(topic: NewTopic) -> NewTopic:
    """Validate a topic to create. Raises InvalidArgumentError."""
    if not isinstance(topic, NewTopic):
        raise InvalidArgumentError(f"a topic to create is a NewTopic: NewTopic({topic!r}), not {topic!r}")
    check_values(f"topic {text('the name of a topic', topic.name)}", topic.configs)
    whole_number(f"num_partitions of topic {topic.name}", topic.num_partitions, BROKER_DEFAULT, MAX_INT32)
    whole_number(f"replication_factor of topic {topic.name}", topic.replication_factor, BROKER_DEFAULT, MAX_INT16)
    for partition, brokers in mapping("replica_assignments", topic.replica_assignments or {}).items():
        whole_number(f"a partition of topic {topic.name}", partition, 0, MAX_INT32)
        _check_brokers(brokers)
    return topic


def _what(doing: str, topics: Iterable[object]) -> str:
    named = [str(each) for each in topics]
    return f"{doing} topic {named[0]}" if len(named) == 1 else f"{doing} {len(named)} topics"


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))
            for partition, brokers in (topic.replica_assignments or {}).items()
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )


def _created(result: CreatableTopicResult) -> CreatedTopic:
    return CreatedTopic(
        name=result.name,
        topic_id=result.topic_id if result.topic_id.int else None,
        num_partitions=result.num_partitions,
        replication_factor=result.replication_factor,
        configs={
            each.name: ConfigEntry(
                each.name, each.value, config_source(each.config_source), each.read_only, each.is_sensitive
            )
            for each in result.configs or []
        },
    )


def _check_brokers(brokers: Any) -> None:
    for broker in several("brokers", brokers):
        whole_number("the id of a broker", broker, 0, MAX_INT32)


def _growing(name: str, wanted: NewPartitions | int) -> CreatePartitionsTopic:
    text("the name of a topic", name)
    if not isinstance(wanted, NewPartitions):
        wanted = NewPartitions(wanted)
    whole_number(f"the partitions that topic {name} is to have", wanted.total_count, 0, MAX_INT32)
    assignments = None
    for brokers in several("assignments", wanted.assignments or ()):
        _check_brokers(brokers)
    if wanted.assignments is not None:
        assignments = [CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in wanted.assignments]
    return CreatePartitionsTopic(name=name, count=wanted.total_count, assignments=assignments)
