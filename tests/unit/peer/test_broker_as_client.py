"""A broker that connects to another one: as a replica, and with requests that applications do not send."""

from __future__ import annotations

import asyncio

import pytest

from ottla.env.environment import Environment
from ottla.peer.connection import open_connection
from ottla.peer.errors import STALE_METADATA, BrokerError, NotLeaderError, UnsupportedVersionError
from ottla.peer.fetch import FetchLimits, fetch_request, fetch_without_session, partitions_in
from ottla.peer.fetch_session import FetchSession, WantedFetch
from ottla.peer.model import TopicPartition
from ottla.peer.settings import ConnectionSettings
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_cluster import DescribeClusterRequest

BROKER_ID = 7
P = TopicPartition("t", 0)
SETTINGS = ConnectionSettings(client_id=f"broker-{BROKER_ID}-fetcher-0", request_timeout_ms=2000)


def connected(fake, work):
    async def body():
        connection = await open_connection("127.0.0.1", fake.ports[0], SETTINGS, Environment())
        try:
            return await work(connection)
        finally:
            connection.close()

    return asyncio.run(body())


def test_a_replica_fetches_with_its_brokers_id(fake):
    fake.topic("t", 0)
    fake.fill(P, 10)
    session = FetchSession()

    async def work(connection):
        plan = session.build({P: WantedFetch(0, 3, 1 << 20)})
        request = fetch_request(plan, FetchLimits(1 << 20), replica_id=BROKER_ID)
        return await connection.request(request, versions=(4, 12))

    answer = connected(fake, work)
    [(partition, data)] = partitions_in(answer)
    assert (partition, data.error_code) == (P, ErrorCode.NONE)
    assert data.records
    [request] = fake.requests_of(ApiKey.FETCH)
    assert (request.replica_id, request.rack_id, request.session_epoch) == (BROKER_ID, "", 0)


def test_a_replica_learns_that_the_leader_has_moved(fake):
    fake.topic("t", 0)
    fake.faults[ApiKey.FETCH].append(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    async def work(connection):
        request = fetch_without_session({P: WantedFetch(0, 3, 100)}, FetchLimits(100), replica_id=BROKER_ID)
        return await connection.request(request, versions=(4, 12))

    [(_, data)] = partitions_in(connected(fake, work))
    assert data.error_code in STALE_METADATA
    assert isinstance(BrokerError(data.error_code, "fetching"), NotLeaderError)


def test_requests_that_applications_do_not_send_name_their_versions(fake):
    async def work(connection):
        await connection.request(DescribeClusterRequest(), versions=(1, 1))

    with pytest.raises(UnsupportedVersionError, match="the broker does not serve DESCRIBE_CLUSTER"):
        connected(fake, work)
