"""Requests of a controller about very many partitions give others their turns of the loop."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.control.channels.messages import deletion_answered, leader_and_isr_answered
from ottla.broker.control.control_requests import TopicEntries, entries_by_topic
from ottla.broker.control.delta_host import DeltaHost
from ottla.broker.control.hosting import Hosting
from ottla.broker.handlers import leader_and_isr
from ottla.broker.served import SERVED
from ottla.broker.slices import CHUNK_ITEMS, LoopSlices
from ottla.cluster.control_batches import LeaderAndIsrBatch, PartitionEntry, StopEntry, StopReplicaBatch
from ottla.cluster.controller_events import DeletionAnswered, LeaderAndIsrAnswered, SendToBroker
from ottla.cluster.image import ImageDelta, PartitionImage, TopicDelta, TopicImage
from ottla.wire.codec import encode
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)
from ottla.wire.messages.stop_replica import StopReplicaPartitionError, StopReplicaResponse
from ottla.wire.sliced import Sliced, decode_in_slices
from support.turns import Ticking, turns

pytestmark = pytest.mark.spec("R7")

TOPIC_ID = UUID(int=7)
#: In one topic, so that a turn for each topic is not enough.
PARTITIONS = 160 * CHUNK_ITEMS


def topic(leader_epoch: int) -> TopicImage:
    state = PartitionImage(1, leader_epoch, (1, 2), (1, 2))
    return TopicImage("t", TOPIC_ID, (state,) * PARTITIONS, {}, False)


NOTHING: Any = object()


def host_of(replicas: Any) -> DeltaHost:
    slices = Ticking().slices
    return DeltaHost(Hosting(2, replicas, slices, lambda _: NOTHING, lambda _: None, NOTHING), slices)


def test_roles_that_go_on_are_looked_through_in_slices() -> None:
    """This broker follows all of them before and after: nothing is to be ended."""
    host = host_of(NOTHING)
    delta = ImageDelta((TopicDelta(topic(3), topic(4)),))
    assert turns(host.end(delta)) > PARTITIONS / 4


def test_roles_that_end_are_passed_over_in_slices_where_others_begin() -> None:
    host = host_of(NOTHING)
    moved = PartitionImage(1, 4, (1, 3), (1, 3))
    delta = ImageDelta((TopicDelta(topic(3), topic(4)._replace(partitions=(moved,) * PARTITIONS)),))
    assert turns(host.begin(delta)) > PARTITIONS / 4


def test_leaders_of_all_topics_are_made_before_followers() -> None:
    """The other brokers ask the leaders already, and are asked by the followers."""
    made: list[tuple[str, int, str]] = []

    class Replicas:
        def get(self, name: str, index: int) -> object:
            return NOTHING  # it is hosted already

        def make_leader(self, topic: TopicImage, index: int, *_: object, **__: object) -> None:
            made.append((topic.name, index, "leader"))

        def make_follower(self, topic: TopicImage, index: int, *_: object) -> None:
            made.append((topic.name, index, "follower"))

    states = tuple(PartitionImage(leader, 4, (1, 2), (1, 2)) for leader in (1, 2, 1, 2))
    topics = [TopicImage(name, UUID(int=number), states, {}, False) for number, name in enumerate("ab", 1)]
    replicas: Any = Replicas()
    turns(host_of(replicas).begin(ImageDelta(tuple(TopicDelta(None, topic) for topic in topics))))
    led = [(name, index, "leader") for name in "ab" for index in (1, 3)]
    assert made == led + [(name, index, "follower") for name in "ab" for index in (0, 2)]


@pytest.mark.parametrize("version", [0, SERVED[4].max_version])
def test_the_answer_about_many_roles_is_made_in_slices(version: int) -> None:
    state = PartitionImage(1, 4, (1, 2), (1, 2))
    entries = [PartitionEntry("t", TOPIC_ID, index, state, 0, (), False, False) for index in range(PARTITIONS)]
    replies: list[LeaderAndIsrResponse] = []

    async def lead_or_follow(*_: object) -> list[tuple[TopicEntries, list[ErrorCode]]]:
        return [(TopicEntries("t", TOPIC_ID, entries), [ErrorCode.NONE] * PARTITIONS)]

    async def replied(response: LeaderAndIsrResponse) -> None:
        replies.append(response)

    control_requests = SimpleNamespace(lead_or_follow=lead_or_follow)
    broker = SimpleNamespace(slices=Ticking().slices, control_requests=control_requests)
    context: Any = SimpleNamespace(broker=broker, replied=replied, api_version=version)
    assert turns(leader_and_isr._apply(context, LeaderAndIsrRequest())) > PARTITIONS / CHUNK_ITEMS / 4
    (response,) = replies
    found = response.topics[0].partition_errors if version else response.partition_errors
    assert [each.partition_index for each in found] == list(range(PARTITIONS))


def test_what_brokers_answer_about_many_partitions_is_understood_in_slices() -> None:
    states = [PartitionImage(1, 4, (1, 2), (1, 2))] * PARTITIONS
    entries = tuple(PartitionEntry("t", TOPIC_ID, index, state, 0) for index, state in enumerate(states))
    sending = SendToBroker(2, 7, 1, {}, ())
    codes = [(ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)[index % 2] for index in range(PARTITIONS)]
    results = [LeaderAndIsrPartitionError(partition_index=index, error_code=code) for index, code in enumerate(codes)]
    response = LeaderAndIsrResponse(topics=[LeaderAndIsrTopicError(topic_id=TOPIC_ID, partition_errors=results)])
    slices = Ticking().slices
    answers: list[object] = []

    async def understand(steps: Sliced[Any]) -> None:
        answers.append(await slices.through(steps))

    found = leader_and_isr_answered(sending, LeaderAndIsrBatch(entries), response)
    assert turns(understand(found)) > PARTITIONS / CHUNK_ITEMS / 4
    online, offline = ([("t", index) for index in range(first, PARTITIONS, 2)] for first in (0, 1))
    assert answers == [LeaderAndIsrAnswered(2, 7, online, offline)]
    stops = StopReplicaBatch(tuple(StopEntry("t", index, 4, True) for index in range(PARTITIONS)))
    gone = [
        StopReplicaPartitionError(topic_name="t", partition_index=index, error_code=code)
        for index, code in enumerate(codes)
    ]
    deleted = deletion_answered(sending, stops, StopReplicaResponse(partition_errors=gone))
    assert turns(understand(deleted)) > PARTITIONS / CHUNK_ITEMS / 4
    assert answers[1] == DeletionAnswered(2, 7, online, offline)


@pytest.mark.parametrize("version", [0, SERVED[4].max_version])
def test_a_long_request_is_read_in_slices_as_it_arrives(version: int) -> None:
    """Its long arrays are not there as lists: they can only be iterated."""
    states = [LeaderAndIsrPartitionState(topic_name="t", partition_index=index) for index in range(PARTITIONS)]
    topic = LeaderAndIsrTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=states)
    is_grouped = version > 0
    sent = (
        LeaderAndIsrRequest(topic_states=[topic])
        if is_grouped
        else LeaderAndIsrRequest(ungrouped_partition_states=states)
    )
    steps = decode_in_slices(LeaderAndIsrRequest, memoryview(encode(sent, version)), version, 0, 2 * PARTITIONS)
    request, _ = asyncio.run(LoopSlices(lambda: 0.0).through(steps))
    found: list[TopicEntries] = []

    async def read() -> None:
        found.extend(await entries_by_topic(request, Ticking().slices, leader_and_isr._entry))

    assert turns(read()) > PARTITIONS / CHUNK_ITEMS / 4
    (read_topic,) = found
    assert [entry.partition for entry in read_topic.entries] == list(range(PARTITIONS))
