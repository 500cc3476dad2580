"""What becomes of the ISRs that leaders propose: sent together, repeated, given up."""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Awaitable, Callable

import pytest

from ottla.broker.control.isr_proposals import PROPOSALS_PER_REQUEST, IsrProposals
from ottla.cluster.isr import IsrProposal
from ottla.peer.errors import ClientTimeoutError
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_partition import (
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from support.turns import Ticking
from support.waiting import until

pytestmark = pytest.mark.spec("R1", "R2")

TOPIC_ID = uuid.UUID(int=7)
Topics = list[AlterPartitionRequestTopicData]


class Led:
    """A partition led here, as far as proposals need it."""

    topic = "t"
    topic_id = TOPIC_ID

    def __init__(self, index: int = 0, *, repeats: bool = False) -> None:
        self.index = index
        self.repeats = repeats
        self.accepted: list[tuple[int, int, tuple[int, ...]]] = []
        self.refused: list[int] = []

    def isr_accepted(
        self, proposal: IsrProposal, leader_epoch: int, partition_epoch: int, isr: tuple[int, ...]
    ) -> bool:
        self.accepted.append((leader_epoch, partition_epoch, isr))
        return True

    def isr_refused(self, proposal: IsrProposal, error: int) -> bool:
        self.refused.append(error)
        return self.repeats


class FakeController:
    """Answers as `script` says, then accepts everything; keeps what it was asked."""

    def __init__(self, *script: ErrorCode | Exception | AlterPartitionResponse) -> None:
        self.script = deque(script)
        self.requests: list[Topics] = []

    async def ask(self, topics: Topics) -> AlterPartitionResponse:
        self.requests.append(topics)
        await asyncio.sleep(0)
        answer = self.script.popleft() if self.script else ErrorCode.NONE
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, AlterPartitionResponse):
            return answer
        return AlterPartitionResponse(
            topics=[
                AlterPartitionResponseTopicData(
                    topic_id=topic.topic_id,
                    partitions=[
                        AlterPartitionResponsePartitionData(
                            partition_index=each.partition_index,
                            error_code=int(answer),
                            leader_epoch=each.leader_epoch,
                            partition_epoch=each.partition_epoch + 1,
                            isr=[replica.broker_id for replica in each.new_isr_with_epochs],
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in topics
            ]
        )


def running(body: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(body(), 240))  # type: ignore[arg-type]


def proposed(*isr: int) -> IsrProposal:
    return IsrProposal(3, 5, isr)


def test_proposals_of_one_turn_are_one_request() -> None:
    async def body() -> None:
        controller = FakeController()
        proposals = IsrProposals(controller.ask, Ticking().slices)
        led = [Led(index) for index in range(PROPOSALS_PER_REQUEST + 1)]
        for partition in led:
            proposals.propose(partition, proposed(1, 2))  # type: ignore[arg-type]
        await until(lambda: all(partition.accepted for partition in led), "all answers")
        assert [sum(len(topic.partitions) for topic in requests) for requests in controller.requests] == [
            PROPOSALS_PER_REQUEST,
            1,
        ]
        assert led[0].accepted == [(3, 6, (1, 2))]
        await proposals.stop()

    running(body)


@pytest.mark.parametrize(
    "trouble",
    [
        ClientTimeoutError("late"),
        ErrorCode.UNKNOWN_SERVER_ERROR,
        AlterPartitionResponse(error_code=int(ErrorCode.NOT_CONTROLLER)),
        AlterPartitionResponse(topics=[]),
    ],
)
def test_what_is_unknown_is_asked_again(trouble: ErrorCode | Exception | AlterPartitionResponse) -> None:
    async def body() -> None:
        controller = FakeController(trouble)
        proposals = IsrProposals(controller.ask, Ticking().slices)
        partition = Led(repeats=True)
        proposals.propose(partition, proposed(1))  # type: ignore[arg-type]
        await until(lambda: partition.accepted, "the second answer")
        assert len(partition.refused) == 1
        assert len(controller.requests) == 2
        await proposals.stop()

    running(body)


def test_a_refusal_that_repeats_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """A broker without a controller asks again twenty times a second."""
    caplog.set_level("INFO", "ottla.replicas")

    async def body() -> None:
        away = AlterPartitionResponse(error_code=int(ErrorCode.NOT_CONTROLLER))
        controller = FakeController(away, away, ErrorCode.UNKNOWN_SERVER_ERROR, away, away)
        proposals = IsrProposals(controller.ask, Ticking().slices)
        led = [Led(index, repeats=True) for index in range(7)]
        for partition in led:
            proposals.propose(partition, proposed(1))  # type: ignore[arg-type]
        await until(lambda: all(partition.accepted for partition in led), "the last answer")
        proposals.propose(led[0], proposed(1, 2))  # type: ignore[arg-type]
        controller.script.append(away)
        await until(lambda: len(led[0].accepted) == 2, "the answer to a new proposal")
        await proposals.stop()

    running(body)
    seven = "t-0, t-1, t-2, t-3, t-4 and 2 more"
    assert [record.getMessage() for record in caplog.records] == [
        f"the ISRs proposed for {seven} are not accepted: NOT_CONTROLLER",
        f"the ISRs proposed for {seven} are not accepted: UNKNOWN_SERVER_ERROR",
        f"the ISRs proposed for {seven} are not accepted: NOT_CONTROLLER",
        "the ISRs proposed for t-0 are not accepted: NOT_CONTROLLER",
    ]


def test_what_the_partition_gives_up_is_not_repeated() -> None:
    async def body() -> None:
        controller = FakeController(ErrorCode.INELIGIBLE_REPLICA)
        proposals = IsrProposals(controller.ask, Ticking().slices)
        partition = Led()
        proposals.propose(partition, proposed(1))  # type: ignore[arg-type]
        await until(lambda: partition.refused, "the answer")
        assert partition.refused == [ErrorCode.INELIGIBLE_REPLICA]
        later = Led(1)
        proposals.propose(later, proposed(1, 2))  # type: ignore[arg-type]
        await until(lambda: later.accepted, "the answer")
        assert [[each.partition_index for each in topics[0].partitions] for topics in controller.requests] == [[0], [1]]
        await proposals.stop()

    running(body)


def test_nothing_is_sent_after_the_stop() -> None:
    async def body() -> None:
        controller = FakeController()
        proposals = IsrProposals(controller.ask, Ticking().slices)
        await proposals.stop()
        proposals.propose(Led(), proposed(1))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        assert controller.requests == []

    running(body)


def test_the_request_names_the_registrations_of_the_replicas() -> None:
    """KIP-903; a replica that has not fetched yet is not checked."""

    async def body() -> None:
        controller = FakeController()
        proposals = IsrProposals(controller.ask, Ticking().slices)
        partition = Led()
        proposals.propose(partition, IsrProposal(3, 5, (1, 2), {2: 77}))  # type: ignore[arg-type]
        await until(lambda: partition.accepted, "the answer")
        (proposal,) = controller.requests[0][0].partitions
        assert [(each.broker_id, each.broker_epoch) for each in proposal.new_isr_with_epochs] == [(1, -1), (2, 77)]
        assert proposal.new_isr == []
        await proposals.stop()

    running(body)


def test_topics_without_ids_are_named() -> None:
    """As Apache Kafka's: then all of a request are, in a version that has no broker epochs."""

    async def body() -> None:
        requests: list[Topics] = []

        async def ask(topics: Topics) -> AlterPartitionResponse:
            requests.append(topics)
            answers = [
                AlterPartitionResponseTopicData(
                    topic_name=topic.topic_name,
                    partitions=[
                        AlterPartitionResponsePartitionData(
                            partition_index=0, error_code=0, leader_epoch=3, partition_epoch=6, isr=[1]
                        )
                    ],
                )
                for topic in topics
            ]
            return AlterPartitionResponse(topics=answers)

        proposals = IsrProposals(ask, Ticking().slices)
        first, second = Led(), Led()
        first.topic, first.topic_id = "old", uuid.UUID(int=0)
        for partition in (first, second):
            proposals.propose(partition, IsrProposal(3, 5, (1,), {2: 77}))  # type: ignore[arg-type]
        await until(lambda: first.accepted and second.accepted, "the answers")
        assert len(requests) == 1
        assert [(topic.topic_name, topic.partitions[0].new_isr) for topic in requests[0]] == [("old", [1]), ("t", [1])]
        assert not any(topic.partitions[0].new_isr_with_epochs for topic in requests[0])
        await proposals.stop()

    running(body)


def test_the_answers_to_many_proposals_are_taken_up_in_slices() -> None:
    async def body() -> None:
        controller = FakeController()
        proposals = IsrProposals(controller.ask, Ticking().slices)
        led = [Led(index) for index in range(PROPOSALS_PER_REQUEST)]
        for partition in led:
            proposals.propose(partition, proposed(1, 2))  # type: ignore[arg-type]
        seen: set[int] = set()
        while len(led) not in seen:
            seen.add(sum(bool(partition.accepted) for partition in led))
            await asyncio.sleep(0)
        assert len(seen) > PROPOSALS_PER_REQUEST / 4
        await proposals.stop()

    running(body)
