from __future__ import annotations

import pytest

from ottla.client.errors import BrokerError
from ottla.client.offsets import end_of_epoch
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)


def answer(code: ErrorCode, epoch: int = -1, end: int = -1):
    def told(request):
        [topic] = request.topics
        [asked] = topic.partitions
        found = EpochEndOffset(error_code=code, partition=asked.partition, leader_epoch=epoch, end_offset=end)
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic=topic.topic, partitions=[found])])

    return told


def test_the_end_of_an_epoch_on_the_leader(fakes, with_cluster):
    [_, b] = fakes.topic("t", 0, 1)
    fakes.faults[ApiKey.OFFSET_FOR_LEADER_EPOCH] += [
        answer(ErrorCode.NOT_LEADER_OR_FOLLOWER), answer(ErrorCode.NONE, 3, 70),
    ]  # fmt: skip
    assert with_cluster(fakes, lambda cluster: end_of_epoch(cluster, b, 4)) == (3, 70)
    asked = [(node, message) for node, key, message in fakes.requests if key == ApiKey.OFFSET_FOR_LEADER_EPOCH]
    assert [(node, message.topics[0].partitions[0].leader_epoch) for node, message in asked] == [(1, 4), (1, 4)]
    assert {message.replica_id for _, message in asked} == {-1}


def test_an_error_that_stays(fake, with_cluster):
    [a] = fake.topic("t", 0)
    fake.faults[ApiKey.OFFSET_FOR_LEADER_EPOCH].append(answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(BrokerError, match=r"no end of leader epoch 4 of t-0 from 0: .*TOPIC_AUTHORIZATION_FAILED"):
        with_cluster(fake, lambda cluster: end_of_epoch(cluster, a, 4))
