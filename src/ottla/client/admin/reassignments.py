"""Replicas of partitions that move to other brokers (KIP-455), and leaders that are elected (KIP-460)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ottla.client.admin.model import PartitionReassignment
from ottla.client.admin.outcomes import AdminCalls, Outcomes, check_controller
from ottla.client.errors import BrokerError, PartlyFailedError
from ottla.client.model import TopicPartition, by_topic
from ottla.peer import arguments
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)

ELECTION_TYPES = {"preferred": 0, "unclean": 1}
WITH_ELECTION_TYPE = (1, 2)
"""Versions of ElectLeaders that know more than preferred leaders."""


class ReassignmentAdmin(AdminCalls):
    """Admin calls about where replicas are and which of them leads."""

    async def alter_partition_reassignments(
        self, reassignments: Mapping[TopicPartition, Sequence[int] | None], *, timeout_ms: int | None = None
    ) -> None:
        """Begin to move partitions to these brokers, the preferred leader first; None cancels a move under way.

        A move that is under way is replaced. It continues after this has returned: `list_partition_reassignments` says
        what is left. Raises BrokerError (INVALID_REPLICA_ASSIGNMENT, NO_REASSIGNMENT_IN_PROGRESS for cancelling without
        a move), PartlyFailedError for several partitions.
        """
        wanted = {
            each: _replicas(each, brokers)
            for each, brokers in arguments.by_partition("reassignments", reassignments).items()
        }
        outcomes: Outcomes[TopicPartition, None] = Outcomes("moving partitions", wanted)

        async def attempt(pending: list[TopicPartition]) -> None:
            moves = {
                each: ReassignablePartition(partition_index=each.partition, replicas=wanted[each]) for each in pending
            }
            answer: AlterPartitionReassignmentsResponse = await self._cluster.request_controller(
                AlterPartitionReassignmentsRequest(
                    timeout_ms=self._cluster.settings.request_timeout_ms,
                    topics=[ReassignableTopic(name=name, partitions=each) for name, each in by_topic(moves).items()],
                )
            )
            self._check(answer.error_code, "partitions are not moved", answer.error_message)
            for topic in answer.responses:
                for result in topic.partitions:
                    key, code = TopicPartition(topic.name, result.partition_index), result.error_code
                    # An attempt whose answer was lost may have cancelled it.
                    is_done = code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS and key in outcomes.uncertain
                    if code == ErrorCode.NONE or is_done:
                        outcomes.succeed(key, None)
                    else:
                        outcomes.fail(key, _final(code, f"partition {key} is not moved", result.error_message))
            outcomes.check_answered(pending)

        await outcomes.work_off(self._cluster, attempt, timeout_ms)

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Return the moves that are under way, of these partitions or (None) of all; raises BrokerError."""
        topics = None
        if partitions is not None:
            indexes = {each: each.partition for each in arguments.partitions(partitions)}
            topics = [
                ListPartitionReassignmentsTopics(name=name, partition_indexes=each)
                for name, each in by_topic(indexes).items()
            ]

        async def attempt() -> ListPartitionReassignmentsResponse:
            request = ListPartitionReassignmentsRequest(
                timeout_ms=self._cluster.settings.request_timeout_ms, topics=topics
            )
            answer: ListPartitionReassignmentsResponse = await self._cluster.request_controller(request)
            self._check(answer.error_code, "the moves of partitions cannot be listed", answer.error_message)
            return answer

        answer = await self._cluster.retry("listing the moves of partitions", attempt, timeout_ms)
        return {
            TopicPartition(topic.name, each.partition_index): PartitionReassignment(
                tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
            )
            for topic in answer.topics
            for each in topic.partitions
        }

    async def elect_leaders(
        self,
        election_type: str = "preferred",
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, bool]:
        """Elect leaders of these partitions, or (None) of all: the preferred replicas, or for "unclean" any live ones.

        An unclean election is held only for partitions without a leader, and loses the records that the chosen replica
        lacks. Returns whether a new leader was elected; False where that was not needed. Raises BrokerError
        (PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION), PartlyFailedError
        for several partitions.
        """
        kind = ELECTION_TYPES[arguments.one_of("the type of election", election_type, ELECTION_TYPES)]
        topics = None
        if partitions is not None:
            indexes = {each: each.partition for each in arguments.partitions(partitions)}
            topics = [TopicPartitions(topic=name, partitions=each) for name, each in by_topic(indexes).items()]
        versions = WITH_ELECTION_TYPE if kind else None

        async def attempt() -> ElectLeadersResponse:
            request = ElectLeadersRequest(
                election_type=kind, topic_partitions=topics, timeout_ms=self._cluster.settings.request_timeout_ms
            )
            answer: ElectLeadersResponse = await self._cluster.request_controller(request, versions=versions)
            self._check(answer.error_code, "no leaders are elected", None)
            for topic in answer.replica_election_results:
                for result in topic.partition_result:
                    check_controller(self._cluster, result.error_code)
            return answer

        answer = await self._cluster.retry("electing leaders", attempt, timeout_ms)
        self._cluster.metadata.expire()
        return _elected(answer)

    def _check(self, code: int, what: str, detail: str | None) -> None:
        """Raise the error of a whole request, if it has one."""
        check_controller(self._cluster, code)
        if code != ErrorCode.NONE:
            raise BrokerError(code, what, detail or None)


def _elected(answer: ElectLeadersResponse) -> dict[TopicPartition, bool]:
    """Whether a leader was elected, by partition. Raises BrokerError, PartlyFailedError."""
    values, errors = {}, {}
    for topic in answer.replica_election_results:
        for result in topic.partition_result:
            key, code = TopicPartition(topic.topic, result.partition_id), result.error_code
            if code in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
                values[key] = code == ErrorCode.NONE
            else:
                errors[key] = _final(code, f"partition {key} gets no other leader", result.error_message)
    if len(errors) == 1 and not values:
        raise next(iter(errors.values()))
    if errors:
        raise PartlyFailedError("electing leaders", errors, values)
    return values


def _final(code: int, what: str, detail: str | None) -> BrokerError:
    """The error of a partition, which as in Java's Admin is not tried again."""
    error = BrokerError(code, what, detail or None)
    error.retriable = False
    return error


def _replicas(partition: TopicPartition, brokers: Any) -> list[int] | None:
    """The brokers that are to have replicas; None stays. What the controller checks is left to it."""
    if brokers is None:
        return None
    what, most = f"the id of a broker for {partition}", arguments.MAX_INT32
    return [arguments.whole_number(what, each, -most, most) for each in arguments.several("brokers", brokers)]
