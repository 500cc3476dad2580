from __future__ import annotations

import pytest

from ottla.client.errors import BrokerError, InvalidArgumentError
from ottla.client.group_offsets import GroupOffsets
from ottla.client.model import TopicPartition
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode

A, B = TopicPartition("t", 0), TopicPartition("u", 3)


def test_commit_and_fetch(fakes, with_cluster):
    fakes.coordinator = 2

    async def work(cluster):
        group = GroupOffsets(cluster, "g")
        before = await group.fetch([A, B])
        await group.commit({A: 5}, "note")
        return before, await group.fetch([A, B])

    assert with_cluster(fakes, work) == ({A: -1, B: -1}, {A: 5, B: -1})
    [commit] = fakes.requests_of(ApiKey.OFFSET_COMMIT)
    assert (commit.group_id, commit.generation_id_or_member_epoch, commit.member_id) == ("g", -1, "")
    assert commit.topics[0].partitions[0].committed_metadata == "note"
    assert len(fakes.requests_of(ApiKey.FIND_COORDINATOR)) == 1


@pytest.mark.parametrize("fault", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, "DROP"])
@pytest.mark.parametrize("api_key", [ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH])
def test_what_passes_is_waited_for(fake, with_cluster, faults, fault, api_key):
    fake.faults[api_key].extend([faults.get(fault, fault)] * 3)

    async def work(cluster):
        group = GroupOffsets(cluster, "g")
        await group.commit({A: 5})
        return await group.fetch([A])

    assert with_cluster(fake, work) == {A: 5}


def test_a_coordinator_that_is_not_there_yet(fake, with_cluster):
    fake.faults[ApiKey.FIND_COORDINATOR].extend([ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2)
    assert with_cluster(fake, lambda cluster: GroupOffsets(cluster, "g").fetch([A])) == {A: -1}


def test_a_coordinator_that_moved(fakes, with_cluster):
    async def work(cluster):
        group = GroupOffsets(cluster, "g")
        await group.commit({A: 1})
        fakes.coordinator = 1
        await group.commit({A: 2})

    with_cluster(fakes, work)
    assert fakes.committed == {A: 2}
    assert [node for node, key, _ in fakes.requests if key == ApiKey.OFFSET_COMMIT] == [0, 0, 1]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_a_group_with_members_does_not_let_others_commit(fake, with_cluster, code):
    fake.faults[ApiKey.OFFSET_COMMIT].append(code)
    with pytest.raises(BrokerError, match=r"group g: .*t-0 is not committed: the group has active members.*stop them"):
        with_cluster(fake, lambda cluster: GroupOffsets(cluster, "g").commit({A: 5}))


def test_nothing_to_commit(fake, with_cluster):
    with_cluster(fake, lambda cluster: GroupOffsets(cluster, "g").commit({}))
    assert fake.requests == []


def test_a_group_id_that_no_request_can_hold(fake, with_cluster):
    with pytest.raises(
        InvalidArgumentError, match="the id of a group has 32768 bytes, and a string of Kafka's protocol has"
    ):
        with_cluster(fake, lambda cluster: GroupOffsets(cluster, "g" * 32_768).fetch_all())
