"""Sends the ISRs that the leaders of this broker propose to the controller (AlterPartition, KIP-497).

One request is in flight at a time, with the proposals of many partitions. Source: Apache Kafka 3.9,
`DefaultAlterPartitionManager`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
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
    from ottla.broker.slices import LoopSlices
    from ottla.cluster.isr import IsrProposal

log = logging.getLogger("ottla.replicas")

#: Most proposals in one request.
PROPOSALS_PER_REQUEST: Final = 500
#: Partitions named in a message about refused proposals.
MOST_NAMES: Final = 5
#: Pause before proposals are sent again whose outcome is unknown.
RETRY_MS: Final = 50

Ask = Callable[[list[AlterPartitionRequestTopicData]], Awaitable[AlterPartitionResponse]]
"""Asks the controller. Raises ClientError if it does not answer."""


class IsrProposals:
    """The proposals that wait for the controller's answer: at most one for each partition led here."""

    def __init__(self, ask: Ask, slices: LoopSlices) -> None:
        self._ask = ask
        self._slices = slices
        self._waiting: dict[Partition, IsrProposal] = {}
        #: The last refusal of each proposal that is being repeated.
        self._repeated: dict[Partition, int] = {}
        #: Why the controller did not answer the last time; logged where it is not the same again.
        self._trouble = ""
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
            sent = dict(islice(self._waiting.items(), PROPOSALS_PER_REQUEST))
            for partition in sent:
                del self._waiting[partition]
            answers = await self._answers(sent)
            refused: dict[Partition, int] = {}
            for partition, proposal in sent.items():
                await self._slices.point()
                error = _give(partition, proposal, answers[partition])
                if error:
                    refused[partition] = error
            again = {
                partition: sent[partition]
                for partition, error in refused.items()
                if partition.isr_refused(sent[partition], error)
            }
            self._report(sent, refused, again)
            # A newer proposal of the same partition came with a newer leader epoch.
            self._waiting = {**again, **self._waiting}
            if again:
                await asyncio.sleep(RETRY_MS / 1000)  # sleep: until the controller, or another one, is there

    def _report(
        self, sent: Iterable[Partition], refused: dict[Partition, int], again: dict[Partition, IsrProposal]
    ) -> None:
        """Log refusals, those of repeated proposals where they are not the same as the last time."""
        by_error: dict[int, list[str]] = {}
        for partition, error in refused.items():
            if self._repeated.get(partition) != error:
                by_error.setdefault(error, []).append(f"{partition.topic}-{partition.index}")
        for partition in sent:
            self._repeated.pop(partition, None)
        self._repeated.update((partition, refused[partition]) for partition in again)
        for error, names in by_error.items():
            more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
            shown = ", ".join(names[:MOST_NAMES])
            log.info("the ISRs proposed for %s%s are not accepted: %s", shown, more, _name_of(error))

    async def _answers(self, sent: dict[Partition, IsrProposal]) -> dict[Partition, _Answer]:
        try:
            response = await self._ask(_topics(sent))
        except ClientError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                log.info("the controller did not answer to %d proposed ISRs: %s", len(sent), error)
            return dict.fromkeys(sent, ErrorCode.REQUEST_TIMED_OUT)
        self._trouble = ""
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


_ERROR_NAMES: Final = {int(each): each.name for each in ErrorCode}
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


def _give(partition: Partition, proposal: IsrProposal, answer: _Answer) -> int:
    """Give the partition the ISR that is accepted; the error, 0 for none."""
    if isinstance(answer, int):
        return answer
    if not answer.error_code:
        partition.isr_accepted(proposal, answer.leader_epoch, answer.partition_epoch, tuple(answer.isr))
    return answer.error_code


def _name_of(error: int) -> str:
    return _ERROR_NAMES.get(error, f"error {error}")
