"""Transactions, as their coordinators have them, and the abort of one that hangs in a partition."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from ottla.client.admin.model import AbortTransactionSpec, TransactionDescription, TransactionListing
from ottla.client.admin.outcomes import AdminCalls, Outcomes
from ottla.client.coordinator import TransactionalIdCoordinator
from ottla.client.errors import BrokerError, ClientError, InvalidArgumentError
from ottla.client.model import Node, TopicPartition
from ottla.peer import arguments
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTransactionState,
)
from ottla.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

WITH_DURATION = (1, 1)
"""Versions of ListTransactions that filter by how long transactions are open (KIP-994)."""
ANY_DURATION = -1
MOST_EPOCH = (1 << 15) - 1
MOST_COORDINATOR_EPOCH = (1 << 31) - 1


class TransactionAdmin(AdminCalls):
    """Admin calls about transactions."""

    async def list_transactions(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        duration_ms: int = ANY_DURATION,
        timeout_ms: int | None = None,
    ) -> list[TransactionListing]:
        """Return the transactional ids of all coordinators, sorted (KIP-664).

        If given, those in `states` ("Ongoing", …), of `producer_ids`, whose transaction began before `duration_ms`.
        """
        request = ListTransactionsRequest(
            state_filters=arguments.several_names("states", states),
            producer_id_filters=[_producer_id(each) for each in arguments.several("producer ids", producer_ids)],
            duration_filter=arguments.whole_number("duration_ms", duration_ms, ANY_DURATION),
        )
        versions = WITH_DURATION if request.duration_filter != ANY_DURATION else None

        async def list_on(node: Node) -> list[TransactionListing]:
            answer: ListTransactionsResponse = await self._cluster.request(node.node_id, request, versions=versions)
            if answer.error_code != ErrorCode.NONE:
                raise BrokerError(answer.error_code, f"{node} cannot list its transactions")
            if answer.unknown_state_filters:
                raise InvalidArgumentError(f"{node} knows no state {', '.join(answer.unknown_state_filters)}")
            return [
                TransactionListing(each.transactional_id, each.producer_id, each.transaction_state, node.node_id)
                for each in answer.transaction_states
            ]

        async def attempt() -> list[TransactionListing]:
            nodes = (await self._cluster.refresh([])).nodes
            found = await asyncio.gather(*map(list_on, list(nodes.values())))
            return sorted(each for listed in found for each in listed)

        return await self._cluster.retry("listing transactions", attempt, timeout_ms)

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> dict[str, TransactionDescription]:
        """Return state, producer, timeout and partitions, by transactional id (KIP-664).

        Raises BrokerError (TRANSACTIONAL_ID_NOT_FOUND), PartlyFailedError for several ids.
        """
        wanted = arguments.several_names("transactional ids", transactional_ids)
        outcomes: Outcomes[str, TransactionDescription] = Outcomes("describing transactions", wanted)
        coordinators = {each: TransactionalIdCoordinator(self._cluster, each) for each in wanted}

        async def describe(name: str) -> None:
            coordinator = coordinators[name]
            request = DescribeTransactionsRequest(transactional_ids=[name])
            try:
                node = await coordinator.node()
                answer: DescribeTransactionsResponse = await coordinator.ask(request)
                for state in answer.transaction_states:
                    coordinator.check(state.error_code, "it cannot be described")
                    outcomes.succeed(name, _described(state, node))
            except ClientError as error:
                outcomes.fail(name, error)

        async def attempt(pending: list[str]) -> None:
            await asyncio.gather(*map(describe, pending))
            outcomes.check_answered(pending)

        return await outcomes.work_off(self._cluster, attempt, timeout_ms)

    async def abort_transaction(self, spec: AbortTransactionSpec, *, timeout_ms: int | None = None) -> None:
        """Abort a transaction in one partition: its leader writes the marker, and the coordinator is not asked.

        It is for a transaction that hangs; one that its coordinator still has open may commit in other partitions.
        Raises BrokerError (INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED), UnknownTopicError.
        """
        if not isinstance(spec, AbortTransactionSpec):
            raise InvalidArgumentError(f"a transaction to abort is an AbortTransactionSpec, not {spec!r:.80}")
        partition = arguments.partition(spec.partition)
        marker = WritableTxnMarker(
            producer_id=_producer_id(spec.producer_id),
            producer_epoch=arguments.whole_number("a producer's epoch", spec.producer_epoch, most=MOST_EPOCH),
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
            coordinator_epoch=arguments.whole_number(
                "a coordinator's epoch", spec.coordinator_epoch, most=MOST_COORDINATOR_EPOCH
            ),
        )

        async def ask(leader: int, pending: list[TopicPartition]) -> Any:
            answer: WriteTxnMarkersResponse = await self._cluster.request(
                leader, WriteTxnMarkersRequest(markers=[marker])
            )
            if not answer.markers:
                raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {leader} leaves the transaction out")
            return answer.markers[0]

        refusal = f"the transaction of producer {spec.producer_id} in {{}} is not aborted".format
        await self._ask_leaders("aborting a transaction", [partition], ask, lambda result: None, refusal, timeout_ms)


def _producer_id(value: Any) -> int:
    return arguments.whole_number("a producer id", value)


def _described(state: DescribeTransactionsResponseTransactionState, coordinator: Node) -> TransactionDescription:
    started_ms = state.transaction_start_time_ms
    return TransactionDescription(
        transactional_id=state.transactional_id,
        coordinator_id=coordinator.node_id,
        state=state.transaction_state,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        transaction_timeout_ms=state.transaction_timeout_ms,
        transaction_start_time_ms=started_ms if started_ms >= 0 else None,
        partitions=tuple(
            sorted(TopicPartition(topic.topic, each) for topic in state.topics for each in topic.partitions)
        ),
    )
