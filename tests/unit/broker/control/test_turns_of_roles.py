"""Requests of a controller about very many partitions give others their turns of the loop."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.control.control_requests import TopicEntries, entries_by_topic
from ottla.broker.control.hosting import Hosting
from ottla.broker.handlers import leader_and_isr
from ottla.broker.slices import PART_ITEMS, LoopSlices
from ottla.cluster.control_batches import PartitionEntry
from ottla.cluster.image import ImageDelta, PartitionImage, TopicDelta, TopicImage
from ottla.wire.codec import encode
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from ottla.wire.stepwise import decode_steps
from support.turns import Ticking, turns

pytestmark = pytest.mark.spec("R7")

TOPIC_ID = UUID(int=7)
#: In one topic, so that a turn for each topic is not enough.
PARTITIONS = 160 * PART_ITEMS


def topic(leader_epoch: int) -> TopicImage:
    state = PartitionImage(1, leader_epoch, (1, 2), (1, 2))
    return TopicImage("t", TOPIC_ID, (state,) * PARTITIONS, {}, False)


def test_roles_that_go_on_are_looked_through_in_turns() -> None:
    """This broker follows all of them before and after: nothing is to be ended."""
    nothing: Any = object()
    hosting = Hosting(2, nothing, Ticking().slices, nothing, nothing, nothing)
    delta = ImageDelta((TopicDelta(topic(3), topic(4)),))
    assert turns(hosting.end(delta)) > PARTITIONS / 4


def test_roles_that_end_are_passed_over_in_turns_where_others_begin() -> None:
    nothing: Any = object()
    hosting = Hosting(2, nothing, Ticking().slices, nothing, nothing, nothing)
    moved = PartitionImage(1, 4, (1, 3), (1, 3))
    delta = ImageDelta((TopicDelta(topic(3), topic(4)._replace(partitions=(moved,) * PARTITIONS)),))
    assert turns(hosting.begin(delta)) > PARTITIONS / 4


@pytest.mark.parametrize("version", [leader_and_isr.MIN_VERSION, leader_and_isr.MAX_VERSION])
def test_the_answer_about_many_roles_is_made_in_turns(version: int) -> None:
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
    assert turns(leader_and_isr._apply(context, LeaderAndIsrRequest())) > PARTITIONS / PART_ITEMS / 4
    (response,) = replies
    found = response.topics[0].partition_errors if version else response.partition_errors
    assert [each.partition_index for each in found] == list(range(PARTITIONS))


@pytest.mark.parametrize("version", [leader_and_isr.MIN_VERSION, leader_and_isr.MAX_VERSION])
def test_a_long_request_is_read_in_turns_as_it_arrives(version: int) -> None:
    """Its long arrays are not there as lists: they can only be iterated."""
    states = [LeaderAndIsrPartitionState(topic_name="t", partition_index=index) for index in range(PARTITIONS)]
    topic = LeaderAndIsrTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=states)
    is_grouped = version > leader_and_isr.MIN_VERSION
    sent = (
        LeaderAndIsrRequest(topic_states=[topic])
        if is_grouped
        else LeaderAndIsrRequest(ungrouped_partition_states=states)
    )
    steps = decode_steps(LeaderAndIsrRequest, memoryview(encode(sent, version)), version, 0, 2 * PARTITIONS)
    request, _ = asyncio.run(LoopSlices(lambda: 0.0).through(steps))
    found: list[TopicEntries] = []

    async def read() -> None:
        found.extend(await entries_by_topic(request, Ticking().slices, leader_and_isr._entry))

    assert turns(read()) > PARTITIONS / PART_ITEMS / 4
    (read_topic,) = found
    assert [entry.partition for entry in read_topic.entries] == list(range(PARTITIONS))
