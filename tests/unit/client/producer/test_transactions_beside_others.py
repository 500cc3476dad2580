"""Transactions of a producer beside others: a consumer's rebalances, calls of other tasks, records of other threads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ottla.client import Consumer
from ottla.client.errors import (
    ClientTimeoutError,
    DeliveryError,
    IllegalStateError,
    InvalidArgumentError,
    TransactionAbortableError,
    TransactionAbortedError,
)
from ottla.client.sync import Consumer as SyncConsumer
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from support.fake_cluster import SILENT
from support.fake_transactions import GROUP, P, Q, VirtualTransactionalFakes, producing, until, values


@pytest.fixture
def fake() -> Iterator[VirtualTransactionalFakes]:
    cluster = VirtualTransactionalFakes()
    cluster.topic("t", 0, 0)
    yield cluster
    cluster.close()


# A consumer


REBALANCES = {
    "taken away": ({P: 5}, GROUP, r"lost t-1;"),
    "all taken away, the next assignment not there yet": ({}, GROUP, r"lost t-0, t-1;"),
    "taken away and given back": ({P: 5, Q: 1}, replace(GROUP, generation_id=8), r"inside of the transaction;"),
}


@pytest.mark.spec("P6")
@pytest.mark.parametrize("how", REBALANCES)
def test_a_rebalance_inside_of_a_context_aborts(fake, how):
    """The transaction has records of the partitions that were taken away, and without it would lack their offsets."""

    class Read:
        now = ({P: 4, Q: 7}, GROUP)

        def positions(self):
            return self.now[0]

        def group_metadata(self):
            return self.now[1]

    async def work(producer):
        consumer = Read()
        *then, message = REBALANCES[how]

        async def rebalanced_inside():
            async with producer.transaction(consumer):
                await (await producer.send("t", b"v", partition=0))
                consumer.now = then

        with pytest.raises(TransactionAbortableError, match=message):
            await rebalanced_inside()
        consumer.now = ({P: 4}, replace(GROUP, generation_id=-1))
        async with producer.transaction(consumer):  # joins in it
            consumer.now = ({P: 5, Q: 1}, GROUP)

    producing(fake, work)
    assert fake.ended == [("abort", {P}), ("commit", {"g"})]
    assert fake.committed == {P: 5, Q: 1}


@pytest.mark.spec("P6")
def test_a_context_refuses_a_consumer_that_commits_by_itself(fake):
    """It would commit the positions of a transaction that is aborted: when it is closed, say."""

    async def work(producer):
        servers = {"bootstrap_servers": fake.bootstrap, "group_id": "g"}
        consumer = Consumer(**servers, environment=fake.environment)
        with SyncConsumer(**servers) as blocking:
            for each in (consumer, blocking):
                with pytest.raises(InvalidArgumentError, match=r"give it enable\.auto\.commit=false"):
                    async with producer.transaction(each):
                        pass
        await consumer.close()
        await producer.begin_transaction()
        await producer.abort_transaction()

    producing(fake, work)
    assert fake.ended == []


# Other tasks


@pytest.mark.spec("P6")
@pytest.mark.parametrize("method", ["commit_transaction", "abort_transaction"])
def test_close_lets_the_end_of_a_transaction_come_first(fake, caplog, method):
    """Else nobody would know whether what another task commits is committed."""

    async def work(producer):
        await producer.begin_transaction()
        await (await producer.send("t", b"v", partition=0))
        fake.faults[ApiKey.END_TXN].extend([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3)
        ending = asyncio.get_running_loop().create_task(getattr(producer, method)())
        await until(lambda: fake.asked(ApiKey.END_TXN))
        await producer.close()
        await ending

    producing(fake, work)
    assert fake.ended == [(method.partition("_")[0], {P})]
    assert "abort" not in caplog.text


@pytest.mark.spec("P6", "X3")
def test_close_takes_no_longer_than_its_timeout(fake):
    async def work(producer):
        await producer.begin_transaction()
        fake.faults[ApiKey.PRODUCE].extend([SILENT] * 1000)
        await producer.send("t", b"v", partition=0)
        await until(lambda: fake.asked(ApiKey.PRODUCE))
        loop = asyncio.get_running_loop()
        before = loop.time()
        with pytest.raises(DeliveryError):
            await producer.close(timeout_ms=1000)
        return loop.time() - before

    assert producing(fake, work) < 1.5


# Other threads


def slip_in(producer, value, partition=0):
    """The future of a record whose thread had asked before the state changed whether it may send."""
    delegate = producer._delegate
    refusal, delegate.refusal = delegate.refusal, None
    try:
        return delegate.take("t", partition, None, None, value, ())
    finally:
        delegate.refusal = refusal


@pytest.mark.spec("P6", "X3")
@pytest.mark.parametrize("api_key", [ApiKey.PRODUCE, ApiKey.END_TXN])
def test_an_abort_fails_the_records_that_other_threads_were_about_to_send(fake, api_key):
    """They are not waited for, and not part of the next transaction."""

    async def work(producer):
        await producer.begin_transaction()
        fake.faults[api_key].append(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)  # a pause
        await producer.send("t", b"sent", partition=0)
        await until(lambda: fake.asked(ApiKey.PRODUCE))
        aborting = asyncio.get_running_loop().create_task(producer.abort_transaction())
        await asyncio.sleep(0)
        await until(lambda: fake.asked(api_key))
        late = slip_in(producer, b"late")
        with pytest.raises(TransactionAbortedError):
            await late
        assert not aborting.done()
        await aborting
        async with producer.transaction():
            await producer.send("t", b"next", partition=0)

    producing(fake, work)
    assert values(fake) == [b"sent", b"next"]
    assert fake.ended == [("abort", {P}), ("commit", {P})]


@pytest.mark.spec("P6", "X3")
def test_a_record_that_is_too_late_for_a_commit_is_refused_and_does_not_delay_it(fake):
    async def work(producer):
        await producer.begin_transaction()
        fake.faults[ApiKey.END_TXN].extend([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 1000)
        await producer.send("t", b"kept", partition=0)
        committing = asyncio.get_running_loop().create_task(producer.commit_transaction())
        await until(lambda: fake.asked(ApiKey.END_TXN))
        late = slip_in(producer, b"late")
        with pytest.raises(IllegalStateError, match="commit_transaction has not ended"):
            await late
        with pytest.raises(ClientTimeoutError, match="within 1000 ms"):
            await committing
        fake.faults[ApiKey.END_TXN].clear()
        await producer.commit_transaction()
        async with producer.transaction():
            await producer.send("t", b"next", partition=0)

    producing(fake, work, settings={"max_block_ms": 1000})
    assert values(fake) == [b"kept", b"next"]
    assert fake.ended == [("commit", {P}), ("commit", {P})]


@pytest.mark.spec("P6", "X3")
def test_a_record_between_two_transactions_is_refused_and_not_waited_for(fake):
    async def work(producer):
        async with producer.transaction():
            await producer.send("t", b"kept", partition=0)
        late = slip_in(producer, b"late")
        with pytest.raises(DeliveryError, match="no transaction is open"):
            await producer.flush(timeout_ms=1000)
        with pytest.raises(IllegalStateError):
            await late
        async with producer.transaction():
            await producer.send("t", b"next", partition=0)

    producing(fake, work)
    assert values(fake) == [b"kept", b"next"]
