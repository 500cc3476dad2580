"""A cluster that hangs, moves, is closed halfway or used in the wrong place: nobody waits for longer than he said."""

from __future__ import annotations

import asyncio
import gc
import warnings

import pytest

from ottla.client import Admin, NewTopic
from ottla.client.errors import (
    ClientClosedError,
    ClientTimeoutError,
    ConnectionLostError,
    IllegalStateError,
    UnknownTopicError,
)
from ottla.peer.cluster import MIN_PAUSE_MS, Cluster
from ottla.peer.connection import MAX_REQUESTS_AT_ONCE
from ottla.peer.settings import ConnectionSettings
from ottla.wire.apis import ApiKey
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse


def connections(fake):
    return sum(map(len, fake._connections.values()))


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - another thread makes it true
            await asyncio.sleep(0.001)  # sleep: a look every millisecond, also of virtual time


@pytest.mark.parametrize("timeout_ms", [0, 50])
def test_an_attempt_that_hangs_is_cut_off(virtual_fake, with_cluster, faults, timeout_ms):
    virtual_fake.faults[ApiKey.METADATA].append(faults["SILENT"])

    async def work(cluster):
        loop = asyncio.get_running_loop()
        await cluster.any_connection()
        begun_s = loop.time()
        said = rf"asking did not succeed within {timeout_ms} ms: no answer came in time; check that \S+ is a listener"
        with pytest.raises(ClientTimeoutError, match=said):
            await cluster.retry("asking", lambda: cluster.refresh([]), timeout_ms)
        return loop.time() - begun_s

    assert with_cluster(virtual_fake, work) == pytest.approx(timeout_ms / 1000, abs=0.001)


def test_a_timeout_of_the_callers_own_stays_his(fake, with_cluster):
    async def attempt():
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        with_cluster(fake, lambda cluster: cluster.retry("asking", attempt))


def test_a_broker_that_hangs_is_passed_over_by_the_next_call(virtual_fakes, with_cluster, faults):
    virtual_fakes.faults[ApiKey.METADATA].append(faults["SILENT"])

    async def work(cluster):
        hanging = await cluster.any_connection()
        with pytest.raises(ClientTimeoutError):
            await cluster.retry("asking", lambda: cluster.refresh([]), 1000)
        assert hanging.owes_answer
        assert (await cluster.refresh([])).nodes
        assert not hanging.is_open

    with_cluster(virtual_fakes, work)


def test_a_connection_whose_callers_were_cancelled_is_given_up_in_time(virtual_fake, with_cluster, faults):
    virtual_fake.faults[ApiKey.METADATA] += [faults["SILENT"]] * 2

    async def work(cluster):
        connection = await cluster.any_connection()
        asking = asyncio.create_task(connection.request(MetadataRequest(topics=[]), timeout_ms=1000))
        await until(lambda: virtual_fake.requests_of(ApiKey.METADATA))
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert connection.is_open
        with pytest.raises(ClientTimeoutError, match=r"did not answer METADATA \(3\) within 1000 ms"):
            await connection.request(MetadataRequest(topics=[]))

    with_cluster(virtual_fake, work)


def test_metadata_that_are_always_too_old_are_asked_for_once_a_call(virtual_fake, with_cluster):
    virtual_fake.topic("t", 0)

    async def work(cluster):
        for _ in range(3):
            await cluster.topics(["t"])
            await asyncio.sleep(0.001)  # sleep: virtual; they are older than 0 ms then
        assert asyncio.get_running_loop().time() < 1
        return len(virtual_fake.requests_of(ApiKey.METADATA))

    assert with_cluster(virtual_fake, work, metadata_max_age_ms=0) == 3


def test_the_controllers_successor_is_found(fakes, with_cluster):
    async def work(cluster):
        admin = Admin(bootstrap_servers=fakes.bootstrap, default_api_timeout_ms=4000, request_timeout_ms=2000)
        async with admin:
            await admin.create_topics([NewTopic("before")])
            fakes.stop(0)
            fakes.controller = 1
            for partition in fakes.leaders:
                fakes.leaders[partition] = 1
            return await admin.create_topics([NewTopic("after")])

    assert "after" in with_cluster(fakes, work)


def test_what_is_being_opened_while_it_is_closed_is_closed(fake, with_cluster):
    async def work(cluster):
        asking = asyncio.create_task(cluster.refresh([]))
        # A look in each turn of the loop: the answers take several.
        while not connections(fake):  # noqa: ASYNC110 - another thread makes it true
            await asyncio.sleep(0)
        await cluster.close()
        with pytest.raises(ClientClosedError):
            await asking
        await until(lambda: not connections(fake))

    with_cluster(fake, work)


def test_a_client_belongs_to_one_event_loop(fake):
    admin = Admin(bootstrap_servers=fake.bootstrap)
    with asyncio.Runner() as first:
        first.run(admin.list_topics())
        with pytest.raises(IllegalStateError, match=r"belongs to the event loop .* make a client in each asyncio\.run"):
            asyncio.run(admin.list_topics())
        assert first.run(admin.list_topics()) == []
        asyncio.run(admin.close())
        first.run(until(lambda: not connections(fake)))
        with pytest.raises(ClientClosedError):
            first.run(admin.list_topics())


def test_a_client_is_closed_when_its_loop_is_over(fake):
    admin = Admin(bootstrap_servers=fake.bootstrap)
    asyncio.run(admin.list_topics())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of asyncio, whose transports were left open
        asyncio.run(admin.close())
        gc.collect()
    asyncio.run(until(lambda: not connections(fake)))


def test_a_peer_that_is_gone_at_once(fake, with_cluster, monkeypatch):
    """The system knows no peer any more when asyncio asks for its name."""

    async def work(cluster):
        connection = await cluster.any_connection()
        stream = connection._stream
        monkeypatch.setattr(stream._transport, "_extra", {**stream._transport._extra, "peername": None})
        stream.connection_made(stream._transport)
        assert stream.peer == ("", 0)
        stream.connection_lost(None)
        with pytest.raises(ConnectionLostError):
            await connection.request(MetadataRequest(topics=[]))

    with_cluster(fake, work)


def test_a_connection_is_closed_when_its_loop_is_over(fake):
    cluster = Cluster(ConnectionSettings(fake.bootstrap))
    connection = asyncio.run(cluster.any_connection())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of asyncio, whose transports were left open
        connection.close()
        assert not connection.is_open
        asyncio.run(cluster.close())
        del connection, cluster
        gc.collect()
    asyncio.run(until(lambda: not connections(fake)))


def test_who_waited_when_the_loop_was_over_is_not_reported(fake, faults):
    fake.faults[ApiKey.METADATA].append(faults["SILENT"])
    cluster = Cluster(ConnectionSettings(fake.bootstrap))
    loop = asyncio.new_event_loop()
    connection = loop.run_until_complete(cluster.any_connection())
    asking = loop.create_task(connection.request(MetadataRequest(topics=[])))
    loop.run_until_complete(until(lambda: fake.requests_of(ApiKey.METADATA)))
    loop.close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of asyncio, whose transports were left open
        connection.close()
        assert not connection.is_open
        assert not asking.done()
        asyncio.run(cluster.close())
        del connection, cluster, asking
        gc.collect()


def test_nothing_is_opened_when_the_loop_is_ending(fake, with_cluster):
    """`asyncio.run` lets the loop go round once more when names cannot be resolved any longer."""

    async def work(cluster):
        await asyncio.get_running_loop().shutdown_default_executor()
        with pytest.raises(ClientClosedError, match=r"no connection to .* can be opened any more .* close clients"):
            await cluster.refresh([])

    with_cluster(fake, work)


@pytest.mark.slow
def test_more_callers_than_there_may_be_requests_on_their_way(fake, with_cluster, faults):
    """They wait for their turn; where the connection is lost, all of them are told."""
    many = 4 * MAX_REQUESTS_AT_ONCE + 100

    async def ask_all(cluster):
        connection = await cluster.connection(0)
        waiting = [connection.request(MetadataRequest(topics=[])) for _ in range(many)]
        return await asyncio.gather(*waiting, return_exceptions=True)

    async def work(cluster):
        await cluster.refresh([])
        assert {type(each) for each in await ask_all(cluster)} == {MetadataResponse}
        fake.faults[ApiKey.METADATA].append(faults["DROP"])
        assert {type(each) for each in await ask_all(cluster)} == {ConnectionLostError}

    with_cluster(fake, work)


def test_there_is_a_pause_between_attempts_even_where_none_is_set(virtual_fake, with_cluster):
    with pytest.raises(UnknownTopicError):
        with_cluster(
            virtual_fake, lambda cluster: cluster.topics(["t"]), unknown_topic_timeout_ms=100, retry_backoff_ms=0
        )
    assert len(virtual_fake.requests_of(ApiKey.METADATA)) < 2 * 100 / MIN_PAUSE_MS


def test_a_connection_that_was_made_while_the_cluster_was_closed(fake, with_cluster):
    """It stands already, and whoever asked for it did not have his turn yet."""

    async def work(cluster):
        loop = asyncio.get_running_loop()
        succeeded = cluster._reconnects.succeeded

        def succeeded_and_closed(address):
            succeeded(address)
            if len(calls) == 1:
                loop.call_soon(lambda: closing.append(loop.create_task(cluster.close())))
            calls.append(address)

        calls, closing = [], []
        cluster._reconnects.succeeded = succeeded_and_closed
        with pytest.raises(ClientClosedError):
            await cluster.any_connection()
        await closing[0]
        await until(lambda: connections(fake) == 0)

    with_cluster(fake, work)
