"""Verification of transactional writes: whether the coordinator has the partition in the transaction (KIP-890, part 1).

Source: Apache Kafka 3.9, `AddPartitionsToTxnManager`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.env.futures import settle
from ottla.peer.errors import KNOWN_CODES
from ottla.txn.events import PartitionsResult, VerifyPartitionsInTxn
from ottla.txn.metadata import TopicPartition
from ottla.wire.apis import ApiKey
from ottla.wire.broker_requests import BrokerOutcome, BrokerRequest
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from ottla.broker.coordinators.shard import BrokerRequests
    from ottla.broker.coordinators.shard_router import ShardRouter
    from ottla.txn.shard import TransactionShard

VERSIONS: Final = (4, 5)
"""Those in which a broker can ask."""


class TransactionVerifier:
    """Asks the coordinator of a transaction, this broker or another one; `submit` is that of this broker."""

    def __init__(
        self,
        broker_id: int,
        router: ShardRouter[TransactionShard],
        submit: Callable[[VerifyPartitionsInTxn], None],
        requests: BrokerRequests,
    ) -> None:
        self._broker_id = broker_id
        self._router = router
        self._submit = submit
        self._requests = requests

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        knows_abortable: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        """The error of each partition, NONE if it may be written to in the producer's transaction.

        `knows_abortable` says that the client understands TRANSACTION_ABORTABLE.
        """
        leader = self._router.leader_of(transactional_id)
        if leader is None:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if leader.id == self._broker_id:
            found = await self._ask_here(transactional_id, producer_id, producer_epoch, partitions)
        else:
            found = await self._ask(leader.id, transactional_id, producer_id, producer_epoch, partitions)
        return {each: _for_client(error, knows_abortable) for each, error in found.items()}

    async def _ask_here(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        answered: asyncio.Future[PartitionsResult] = asyncio.get_running_loop().create_future()
        answer = partial(settle, answered)
        self._submit(VerifyPartitionsInTxn(answer, transactional_id, producer_id, producer_epoch, partitions))
        return dict((await answered).errors)

    async def _ask(
        self,
        coordinator: int,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
    ) -> dict[TopicPartition, int]:
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            verify_only=True,
            topics=[AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()],
        )
        payload = AddPartitionsToTxnRequest(transactions=[transaction])
        answered: asyncio.Future[BrokerOutcome] = asyncio.get_running_loop().create_future()
        request = BrokerRequest(ApiKey.ADD_PARTITIONS_TO_TXN, coordinator, payload, None, VERSIONS)
        self._requests.send(request, partial(settle, answered))
        return _errors_of(await answered, partitions)


def _errors_of(outcome: BrokerOutcome, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    if outcome.error is ErrorCode.UNSUPPORTED_VERSION:
        # The coordinator is older than verification, which is left out then.
        return dict.fromkeys(partitions, ErrorCode.NONE)
    response = outcome.response
    if not isinstance(response, AddPartitionsToTxnResponse):
        return dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)
    if response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return dict.fromkeys(partitions, ErrorCode.INVALID_TXN_STATE)
    missing = response.error_code or ErrorCode.UNKNOWN_SERVER_ERROR
    found = {
        (topic.name, partition.partition_index): partition.partition_error_code
        for transaction in response.results_by_transaction
        for topic in transaction.topic_results
        for partition in topic.results_by_partition
    }
    return {each: found.get(each, missing) for each in partitions}


def _for_client(code: int, knows_abortable: bool) -> ErrorCode:
    error = KNOWN_CODES.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return error
