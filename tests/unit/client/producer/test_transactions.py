"""Transactions of a producer against fake brokers: what it asks of them, and what each error does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest

from ottla.client import OffsetAndMetadata, Producer
from ottla.client.errors import (
    AuthorizationError,
    BrokerError,
    ClientTimeoutError,
    DeliveryError,
    IllegalStateError,
    InvalidArgumentError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    UnsupportedVersionError,
)
from ottla.client.sync import Producer as SyncProducer
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from support.fake_transactions import (
    GROUP,
    P,
    Q,
    TransactionalFakes,
    VirtualTransactionalFakes,
    producing,
    until,
    values,
)
from support.quick_settings import QUICK_PRODUCER


@pytest.fixture
def fake() -> Iterator[VirtualTransactionalFakes]:
    cluster = VirtualTransactionalFakes()
    cluster.topic("t", 0, 0)
    yield cluster
    cluster.close()


async def send_all(producer):
    """Records and offsets, and the commit."""
    await producer.send("t", b"lost", partition=0)
    await producer.send_offsets_to_transaction({P: 1}, GROUP)
    await producer.commit_transaction()


async def fail_inside(producer):
    async with producer.transaction():
        await (await producer.send("t", b"not kept", partition=0))
        raise ZeroDivisionError


@pytest.mark.spec("P6")
def test_partitions_are_added_before_their_records_are_sent_and_then_committed(fake):
    async def work(producer):
        await producer.begin_transaction()
        futures = [await producer.send("t", b"%d" % at, partition=at % 2) for at in range(6)]
        await producer.commit_transaction()
        return [future.done() for future in futures]

    assert producing(fake, work) == [True] * 6
    assert values(fake, P) == [b"0", b"2", b"4"]
    assert values(fake, Q) == [b"1", b"3", b"5"]
    assert fake.ended == [("commit", {P, Q})]
    order = [key for _, key, _ in fake.requests if key not in (ApiKey.API_VERSIONS, ApiKey.METADATA)]
    assert order[:3] == [ApiKey.FIND_COORDINATOR, ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN]
    assert order[-1] == ApiKey.END_TXN
    assert all(request.transactional_id == "x" for request in fake.requests_of(ApiKey.PRODUCE))
    [(epoch, first), *_] = fake.epochs(P)
    assert (epoch, first) == (0, 0)


@pytest.mark.spec("P6")
def test_the_next_transaction_adds_its_partitions_again_and_goes_on_counting(fake):
    async def work(producer):
        for at in range(3):
            await producer.begin_transaction()
            await producer.send("t", b"%d" % at, partition=0)
            await producer.commit_transaction()

    producing(fake, work)
    assert fake.ended == [("commit", {P})] * 3
    assert fake.epochs(P) == [(0, 0), (0, 1), (0, 2)]
    assert fake.asked(ApiKey.ADD_PARTITIONS_TO_TXN) == 3


@pytest.mark.spec("P6")
def test_an_aborted_transaction_is_forgotten_and_the_next_one_goes_on(fake):
    async def work(producer):
        await producer.begin_transaction()
        sent = await producer.send("t", b"sent", partition=0)
        await sent
        unsent = await producer.send("t", b"unsent", partition=0)
        await producer.abort_transaction()
        with pytest.raises(TransactionAbortedError):
            await unsent
        await producer.begin_transaction()
        await producer.send("t", b"again", partition=0)
        await producer.commit_transaction()

    producing(fake, work, settings={"linger_ms": 1000, "batch_size": 1})
    assert values(fake) == [b"sent", b"again"]
    assert fake.ended == [("abort", {P}), ("commit", {P})]
    assert fake.asked(ApiKey.INIT_PRODUCER_ID) == 1
    assert fake.epochs(P) == [(0, 0), (0, 1)]


@pytest.mark.spec("P6")
@pytest.mark.parametrize("method", ["commit_transaction", "abort_transaction"])
def test_of_an_empty_transaction_the_coordinator_hears_nothing(fake, method):
    async def work(producer):
        await producer.begin_transaction()
        await getattr(producer, method)()
        await producer.begin_transaction()
        await getattr(producer, method)()

    producing(fake, work)
    assert fake.asked(ApiKey.END_TXN) == 0


@pytest.mark.spec("P6")
def test_offsets_go_to_the_groups_coordinator_with_the_member(fake):
    async def work(producer):
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({P: OffsetAndMetadata(5, "why", 3), Q: 6}, GROUP)
        assert fake.committed == {}
        await producer.commit_transaction()

    producing(fake, work)
    assert fake.ended == [("commit", {"g"})]
    assert fake.committed == {P: 5, Q: 6}
    [request] = fake.requests_of(ApiKey.TXN_OFFSET_COMMIT)
    assert (request.generation_id, request.member_id, request.group_instance_id) == (7, "member", "instance")
    [first, second] = request.topics[0].partitions
    assert (first.committed_metadata, first.committed_leader_epoch) == ("why", 3)
    assert (second.committed_metadata, second.committed_leader_epoch) == ("", -1)


@pytest.mark.spec("P6")
def test_the_context_commits_and_aborts(fake):
    async def work(producer):
        async with producer.transaction() as same:
            assert same is producer
            await producer.send("t", b"kept", partition=0)
        with pytest.raises(ZeroDivisionError):
            await fail_inside(producer)
        async with producer.transaction():
            await producer.send("t", b"kept, too", partition=0)

    producing(fake, work)
    assert [verb for verb, _ in fake.ended] == ["commit", "abort", "commit"]


@pytest.mark.spec("P6")
def test_the_context_initializes_and_sends_the_positions_of_a_consumer(fake):
    class Read:
        def positions(self):
            return {P: OffsetAndMetadata(9)}

        def group_metadata(self):
            return GROUP

    async def body():
        made = Producer(
            bootstrap_servers=fake.bootstrap, transactional_id="x", environment=fake.environment, **QUICK_PRODUCER
        )
        async with made as producer, producer.transaction(Read()):
            await producer.send("t", b"v", partition=0)

    fake.run_to_end(body())
    assert fake.ended == [("commit", {P, "g"})]
    assert fake.committed == {P: 9}


@pytest.mark.spec("P6")
def test_a_cancelled_context_aborts(fake):
    async def work(producer):
        async def inside():
            async with producer.transaction():
                await (await producer.send("t", b"v", partition=0))
                await asyncio.Event().wait()

        task = asyncio.get_running_loop().create_task(inside())
        await until(lambda: fake.logs[P].batches)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await producer.begin_transaction()
        await producer.abort_transaction()

    producing(fake, work)
    assert fake.ended == [("abort", {P})]


# Calls that do not fit


@pytest.mark.spec("P6")
def test_without_a_transactional_id_calls_say_what_to_set(fake):
    async def body():
        async with Producer(
            bootstrap_servers=fake.bootstrap, environment=fake.environment, **QUICK_PRODUCER
        ) as producer:
            for call in (
                producer.init_transactions,
                producer.begin_transaction,
                producer.commit_transaction,
                producer.abort_transaction,
                producer.transaction().__aenter__,
            ):
                with pytest.raises(IllegalStateError, match=r"set transactional\.id"):
                    await call()
            with pytest.raises(IllegalStateError, match=r"set transactional\.id"):
                await producer.send_offsets_to_transaction({P: 1}, GROUP)
            await (await producer.send("t", b"v", partition=0))

    fake.run_to_end(body())
    assert values(fake) == [b"v"]


@pytest.mark.spec("P6")
def test_calls_that_do_not_fit_say_what_to_call(fake):
    async def body():
        made = Producer(
            bootstrap_servers=fake.bootstrap, environment=fake.environment, transactional_id="x", **QUICK_PRODUCER
        )
        async with made as producer:
            with pytest.raises(IllegalStateError, match="call init_transactions first"):
                await producer.begin_transaction()
            with pytest.raises(IllegalStateError, match=r"send is not possible now: .* call init_transactions first"):
                await producer.send("t", b"v")
            await producer.init_transactions()
            with pytest.raises(IllegalStateError, match="init_transactions is not possible now"):
                await producer.init_transactions()
            with pytest.raises(IllegalStateError, match="call begin_transaction first"):
                await producer.send("t", b"v")
            with pytest.raises(IllegalStateError, match="call begin_transaction first"):
                await producer.send_many([(b"k", b"v")], "t")
            with pytest.raises(IllegalStateError, match="call begin_transaction first"):
                await producer.commit_transaction()
            assert len(await producer.partitions_for("t")) == 2
            await producer.flush()
            await producer.begin_transaction()
            with pytest.raises(IllegalStateError, match="commit or abort it first"):
                await producer.begin_transaction()
            with pytest.raises(InvalidArgumentError, match="the group is a consumer of ottla"):
                await producer.send_offsets_to_transaction({P: 1}, "g")
            with pytest.raises(InvalidArgumentError, match="the offset of t-0 is a whole number"):
                await producer.send_offsets_to_transaction({P: "one"}, GROUP)
            await producer.abort_transaction()

    fake.run_to_end(body())
    assert fake.asked(ApiKey.PRODUCE) == 0


# Errors: tried again


RETRIED = [
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    "DROP",
    "DROP_AFTER",
]


@pytest.mark.spec("X3")
@pytest.mark.parametrize("fault", RETRIED)
@pytest.mark.parametrize(
    "api_key",
    [
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.END_TXN,
    ],
)
def test_what_passes_is_tried_again(fake, faults, api_key, fault):
    fake.faults[api_key].extend([faults.get(fault, fault)] * 2)

    async def work(producer):
        async with producer.transaction():
            await producer.send("t", b"v", partition=0)
            await producer.send_offsets_to_transaction({P: 1}, GROUP)

    producing(fake, work)
    assert values(fake) == [b"v"]
    assert fake.ended == [("commit", {P, "g"})]
    assert fake.committed == {P: 1}
    assert fake.asked(api_key) == 3
    # A coordinator that moved, or does not answer, is looked up again; one that is busy is not.
    busy = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS)
    assert (fake.asked(ApiKey.FIND_COORDINATOR) == 2) == (fault in busy)


@pytest.mark.spec("X3")
@pytest.mark.parametrize(
    ("api_key", "method"),
    [(ApiKey.INIT_PRODUCER_ID, "init_transactions"), (ApiKey.END_TXN, "commit_transaction")],
)
def test_a_call_that_ran_out_of_time_is_called_again(fake, api_key, method):
    async def body():
        async with Producer(
            bootstrap_servers=fake.bootstrap,
            environment=fake.environment,
            transactional_id="x",
            **{**QUICK_PRODUCER, "max_block_ms": 1000},
        ) as producer:
            if api_key == ApiKey.END_TXN:
                await producer.init_transactions()
                await producer.begin_transaction()
                await producer.send("t", b"v", partition=0)
            fake.faults[api_key].extend([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 1000)
            with pytest.raises(ClientTimeoutError, match="within 1000 ms"):
                await getattr(producer, method)()
            with pytest.raises(IllegalStateError, match=f"{method} has not .*; call it again"):
                await producer.begin_transaction()
            with pytest.raises(IllegalStateError, match=f"{method} has not .*; call it again"):
                await producer.abort_transaction()
            fake.faults[api_key].clear()
            await getattr(producer, method)()
            await producer.begin_transaction()
            await producer.abort_transaction()

    fake.run_to_end(body())
    assert [verb for verb, _ in fake.ended] == ["commit"] * (api_key == ApiKey.END_TXN)


@pytest.mark.spec("X3")
def test_a_context_that_got_no_producer_id_in_time_gets_one_the_next_time(fake):
    async def body():
        made = Producer(
            bootstrap_servers=fake.bootstrap,
            environment=fake.environment,
            transactional_id="x",
            **{**QUICK_PRODUCER, "max_block_ms": 1000},
        )
        async with made as producer:
            fake.faults[ApiKey.INIT_PRODUCER_ID].extend([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 1000)
            with pytest.raises(ClientTimeoutError):
                async with producer.transaction():
                    pass
            fake.faults[ApiKey.INIT_PRODUCER_ID].clear()
            async with producer.transaction():
                await producer.send("t", b"v", partition=0)

    fake.run_to_end(body())
    assert fake.ended == [("commit", {P})]


@pytest.mark.spec("X3")
def test_an_abort_that_ran_out_of_time_is_called_again(fake):
    async def work(producer):
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        await producer.flush()
        fake.faults[ApiKey.END_TXN].extend([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 1000)
        with pytest.raises(ClientTimeoutError):
            await producer.abort_transaction()
        fake.faults[ApiKey.END_TXN].clear()
        await producer.abort_transaction()
        await producer.begin_transaction()

    producing(fake, work, settings={"max_block_ms": 1000})
    assert fake.ended == [("abort", {P})]


# Errors: the transaction must be aborted


ABORTABLE = [
    (ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.TOPIC_AUTHORIZATION_FAILED, False),
    (ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.TRANSACTION_ABORTABLE, False),
    (ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.UNKNOWN_PRODUCER_ID, True),
    (ApiKey.PRODUCE, ErrorCode.TOPIC_AUTHORIZATION_FAILED, True),
    (ApiKey.PRODUCE, ErrorCode.MESSAGE_TOO_LARGE, True),
    (ApiKey.PRODUCE, ErrorCode.UNKNOWN_PRODUCER_ID, True),
    (ApiKey.PRODUCE, ErrorCode.INVALID_PRODUCER_EPOCH, True),
    (ApiKey.PRODUCE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, True),
    (ApiKey.PRODUCE, ErrorCode.TRANSACTION_ABORTABLE, True),
    (ApiKey.ADD_OFFSETS_TO_TXN, ErrorCode.GROUP_AUTHORIZATION_FAILED, False),
    (ApiKey.ADD_OFFSETS_TO_TXN, ErrorCode.UNKNOWN_PRODUCER_ID, True),
    (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.ILLEGAL_GENERATION, False),
    (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.UNKNOWN_MEMBER_ID, False),
    (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.FENCED_INSTANCE_ID, False),
    (ApiKey.END_TXN, ErrorCode.TRANSACTION_ABORTABLE, False),
    (ApiKey.END_TXN, ErrorCode.UNKNOWN_PRODUCER_ID, True),
]


@pytest.mark.spec("X3")
@pytest.mark.parametrize(("api_key", "code", "renews"), ABORTABLE)
def test_after_an_abort_the_producer_goes_on(fake, api_key, code, renews):
    async def work(producer):
        await producer.begin_transaction()
        fake.faults[api_key].append(code)
        with pytest.raises(TransactionAbortableError, match="call abort_transaction") as raised:
            await send_all(producer)
        assert isinstance(raised.value.__cause__, BrokerError)
        assert raised.value.__cause__.code == code
        for call in (producer.commit_transaction, lambda: producer.send("t", b"w")):
            with pytest.raises(TransactionAbortableError, match=code.name):
                await call()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"kept", partition=0)

    producing(fake, work)
    assert values(fake)[-1] == b"kept"
    assert fake.ended[-1] == ("commit", {P})
    assert fake.asked(ApiKey.INIT_PRODUCER_ID) == 1 + renews
    epoch, first = fake.epochs(P)[-1]
    assert epoch == renews
    assert not renews or first == 0
    assert fake.committed == {}


@pytest.mark.spec("X3")
def test_records_that_were_not_sent_fail_with_the_transaction(fake):
    async def work(producer):
        await producer.begin_transaction()
        fake.faults[ApiKey.PRODUCE].append(ErrorCode.INVALID_RECORD)
        refused = await producer.send("t", b"refused", partition=0)
        waiting = await producer.send("t", b"waiting", partition=0)
        with pytest.raises(BrokerError, match="INVALID_RECORD"):
            await refused
        with pytest.raises(TransactionAbortableError, match="INVALID_RECORD"):
            await waiting
        await producer.abort_transaction()

    producing(fake, work, settings={"batch_size": 1})
    assert fake.ended == [("abort", {P})]


@pytest.mark.spec("X3")
def test_a_batch_that_ran_out_of_time_aborts_and_bumps_the_epoch(fake, faults):
    async def work(producer):
        await producer.begin_transaction()
        fake.faults[ApiKey.PRODUCE].extend([faults["SILENT"]] * 20)
        await producer.send("t", b"lost", partition=0)
        with pytest.raises(TransactionAbortableError, match=r"delivery\.timeout\.ms"):
            await producer.commit_transaction()
        fake.faults[ApiKey.PRODUCE].clear()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"kept", partition=0)

    producing(fake, work, settings={"request_timeout_ms": 500, "delivery_timeout_ms": 2000})
    assert values(fake) == [b"kept"]
    assert fake.epochs(P) == [(1, 0)]


@pytest.mark.spec("X3")
def test_a_producer_id_that_the_coordinator_forgot_is_not_ended_but_renewed(fake):
    async def work(producer):
        await producer.begin_transaction()
        fake.faults[ApiKey.ADD_PARTITIONS_TO_TXN].append(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        await producer.send("t", b"lost", partition=0)
        with pytest.raises(TransactionAbortableError, match="INVALID_PRODUCER_ID_MAPPING"):
            await producer.commit_transaction()
        await producer.abort_transaction()

    producing(fake, work)
    assert fake.asked(ApiKey.END_TXN) == 0
    assert fake.asked(ApiKey.INIT_PRODUCER_ID) == 2


@pytest.mark.spec("X3")
def test_offsets_that_ran_out_of_time_abort_the_transaction(fake):
    async def work(producer):
        await producer.begin_transaction()
        fake.faults[ApiKey.TXN_OFFSET_COMMIT].extend([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 1000)
        with pytest.raises(TransactionAbortableError, match="did not succeed within 1000 ms"):
            await producer.send_offsets_to_transaction({P: 1}, GROUP)
        await producer.abort_transaction()

    producing(fake, work, settings={"max_block_ms": 1000})
    assert fake.ended == [("abort", {"g"})]


@pytest.mark.spec("X3")
def test_offsets_take_no_longer_than_their_time_with_both_coordinators(fake):
    async def work(producer):
        await producer.begin_transaction()
        fake.faults[ApiKey.ADD_OFFSETS_TO_TXN].extend([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 8)
        fake.faults[ApiKey.TXN_OFFSET_COMMIT].extend([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 1000)
        loop = asyncio.get_running_loop()
        before = loop.time()
        with pytest.raises(TransactionAbortableError, match="did not succeed within 1000 ms"):
            await producer.send_offsets_to_transaction({P: 1}, GROUP)
        spent = loop.time() - before
        await producer.abort_transaction()
        return spent

    pause = {"retry_backoff_ms": 100, "retry_backoff_max_ms": 100}
    assert producing(fake, work, settings={"max_block_ms": 1000} | pause) < 1.2


# Errors: the producer must be closed


FATAL = [
    (ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.PRODUCER_FENCED, ProducerFencedError),
    (ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.INVALID_PRODUCER_EPOCH, ProducerFencedError),
    (ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.INVALID_TXN_STATE, BrokerError),
    (ApiKey.ADD_OFFSETS_TO_TXN, ErrorCode.PRODUCER_FENCED, ProducerFencedError),
    (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.INVALID_PRODUCER_EPOCH, ProducerFencedError),
    (ApiKey.PRODUCE, ErrorCode.PRODUCER_FENCED, ProducerFencedError),
    (ApiKey.PRODUCE, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, AuthorizationError),
    (ApiKey.END_TXN, ErrorCode.PRODUCER_FENCED, ProducerFencedError),
    (ApiKey.END_TXN, ErrorCode.INVALID_TXN_STATE, BrokerError),
    (ApiKey.END_TXN, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, AuthorizationError),
]


@pytest.mark.spec("X3")
@pytest.mark.parametrize(("api_key", "code", "kind"), FATAL)
def test_a_producer_that_is_out_of_the_game_says_so_from_then_on(fake, api_key, code, kind):
    async def work(producer):
        await producer.begin_transaction()
        fake.faults[api_key].append(code)
        with pytest.raises(kind):
            await send_all(producer)
        for call in (
            producer.commit_transaction,
            producer.abort_transaction,
            producer.begin_transaction,
            lambda: producer.send("t", b"w"),
        ):
            with pytest.raises(kind):
                await call()
        with suppress(DeliveryError):
            await producer.flush()

    producing(fake, work)
    assert fake.ended == []
    assert fake.committed == {}


@pytest.mark.spec("P6", "X3")
def test_a_zombie_is_fenced(fake):
    async def body():
        def make():
            return Producer(
                bootstrap_servers=fake.bootstrap, environment=fake.environment, transactional_id="x", **QUICK_PRODUCER
            )

        async with make() as newer:
            older = make()
            await older.init_transactions()
            await older.begin_transaction()
            await (await older.send("t", b"lost", partition=0))
            await newer.init_transactions()
            await older.send("t", b"lost", partition=1)
            with pytest.raises(ProducerFencedError, match=r"another producer with this transactional\.id has begun"):
                await older.commit_transaction()
            with pytest.raises(DeliveryError):
                await older.close()
            async with newer.transaction():
                await newer.send("t", b"kept", partition=0)

    fake.run_to_end(body())
    assert fake.ended == [("abort", {P}), ("commit", {P})]


@pytest.mark.spec("X3")
def test_a_broker_that_cannot_give_a_new_epoch_ends_the_producer(fake):
    fake.newest_versions[ApiKey.INIT_PRODUCER_ID] = 2

    async def work(producer):
        await producer.begin_transaction()
        fake.faults[ApiKey.PRODUCE].append(ErrorCode.INVALID_RECORD)
        await producer.send("t", b"v", partition=0)
        with pytest.raises(TransactionAbortableError):
            await producer.commit_transaction()
        with pytest.raises(UnsupportedVersionError, match="INIT_PRODUCER_ID in versions 0 to 2"):
            await producer.abort_transaction()
        with pytest.raises(UnsupportedVersionError):
            await producer.begin_transaction()

    with pytest.raises(DeliveryError):
        producing(fake, work)


# The end of a producer


@pytest.mark.spec("P6")
def test_close_aborts_what_is_open(fake, caplog):
    async def work(producer):
        await producer.begin_transaction()
        await (await producer.send("t", b"v", partition=0))
        await producer.send("t", b"w", partition=0)

    producing(fake, work, settings={"linger_ms": 100})
    assert fake.ended == [("abort", {P})]
    assert "closed with an open transaction (transactional.id=x); it is aborted" in caplog.text


@pytest.mark.spec("P6")
def test_an_abort_waits_for_what_is_on_its_way(fake):
    """Else the broker might write a record behind the marker, into the next transaction."""

    async def work(producer):
        await producer.begin_transaction()
        fake.faults[ApiKey.PRODUCE].append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        sent = await producer.send("t", b"v", partition=0)
        await until(lambda: fake.asked(ApiKey.PRODUCE))
        await producer.abort_transaction()
        assert (await sent).offset == 0

    producing(fake, work)
    order = [key for _, key, _ in fake.requests]
    assert len(order) - 1 - order[::-1].index(ApiKey.PRODUCE) < order.index(ApiKey.END_TXN)
    assert fake.ended == [("abort", {P})]


# Without an event loop


@pytest.fixture
def threaded_fake() -> Iterator[TransactionalFakes]:
    cluster = TransactionalFakes()
    cluster.topic("t", 0, 0)
    yield cluster
    cluster.close()


@pytest.mark.spec("P6")
def test_a_blocking_producer_has_the_same(threaded_fake):
    class Read:
        def positions(self):
            return {P: OffsetAndMetadata(9)}

        def group_metadata(self):
            return GROUP

    def fail() -> None:
        with producer.transaction():
            producer.send("t", b"not kept", partition=0).result(60)
            raise ZeroDivisionError

    with SyncProducer(bootstrap_servers=threaded_fake.bootstrap, transactional_id="x", **QUICK_PRODUCER) as producer:
        with producer.transaction(Read()) as same:
            assert same is producer
            producer.send("t", b"kept", partition=0)
        with pytest.raises(ZeroDivisionError):
            fail()
        producer.begin_transaction()
        producer.send_many([(None, b"%d" % at) for at in range(10)], "t")
        producer.send_offsets_to_transaction({P: 10}, Read())
        producer.commit_transaction()
        producer.begin_transaction()
        producer.abort_transaction()
        with pytest.raises(IllegalStateError, match="call begin_transaction first"):
            producer.send("t", b"v")
        with pytest.raises(IllegalStateError, match="init_transactions is not possible now"):
            producer.init_transactions()
    assert [verb for verb, _ in threaded_fake.ended] == ["commit", "abort", "commit"]
    assert threaded_fake.committed == {P: 10}


@pytest.mark.spec("X3")
def test_a_blocking_producer_that_is_fenced_says_so(threaded_fake):
    settings = {"bootstrap_servers": threaded_fake.bootstrap, "transactional_id": "x", **QUICK_PRODUCER}
    with SyncProducer(**settings) as newer:
        older = SyncProducer(**settings)
        older.init_transactions()
        older.begin_transaction()
        older.send("t", b"lost", partition=0).result(60)
        newer.init_transactions()
        with pytest.raises(ProducerFencedError):
            older.commit_transaction()
        with pytest.raises(ProducerFencedError):
            older.send("t", b"lost")
        older.close()
