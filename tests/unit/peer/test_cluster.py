from __future__ import annotations

import asyncio
from collections import deque

import pytest

from ottla.client.errors import (
    BrokerError,
    BrokerUnreachableError,
    ClientClosedError,
    ClientError,
    ClientTimeoutError,
    ConnectionLostError,
    ConnectTimeoutError,
    InvalidArgumentError,
    NotKafkaError,
    UnknownTopicError,
    UnresolvableHostError,
)
from ottla.client.model import Node, TopicPartition
from ottla.peer.cluster import PLAIN
from ottla.peer.connection import open_connection
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic


def test_the_first_server_that_answers_is_used(fakes, with_cluster):
    fakes.stop(0)
    fakes.topic("t", 1)

    async def work(cluster):
        return [topic.name for topic in await cluster.topics(["t"])]

    assert with_cluster(fakes, work) == ["t"]


def test_no_server_answers(fakes, with_cluster):
    bootstrap = fakes.bootstrap
    for node in range(3):
        fakes.stop(node)
    with pytest.raises(BrokerUnreachableError) as caught:
        with_cluster(bootstrap, lambda cluster: cluster.retry("x", lambda: cluster.refresh(None)))
    assert all(address in str(caught.value) for address in bootstrap.split(","))


def test_one_server_that_does_not_resolve(with_cluster):
    with pytest.raises(UnresolvableHostError):
        with_cluster("no-such-host.invalid:1", lambda cluster: cluster.retry("x", lambda: cluster.refresh(None)))


def test_a_malformed_address(with_cluster):
    with pytest.raises(InvalidArgumentError):
        with_cluster("nonsense", lambda cluster: cluster.refresh(None))


def test_a_cluster_that_was_there_is_waited_for(fake, with_cluster):
    fake.topic("t", 0)

    async def work(cluster):
        await cluster.topics(["t"])
        fake.stop(0)
        attempts = []

        async def attempt():
            attempts.append(1)
            if len(attempts) == 3:
                fake.start(0)
            return await cluster.refresh(["t"])

        metadata = await cluster.retry("looking", attempt)
        return len(attempts), metadata.leader("t", 0)

    attempts, leader = with_cluster(fake, work)
    assert attempts >= 3
    assert leader == 0


def test_a_cluster_that_stays_away_is_named_with_the_reason(fake, with_cluster):
    async def work(cluster):
        await cluster.refresh([])
        fake.stop(0)
        await cluster.retry("looking around", lambda: cluster.refresh([]), timeout_ms=1000)

    with pytest.raises(ClientTimeoutError, match=r"looking around did not succeed within 1000 ms: .*cannot connect"):
        with_cluster(fake, work)


def test_pauses_grow_up_to_their_limit(fake, with_cluster, monkeypatch):
    pauses = []

    async def pause(seconds):
        pauses.append(round(seconds * 1000))

    monkeypatch.setattr("ottla.peer.cluster.asyncio.sleep", pause)
    left = [ConnectionLostError("gone", retriable=True)] * 6

    async def attempt():
        if left:
            raise left.pop()
        return "done"

    settings = {"retry_backoff_ms": 100, "retry_backoff_max_ms": 1000}
    assert with_cluster(fake, lambda cluster: cluster.retry("x", attempt), **settings) == "done"
    assert pauses == [pytest.approx(each, rel=0.2, abs=1) for each in (100, 200, 400, 800, 1000, 1000)]


def test_a_broker_that_hangs_up_while_it_is_stopped_is_asked_again(fake, with_cluster, faults):
    fake.topic("t", 0)

    async def work(cluster):
        await cluster.refresh(["t"])
        fake.faults[ApiKey.API_VERSIONS] += [faults["DROP"]] * 2
        return await cluster.retry("asking", lambda: cluster.request(0, MetadataRequest(topics=[])))

    assert with_cluster(fake, work).brokers


def elsewhere(fake, faults, hang_ups):
    """Ask broker 0 under an address at which it was never asked, and where it hangs up on whoever connects."""
    fake.topic("t", 0)

    async def work(cluster):
        await cluster.refresh(["t"])
        cluster.metadata.nodes[0] = Node(0, "localhost", fake.ports[0])
        fake.faults[ApiKey.API_VERSIONS] += [faults["DROP"]] * 2 * hang_ups  # on the client, and on its second look
        fake.faults[ApiKey.METADATA] += [faults["DROP"]] * hang_ups  # on the second look
        return await cluster.retry("asking", lambda: cluster.request(0, MetadataRequest(topics=[])))

    return work


def test_a_broker_that_is_killed_before_it_ever_answered_is_asked_again(fake, with_cluster, faults):
    assert with_cluster(fake, elsewhere(fake, faults, 1)).brokers


@pytest.mark.parametrize("first_failure", [2, 3], ids=["never known", "forgotten"])
def test_the_name_of_a_broker_that_cannot_be_resolved_is_asked_for_again(
    fake, with_cluster, monkeypatch, first_failure
):
    """It may be down, and some networks know the names only of what runs."""
    opened = []
    # Another address than the bootstrap server's.
    fake.advertised[0] = ("localhost", int(fake.bootstrap.rpartition(":")[2]))

    async def unknown_at_times(*arguments, **options):
        opened.append(arguments[0])
        if len(opened) in (first_failure, first_failure + 1):
            raise UnresolvableHostError("the host cannot be resolved")
        return await open_connection(*arguments, **options)

    monkeypatch.setattr("ottla.peer.cluster.open_connection", unknown_at_times)

    async def two_calls(cluster):
        return await cluster.retry("asking", lambda: cluster.request(0, MetadataRequest(topics=[])))

    async def work(cluster):
        await cluster.refresh([])
        if first_failure > 2:
            await two_calls(cluster)
            cluster.disconnect(0, PLAIN)
        return await two_calls(cluster)

    assert with_cluster(fake, work, reconnect_backoff_ms=0, reconnect_backoff_max_ms=0).brokers
    assert len(opened) == first_failure + 2


def test_an_advertised_listener_that_always_hangs_up_is_named_when_the_time_is_up(fake, with_cluster, faults):
    told = r"asking did not succeed within 1500 ms: .*closed the connection before it answered.*advertised\.listeners"
    settings = {"request_timeout_ms": 1500, "default_api_timeout_ms": 1500}
    with pytest.raises(ClientTimeoutError, match=told):
        with_cluster(fake, elsewhere(fake, faults, 10_000), **settings)


def test_a_stranger_may_hang_up_twice(fake, with_cluster, faults):
    fake.faults[ApiKey.API_VERSIONS] += [faults["DROP"]] * 2
    assert with_cluster(fake, lambda cluster: cluster.refresh([])).nodes
    fake.faults[ApiKey.API_VERSIONS] += [faults["DROP"]] * 3
    with pytest.raises(NotKafkaError, match="closed the connection before it answered"):
        with_cluster(fake, lambda cluster: cluster.refresh([]))


def test_what_is_not_retriable_is_raised_at_once(fake, with_cluster):
    calls = []

    async def attempt():
        calls.append(1)
        raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "reading t")

    with pytest.raises(BrokerError, match=r"reading t: .*TOPIC_AUTHORIZATION_FAILED"):
        with_cluster(fake, lambda cluster: cluster.retry("x", attempt))
    assert calls == [1]


def test_a_topic_that_does_not_exist(fake, with_cluster):
    with pytest.raises(UnknownTopicError, match=r"topic nope does not exist at 127.0.0.1.*create it first") as caught:
        with_cluster(fake, lambda cluster: cluster.topics(["nope"]))
    assert caught.value.topic == "nope"
    assert not caught.value.retriable
    assert len(fake.requests_of(ApiKey.METADATA)) > 1, "it was looked for more than once"


def test_a_topic_that_appears_a_little_later(fake, with_cluster):
    fake.topic("t", 0)
    fake.faults[ApiKey.METADATA].extend([ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE])

    async def work(cluster):
        return await cluster.leader(TopicPartition("t", 0))

    assert with_cluster(fake, work, unknown_topic_timeout_ms=5000) == 0


@pytest.mark.spec("G10")
def test_a_broker_that_was_just_started_is_not_believed(fake, with_cluster):
    """Apache Kafka's serves requests before it knows its cluster: no brokers, and no topic that it could make."""
    fake.topic("t", 0)

    def knows_nothing(request):
        topics = [
            MetadataResponseTopic(name=each.name, error_code=ErrorCode.INVALID_REPLICATION_FACTOR)
            for each in request.topics
        ]
        return MetadataResponse(brokers=[], cluster_id="fake", controller_id=-1, topics=topics)

    async def work(cluster):
        await cluster.topics(["t"])
        for _ in range(2):
            fake.faults[ApiKey.METADATA].append(knows_nothing)
            cluster.metadata.expire()
            with pytest.raises(ClientError, match="was just started and knows no brokers yet") as caught:
                await cluster.topics(["t"])
            assert caught.value.retriable
            assert cluster.metadata.topics.keys() == {"t"}
            assert cluster.metadata.nodes.keys() == {0}
            fake.faults[ApiKey.METADATA].append(knows_nothing)
            assert await cluster.retry("looking up t", lambda: cluster.topics(["t"]))

    with_cluster(fake, work)


def test_a_topic_that_may_not_be_seen(fake, with_cluster):
    fake.faults[ApiKey.METADATA].append(ErrorCode.INVALID_TOPIC_EXCEPTION)
    with pytest.raises(BrokerError, match="INVALID_TOPIC_EXCEPTION"):
        with_cluster(fake, lambda cluster: cluster.topics(["a b"]))
    assert len(fake.requests_of(ApiKey.METADATA)) == 1


def test_topics_are_created_only_where_asked_for(fake, with_cluster):
    fake.auto_create = True
    with pytest.raises(UnknownTopicError):
        with_cluster(fake, lambda cluster: cluster.topics(["t"]))
    [topic] = with_cluster(fake, lambda cluster: cluster.topics(["t"], allow_auto_topic_creation=True))
    assert topic.name == "t"


def test_metadata_is_asked_for_once_and_again_when_old(fake, with_cluster):
    fake.topic("t", 0)

    async def work(cluster):
        for _ in range(5):
            await cluster.topics(["t"])
        before = len(fake.requests_of(ApiKey.METADATA))
        cluster.metadata.expire(["t"])
        await cluster.topics(["t"])
        cluster._refreshed_at_ms -= cluster.settings.metadata_max_age_ms + 1
        await cluster.topics(["t"])
        return before, len(fake.requests_of(ApiKey.METADATA))

    assert with_cluster(fake, work) == (1, 3)


def test_leaders(fakes, with_cluster):
    partitions = fakes.topic("t", 2, 0, 2)

    async def work(cluster):
        return await cluster.by_leader(partitions)

    assert with_cluster(fakes, work) == {2: [partitions[0], partitions[2]], 0: [partitions[1]]}


def test_no_leader_is_worth_another_attempt(fake, with_cluster):
    fake.topic("t", -1)

    async def work(cluster):
        with pytest.raises(BrokerError, match="LEADER_NOT_AVAILABLE") as caught:
            await cluster.leader(TopicPartition("t", 0))
        return caught.value.retriable

    assert with_cluster(fake, work)


def test_a_partition_that_the_topic_has_not(fake, with_cluster):
    fake.topic("t", 0, 0)
    with pytest.raises(BrokerError, match="topic t has no partition 2: it has the partitions 0 to 1"):
        with_cluster(fake, lambda cluster: cluster.leader(TopicPartition("t", 2)))


def test_connections_are_kept_per_broker_and_purpose(fakes, with_cluster):
    async def work(cluster):
        await cluster.refresh([])
        first = await cluster.connection(1)
        assert await cluster.connection(1) is first
        assert await cluster.connection(2) is not first
        assert await cluster.connection(1, "fetch") is not first
        first.close()
        assert await cluster.connection(1) is not first

    with_cluster(fakes, work)


def test_an_advertised_address_that_does_not_resolve(fake, with_cluster):
    fake.topic("t", 0)
    fake.advertised[0] = ("no-such-host.invalid", 9092)

    async def work(cluster):
        await cluster.refresh(["t"])
        await cluster.request(0, MetadataRequest(topics=None))

    with pytest.raises(UnresolvableHostError, match=r"broker 0 of .* is known by this address: advertised.listeners"):
        with_cluster(fake, work)


def test_a_broker_that_is_not_part_of_the_cluster(fake, with_cluster):
    async def work(cluster):
        await cluster.refresh([])
        await cluster.connection(7)

    with pytest.raises(BrokerUnreachableError, match="broker 7 is not part of"):
        with_cluster(fake, work)


def test_after_close_nothing_works(fake, with_cluster):
    async def work(cluster):
        await cluster.refresh([])
        await cluster.close()
        with pytest.raises(ClientClosedError):
            await cluster.refresh([])
        with pytest.raises(ClientClosedError):
            await cluster.connection(0)

    with_cluster(fake, work)


def test_connections_that_are_not_used_are_closed(virtual_fake, with_cluster):
    async def work(cluster):
        await cluster.refresh([])
        first = await cluster.connection(0)
        await asyncio.sleep(0.04)  # sleep: virtual
        assert first.is_open
        await asyncio.sleep(0.04)  # sleep: virtual
        with pytest.raises(ConnectionLostError, match="was idle"):
            await first.request(MetadataRequest(topics=[]))
        second = await cluster.connection(0)
        return second is not first and second.is_open

    assert with_cluster(virtual_fake, work, connections_max_idle_ms=50)


def test_connections_are_not_watched_without_a_limit(fake, with_cluster):
    async def work(cluster):
        await cluster.refresh([])
        await cluster.connection(0)
        return cluster._idle_timer

    assert with_cluster(fake, work, connections_max_idle_ms=-1) is None


def test_connections_with_an_answer_to_come_are_not_idle(virtual_fake, with_cluster, faults):
    virtual_fake.faults[ApiKey.METADATA] = deque([faults["SILENT"]])

    async def work(cluster):
        connection = await cluster.any_connection()
        with pytest.raises(ClientTimeoutError):
            await connection.request(MetadataRequest(topics=[]), timeout_ms=200)

    with_cluster(virtual_fake, work, connections_max_idle_ms=50)


def test_a_broker_that_refused_is_left_alone_for_a_moment(fake, with_cluster, monkeypatch):
    attempts = []

    async def refused(host, port, settings, environment, timeout_ms, **_):
        attempts.append(timeout_ms)
        raise ConnectTimeoutError("silent", retriable=True)

    async def work(cluster):
        await cluster.refresh([])
        monkeypatch.setattr("ottla.peer.cluster.open_connection", refused)
        errors = []
        for _ in range(3):
            with pytest.raises(ConnectTimeoutError, match="silent") as caught:
                await cluster.connection(0, "produce")
            errors.append(caught.value)
        return errors

    errors = with_cluster(fake, work, reconnect_backoff_ms=60_000, reconnect_backoff_max_ms=60_000)
    assert len(attempts) == 1
    assert all(error.retriable for error in errors)


def test_attempts_to_connect_get_more_time(fake, with_cluster, monkeypatch):
    attempts = []

    async def refused(host, port, settings, environment, timeout_ms, **_):
        attempts.append(timeout_ms)
        raise ConnectTimeoutError("silent", retriable=True)

    async def work(cluster):
        await cluster.refresh([])
        monkeypatch.setattr("ottla.peer.cluster.open_connection", refused)
        for _ in range(2):
            with pytest.raises(ConnectTimeoutError):
                await cluster.connection(0, "produce")

    settings = {"socket_connection_setup_timeout_ms": 2000, "socket_connection_setup_timeout_max_ms": 10_000}
    with_cluster(fake, work, reconnect_backoff_ms=0, reconnect_backoff_max_ms=0, **settings)
    assert attempts[0] == 2000
    assert 3200 <= attempts[1] <= 4800


def test_canonical_names_take_the_place_of_bootstrap_servers(fake, with_cluster, monkeypatch):
    async def canonical(network, servers):
        assert servers == [("alias", 1)]
        return [("127.0.0.1", fake.ports[0])]

    monkeypatch.setattr("ottla.peer.cluster.canonical_servers", canonical)

    async def work(cluster):
        return await cluster.refresh([])

    assert with_cluster("alias:1", work, client_dns_lookup="resolve_canonical_bootstrap_servers_only") is not None


def test_a_request_is_repeated_as_often_as_retries_says(fake, with_cluster):
    attempts = []

    async def attempt():
        attempts.append(1)
        raise ConnectionLostError("gone", retriable=True)

    with pytest.raises(ConnectionLostError):
        with_cluster(fake, lambda cluster: cluster.retry("x", attempt), retries=2)
    assert len(attempts) == 3


def test_pauses_between_attempts_vary(fake, with_cluster):
    async def work(cluster):
        return [cluster.jittered(100) for _ in range(200)]

    pauses = with_cluster(fake, work)
    assert 80 <= min(pauses) < 90
    assert 110 < max(pauses) <= 120


def test_errors_that_are_not_about_a_topic_are_raised(fake, with_cluster, monkeypatch):
    fake.topic("t", 0)

    async def work(cluster):
        async def topics(names, **options):
            raise (
                BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "t") if len(names) > 1 else ClientTimeoutError("late")
            )

        monkeypatch.setattr(cluster, "topics", topics)
        with pytest.raises(ClientTimeoutError, match="late"):
            await cluster.each_topic(["t", "u"])

    with_cluster(fake, work)
