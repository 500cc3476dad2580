"""Sends the ISRs that the leaders of this broker propose to the controller (AlterPartition, KIP-497).

One request is in flight at a time, with the proposals of many partitions. Source: Apache Kafka 3.9,
`DefaultAlterPartitionManager`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.cluster.isr import UNKNOWN_BROKER_EPOCH
from ottla.peer.errors import ClientError
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_partition import (
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    BrokerState,
)

if TYPE_CHECKING:
    from ottla.broker.replicas.partition import Partition
    from ottla.cluster.isr import IsrProposal

log = logging.getLogger("ottla.replicas")

#: Most proposals in one request.
PROPOSALS_PER_REQUEST: Final = 1_000
#: Pause before proposals are sent again whose outcome is unknown.
RETRY_MS: Final = 50

Ask = Callable[[list[AlterPartitionRequestTopicData]], Awaitable[AlterPartitionResponse]]
"""Asks the controller. Raises ClientError if there is no answer."""


class IsrProposals:
    """The proposals that wait for the controller's answer: at most one for each partition led here."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._waiting: dict[Partition, IsrProposal] = {}
        self._sending: asyncio.Task[None] | None = None
        self._is_stopped = False

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        """Send a proposal; `Partition.isr_accepted` or `isr_refused` gets the outcome. A newer one replaces it."""
        self._waiting[partition] = proposal
        if not self._is_stopped and (self._sending is None or self._sending.done()):
            self._sending = asyncio.get_running_loop().create_task(self._send())

    async def stop(self) -> None:
        """Send nothing more. The controller takes this broker out of all ISRs when it is gone."""
        self._is_stopped = True
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)

    async def _send(self) -> None:
        while self._waiting:
            sent = dict(list(self._waiting.items())[:PROPOSALS_PER_REQUEST])
            for partition in sent:
                del self._waiting[partition]
            answers = await self._answers(sent)
            again = {
                partition: proposal
                for partition, proposal in sent.items()
                if _is_to_be_repeated(partition, proposal, answers[partition])
            }
            # A newer proposal of the same partition came with a newer leader epoch.
            self._waiting = {**again, **self._waiting}
            if again:
                await asyncio.sleep(RETRY_MS / 1000)  # sleep: until the controller, or another one, is there

    async def _answers(self, sent: dict[Partition, IsrProposal]) -> dict[Partition, _Answer]:
        try:
            response = await self._ask(_topics(sent))
        except ClientError as error:
            log.info("the controller did not answer to %d proposed ISRs: %s", len(sent), error)
            return dict.fromkeys(sent, ErrorCode.REQUEST_TIMED_OUT)
        if response.error_code:
            return dict.fromkeys(sent, response.error_code)
        by_id = _have_ids(sent)
        answers: dict[tuple[UUID | str, int], _Answer] = {
            (topic.topic_id if by_id else topic.topic_name, answer.partition_index): answer
            for topic in response.topics
            for answer in topic.partitions
        }
        return {
            partition: answers.get(
                (partition.topic_id if by_id else partition.topic, partition.index), ErrorCode.REQUEST_TIMED_OUT
            )
            for partition in sent
        }


_Answer = AlterPartitionResponsePartitionData | int
"""What the controller says about one proposal, or the error for the whole request."""


def _topics(proposals: dict[Partition, IsrProposal]) -> list[AlterPartitionRequestTopicData]:
    by_id = _have_ids(proposals)
    topics: dict[str, AlterPartitionRequestTopicData] = {}
    for partition, proposal in proposals.items():
        topic = topics.setdefault(
            partition.topic,
            AlterPartitionRequestTopicData(topic_name=partition.topic, topic_id=partition.topic_id, partitions=[]),
        )
        topic.partitions.append(
            AlterPartitionRequestPartitionData(
                partition_index=partition.index,
                leader_epoch=proposal.leader_epoch,
                new_isr=[] if by_id else list(proposal.isr),
                new_isr_with_epochs=_with_epochs(proposal) if by_id else [],
                partition_epoch=proposal.partition_epoch,
            )
        )
    return list(topics.values())


def _have_ids(partitions: Iterable[Partition]) -> bool:
    """Whether all topics have ids; else the request is one of the versions that name topics, and no broker epochs."""
    return all(partition.topic_id.int for partition in partitions)


def _with_epochs(proposal: IsrProposal) -> list[BrokerState]:
    epochs = proposal.broker_epochs
    return [
        BrokerState(broker_id=replica, broker_epoch=epochs.get(replica, UNKNOWN_BROKER_EPOCH))
        for replica in proposal.isr
    ]


def _is_to_be_repeated(partition: Partition, proposal: IsrProposal, answer: _Answer) -> bool:
    """Give the answer to the partition; return whether the proposal is to be sent again."""
    if isinstance(answer, AlterPartitionResponsePartitionData) and not answer.error_code:
        partition.isr_accepted(proposal, answer.leader_epoch, answer.partition_epoch, tuple(answer.isr))
        return False
    error = answer if isinstance(answer, int) else answer.error_code
    log.info(
        "partition %s-%d: the ISR %s is not accepted: error %d", partition.topic, partition.index, proposal.isr, error
    )
    return partition.isr_refused(proposal, error)
