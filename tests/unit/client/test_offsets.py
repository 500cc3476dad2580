from __future__ import annotations

import pytest

from ottla.client.errors import BrokerError, ClientTimeoutError
from ottla.client.model import EARLIEST, LATEST, TopicPartition
from ottla.client.offsets import offsets_at
from ottla.peer.model import READ_COMMITTED
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode


def test_first_last_and_by_timestamp(fakes, with_cluster):
    a, b, c = fakes.topic("t", 0, 1, 0)
    fakes.fill(a, 100)
    fakes.fill(b, 20)
    fakes.logs[a].start = 7
    for at, expected in ((EARLIEST, [7, 0, 0]), (LATEST, [100, 20, 0]), (1015, [15, 15, -1]), (1099, [99, -1, -1])):
        found = with_cluster(fakes, lambda cluster, at=at: offsets_at(cluster, [a, b, c], at))
        assert list(found.items()) == list(zip([a, b, c], expected, strict=True))


def test_one_request_per_leader(fakes, with_cluster):
    partitions = fakes.topic("t", *[0, 1] * 20)
    with_cluster(fakes, lambda cluster: offsets_at(cluster, partitions, LATEST))
    assert len(fakes.requests_of(ApiKey.LIST_OFFSETS)) == 2


@pytest.mark.parametrize("fault", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_NOT_AVAILABLE, "DROP"])
def test_only_what_failed_is_asked_again(fakes, with_cluster, faults, fault):
    a, b = fakes.topic("t", 0, 1)
    fakes.fill(a, 10)
    fakes.faults[ApiKey.LIST_OFFSETS].append(faults.get(fault, fault))
    assert with_cluster(fakes, lambda cluster: offsets_at(cluster, [a, b], LATEST)) == {a: 10, b: 0}
    assert len(fakes.requests_of(ApiKey.LIST_OFFSETS)) == 3


def test_a_leader_that_moved_is_found(fakes, with_cluster):
    [a] = fakes.topic("t", 0)

    async def work(cluster):
        await cluster.topics(["t"])
        fakes.leaders[a] = 2
        return await offsets_at(cluster, [a], LATEST)

    assert with_cluster(fakes, work) == {a: 0}


def test_an_error_that_stays(fake, with_cluster):
    [a] = fake.topic("t", 0)
    fake.faults[ApiKey.LIST_OFFSETS].append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(BrokerError, match=r"no offset of t-0 from 0: .*TOPIC_AUTHORIZATION_FAILED"):
        with_cluster(fake, lambda cluster: offsets_at(cluster, [a], LATEST))


def test_a_partition_without_a_leader_times_out_with_the_reason(fake, with_cluster):
    fake.topic("t", -1)
    settings = {"default_api_timeout_ms": 5000, "request_timeout_ms": 5000}
    with pytest.raises(ClientTimeoutError, match=r"looking up offsets .*5000 ms: t-0 .*LEADER_NOT_AVAILABLE"):
        with_cluster(fake, lambda cluster: offsets_at(cluster, [TopicPartition("t", 0)], LATEST), **settings)


def test_nothing_asked_nothing_sent(fake, with_cluster):
    assert with_cluster(fake, lambda cluster: offsets_at(cluster, [], LATEST)) == {}
    assert fake.requests == []


def test_the_last_stable_offset_is_asked_for(fake, with_cluster):
    [a] = fake.topic("t", 0)
    fake.fill(a, 10)
    assert with_cluster(fake, lambda cluster: offsets_at(cluster, [a], LATEST, READ_COMMITTED)) == {a: 10}
    assert [each.isolation_level for each in fake.requests_of(ApiKey.LIST_OFFSETS)] == [READ_COMMITTED]
