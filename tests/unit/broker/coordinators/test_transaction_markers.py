"""Markers that a coordinator sends: to this broker directly, to others in one request at a time for each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.coordinators.broker_requests import FAILURE_PAUSE_S
from ottla.broker.coordinators.transaction_markers import ABSENCE_S, MarkerRequests
from ottla.cluster.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from ottla.cluster.topics import TRANSACTION_STATE_TOPIC
from ottla.records.control import TransactionMarker
from ottla.sim.virtual_loop import run_in_virtual_time
from ottla.txn.events import MarkerToken
from ottla.txn.markers import MarkerResult, marker_request, marker_result
from ottla.wire.broker_requests import BrokerOutcome, BrokerRequest
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

pytestmark = pytest.mark.spec("X1")

HERE, OTHER = 0, 1


class Sent:
    """What goes to other brokers, and how it is answered."""

    def __init__(self) -> None:
        self.requests: list[tuple[BrokerRequest, Callable[[BrokerOutcome], None]]] = []

    def send(self, request: BrokerRequest, done: Callable[[BrokerOutcome], None]) -> None:
        self.requests.append((request, done))

    def close(self) -> None:
        self.requests.clear()

    def asked(self, number: int) -> list[tuple[int, bool, dict[str, list[int]]]]:
        """Producer, result and partitions of each marker of a request."""
        payload = self.requests[number][0].payload
        assert isinstance(payload, WriteTxnMarkersRequest)
        return [
            (each.producer_id, each.transaction_result, {topic.name: topic.partition_indexes for topic in each.topics})
            for each in payload.markers
        ]

    def answer(self, number: int, errors: dict[tuple[int, str, int], ErrorCode]) -> None:
        markers = [
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=name, partitions=[WritableTxnMarkerPartitionResult(partition_index=at, error_code=error)]
                    )
                ],
            )
            for (producer_id, name, at), error in errors.items()
        ]
        self.requests[number][1](BrokerOutcome(None, ErrorCode.NONE, WriteTxnMarkersResponse(markers=markers)))


class Writer:
    """This broker's own partitions."""

    def __init__(self) -> None:
        self.written: list[tuple[str, int, TransactionMarker]] = []

    def write(self, topic: str, index: int, marker: TransactionMarker, done: Callable[[ErrorCode], None]) -> None:
        self.written.append((topic, index, marker))
        done(ErrorCode.NONE)


class Coordinator:
    """Partition 0 is led here, 1 and 2 by the other broker, 3 by none."""

    def __init__(self) -> None:
        states = tuple(PartitionImage(leader, 0, (0, 1), (0, 1)) for leader in (HERE, OTHER, OTHER, -1))
        image = ClusterImage("c", HERE, {})
        for broker_id in (HERE, OTHER):
            image.brokers[broker_id] = BrokerImage(broker_id, ())  # type: ignore[index]
        for name in ("t", TRANSACTION_STATE_TOPIC):
            image.topics[name] = TopicImage(name, UUID(int=1), states, {}, False)  # type: ignore[index]
        self.image = image
        self.others, self.writer = Sent(), Writer()
        self.requests = MarkerRequests(HERE, image, self.writer, self.others)  # type: ignore[arg-type]
        self.outcomes: list[tuple[int, int, MarkerResult]] = []

    def send(self, producer_id: int, partition: int, is_commit: bool = True) -> None:
        token = MarkerToken("x", ("t", partition), producer_id, 0, 7)

        def done(outcome: BrokerOutcome) -> None:
            assert outcome.token is token
            self.outcomes.append((producer_id, partition, marker_result(outcome)))

        self.requests.send(marker_request(token, is_commit), done)


def run(test: Callable[[Coordinator], Coroutine[Any, Any, None]]) -> None:
    async def scenario() -> None:
        await test(Coordinator())

    run_in_virtual_time(scenario())


def test_a_marker_for_this_broker_is_written_here_and_answered_later() -> None:
    async def test(coordinator: Coordinator) -> None:
        coordinator.send(5, 0)
        assert coordinator.outcomes == [], "no outcome comes before the state machine has gone on"
        await asyncio.sleep(0.001)  # sleep: virtual
        assert coordinator.outcomes == [(5, 0, MarkerResult.DONE)]
        assert coordinator.writer.written == [("t", 0, TransactionMarker(5, 0, 7, True))]
        assert coordinator.others.requests == []

    run(test)


def test_markers_for_another_broker_go_out_together_and_each_has_its_outcome() -> None:
    async def test(coordinator: Coordinator) -> None:
        others = coordinator.others
        coordinator.send(5, 1)
        coordinator.send(5, 2)
        coordinator.send(6, 1, is_commit=False)
        await asyncio.sleep(0)  # sleep: virtual
        assert [others.asked(number) for number in range(len(others.requests))] == [
            [(5, True, {"t": [1, 2]}), (6, False, {"t": [1]})]
        ]
        coordinator.send(7, 2)
        await asyncio.sleep(0)  # sleep: virtual
        assert len(others.requests) == 1, "one request at a time"
        fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
        others.answer(
            0, {(5, "t", 1): ErrorCode.NONE, (5, "t", 2): ErrorCode.NOT_LEADER_OR_FOLLOWER, (6, "t", 1): fenced}
        )
        assert coordinator.outcomes == [
            (5, 1, MarkerResult.DONE),
            (5, 2, MarkerResult.RETRY),
            (6, 1, MarkerResult.FENCED),
        ]
        assert others.asked(1) == [(7, True, {"t": [2]})]

    run(test)


def test_markers_that_no_answer_names_are_sent_again() -> None:
    async def test(coordinator: Coordinator) -> None:
        coordinator.send(5, 1)
        coordinator.send(5, 2)
        await asyncio.sleep(0)  # sleep: virtual
        coordinator.others.answer(0, {(5, "t", 1): ErrorCode.NONE})
        coordinator.send(5, 2)
        await asyncio.sleep(0)  # sleep: virtual
        coordinator.others.requests[1][1](BrokerOutcome(None, ErrorCode.NETWORK_EXCEPTION))
        assert coordinator.outcomes == [
            (5, 1, MarkerResult.DONE),
            (5, 2, MarkerResult.RETRY),
            (5, 2, MarkerResult.RETRY),
        ]

    run(test)


def test_a_partition_without_leader_is_waited_for() -> None:
    async def test(coordinator: Coordinator) -> None:
        coordinator.send(5, 3)
        await asyncio.sleep(FAILURE_PAUSE_S / 2)  # sleep: virtual
        assert coordinator.outcomes == []
        await asyncio.sleep(FAILURE_PAUSE_S)  # sleep: virtual
        assert coordinator.outcomes == [(5, 3, MarkerResult.RETRY)]

    run(test)


@pytest.mark.parametrize("is_known_later", [True, False])
def test_a_partition_is_gone_only_if_metadata_lack_it_for_a_while(is_known_later: bool) -> None:
    async def test(coordinator: Coordinator) -> None:
        topics: dict[str, TopicImage] = coordinator.image.topics  # type: ignore[assignment]
        topic = topics.pop("t")
        coordinator.send(5, 0)
        await asyncio.sleep(ABSENCE_S / 2)  # sleep: virtual
        assert coordinator.outcomes == []
        if is_known_later:
            topics["t"] = topic
        await asyncio.sleep(ABSENCE_S)  # sleep: virtual
        assert coordinator.outcomes == [(5, 0, MarkerResult.DONE)]
        assert len(coordinator.writer.written) == is_known_later

    run(test)


def test_no_partition_counts_as_gone_before_the_broker_has_metadata() -> None:
    """Else the transactions of a coordinator that has just started would end without their markers.

    A controller that has just been elected sends the brokers first, and the topics later.
    """

    async def test(coordinator: Coordinator) -> None:
        coordinator.image.topics.clear()  # type: ignore[attr-defined]
        coordinator.send(5, 0)
        await asyncio.sleep(ABSENCE_S * 2)  # sleep: virtual
        assert coordinator.outcomes == [(5, 0, MarkerResult.RETRY)]

    run(test)


def test_nothing_is_answered_after_the_end() -> None:
    async def test(coordinator: Coordinator) -> None:
        coordinator.send(5, 0)
        coordinator.send(5, 1)
        coordinator.requests.close()
        await asyncio.sleep(1)  # sleep: virtual
        assert (coordinator.outcomes, coordinator.others.requests) == ([], [])

    run(test)
