"""What is easily overlooked in a consumer: room, timers and news that nobody asks for."""

from __future__ import annotations

import asyncio
import gc
import re
import threading
import time
import uuid

import pytest

import ottla.client
import ottla.client.sync
from ottla.client.consumer.consumer_metadata import ConsumerMetadata
from ottla.client.consumer.fetcher import Fetcher
from ottla.client.consumer.subscription_state import OffsetReset, SubscriptionState
from ottla.client.errors import ClientError, InvalidArgumentError, RetriableCommitFailedError
from ottla.client.interceptors import ConsumerInterceptor
from ottla.client.model import OffsetAndMetadata
from ottla.peer.cluster import Cluster
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import LeaderIdAndEpoch
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from support.waiting import Stopwatch, wait_until

pytestmark = pytest.mark.usefixtures("patient")


def read(consumer, count):
    found = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        found += consumer.poll(200)
    return [record.offset for record in found]


def delegate_of(consumer):
    consumer = getattr(consumer, "client", consumer)
    return getattr(consumer, "_async", consumer).delegate


@pytest.mark.spec("C1")
def test_what_was_fetched_ahead_is_fetched_once(fakes, open_consumer):
    [p] = fakes.topic("t", 0)
    fakes.fill(p, 400)
    one = len(fakes.logs[p].batches[0])
    consumer = open_consumer(max_poll_records=7, max_partition_fetch_bytes=2 * one)
    consumer.assign([p])
    assert read(consumer, 400) == list(range(400))
    offsets = [
        each.fetch_offset for one in fakes.requests_of(ApiKey.FETCH) for t in one.topics for each in t.partitions
    ]
    ahead = [each for each in offsets if each < 400]
    assert ahead == sorted(set(ahead))


@pytest.mark.spec("C1")
def test_records_of_partitions_that_are_not_assigned_any_more_take_no_room(fakes, open_consumer):
    p, q = fakes.topic("t", 0, 1)
    fakes.fill(p, 100)
    fakes.fill(q, 10)
    consumer = open_consumer(max_poll_records=1, fetch_max_bytes=500)
    consumer.assign([p])
    read(consumer, 1)
    consumer.assign([q])
    watch = Stopwatch()
    assert consumer.poll(5000)
    assert watch.seconds() < 3


@pytest.mark.spec("C3")
def test_assigned_partitions_are_committed_without_being_asked_for(fakes, open_consumer):
    [p] = fakes.topic("t", 0)
    fakes.fill(p, 10)
    consumer = open_consumer(group_id="g", auto_commit_interval_ms=20)
    consumer.assign([p])
    consumer.seek(p, 3)
    read(consumer, 7)
    wait_until(lambda: consumer.poll(20) or fakes.committed.get(p) == 10, "the commit")


def epoch_end(partition, end_offset, epoch):
    names = EpochEndOffset(partition=partition.partition, leader_epoch=epoch, end_offset=end_offset)
    topic = OffsetForLeaderTopicResult(topic=partition.topic, partitions=[names])
    return OffsetForLeaderEpochResponse(topics=[topic])


@pytest.mark.spec("C1")
def test_a_topic_that_is_made_anew_begins_its_epochs_anew(fakes, open_consumer):
    [p] = fakes.topic("t", 0)
    fakes.leader_epochs[p] = 5
    fakes.topic_ids["t"] = uuid.UUID(int=1)
    fakes.fill(p, 20)
    consumer = open_consumer(metadata_max_age_ms=100)
    consumer.assign([p])
    assert read(consumer, 20) == list(range(20))
    on_fetch = fakes._fetched

    def fetched(node, topic, wanted, code, is_first):
        if wanted.current_leader_epoch > fakes.leader_epochs[p]:
            code = ErrorCode.UNKNOWN_LEADER_EPOCH
        return on_fetch(node, topic, wanted, code, is_first)

    fakes._fetched = fetched
    fakes.leader_epochs[p] = 0
    fakes.topic_ids["t"] = uuid.UUID(int=2)
    fakes.on_offset_for_leader_epoch = lambda node, request, code: epoch_end(p, -1, -1)
    del fakes.logs[p]
    fakes.fill(p, 10)
    assert read(consumer, 10) == list(range(10))


@pytest.mark.slow
@pytest.mark.spec("C1")
def test_a_pause_for_a_partition_does_not_forget_that_for_a_broker(fakes):
    p, q = fakes.topic("t", 0, 0)
    fakes.fill(p, 10)

    def throttled(request):
        answer = fakes.on_fetch(0, request, None)
        answer = getattr(answer, "answer", answer)
        answer.throttle_time_ms = 300
        for each in answer.responses[0].partitions:
            each.error_code, each.records = ErrorCode.NOT_LEADER_OR_FOLLOWER, b""
        return answer

    async def main():
        fakes.faults[ApiKey.FETCH].append(throttled)
        async with ottla.client.Consumer(
            bootstrap_servers=fakes.bootstrap, auto_offset_reset="earliest", retry_backoff_ms=10
        ) as consumer:
            await consumer.assign([p, q])
            async with asyncio.timeout(60):
                async for record in consumer:
                    assert record.offset == 0
                    return

    asyncio.run(main())


@pytest.mark.spec("C7")
def test_a_topic_that_only_others_read_and_is_gone_is_not_asked_for_all_the_time(virtual_fakes, with_cluster):
    virtual_fakes.topic("t", 0)

    async def work(cluster: Cluster):
        subscriptions = SubscriptionState()
        subscriptions.subscribe_pattern(re.compile("t"))
        subscriptions.subscribe_from_pattern({"t"})
        subscriptions.group_subscribe(["t", "gone"])
        metadata = ConsumerMetadata(cluster, subscriptions, lambda: None)
        metadata.check()
        await asyncio.sleep(0.2)  # sleep: virtual; time in which it could ask many times
        await metadata.close()

    with_cluster(virtual_fakes, work, retry_backoff_ms=5, retry_backoff_max_ms=1000)
    assert len(virtual_fakes.requests_of(ApiKey.METADATA)) <= 3


@pytest.mark.spec("C3")
def test_a_commit_that_cannot_be_written(fakes, open_consumer):
    [p] = fakes.topic("t", 0)
    consumer = open_consumer(group_id="g", enable_auto_commit=False)
    consumer.assign([p])
    consumer.poll(10)
    names = []
    consumer.commit_async({p: OffsetAndMetadata(5, "\ud800")}, lambda *each: names.append(each))
    consumer.commit_async({p: OffsetAndMetadata(6)}, lambda *each: names.append(each))
    wait_until(lambda: consumer.poll(20) or len(names) == 2, "both to be called back")


@pytest.mark.spec("C3")
def test_a_commit_with_a_text_that_no_request_can_hold(fakes, open_consumer):
    [p] = fakes.topic("t", 0)
    consumer = open_consumer(group_id="g", enable_auto_commit=False)
    consumer.assign([p])
    for commit in (consumer.commit, consumer.commit_async):
        with pytest.raises(
            InvalidArgumentError, match="the text with the offset of t-0 has 40000 bytes, and a string of"
        ):
            commit({p: OffsetAndMetadata(5, "x" * 40_000)})
    assert not fakes.requests_of(ApiKey.OFFSET_COMMIT)


@pytest.mark.spec("C3")
def test_commits_that_nobody_is_called_back_for_are_limited(fakes, open_consumer, monkeypatch):
    monkeypatch.setattr("ottla.client.consumer.commits.MAX_PENDING_COMMITS", 3)
    [p] = fakes.topic("t", 0)
    consumer = open_consumer(group_id="g", enable_auto_commit=False)
    consumer.assign([p])
    names = []
    for offset in range(3):
        consumer.commit_async({p: offset}, lambda offsets, error: names.append((offsets[p].offset, error)))
    wait_until(lambda: fakes.committed.get(p) == 2, "the commits")
    with pytest.raises(RetriableCommitFailedError, match="poll before more are made"):
        consumer.commit_async({p: 3})
    wait_until(lambda: consumer.poll(10) or len(names) == 3, "the callbacks")
    assert names == [(0, None), (1, None), (2, None)]
    consumer.commit_async({p: 4})
    wait_until(lambda: fakes.committed.get(p) == 4, "the commit")


@pytest.mark.spec("C3")
def test_an_auto_commit_that_has_no_room_is_made_later(fakes, open_consumer, monkeypatch):
    monkeypatch.setattr("ottla.client.consumer.commits.MAX_PENDING_COMMITS", 1)
    [p, q] = fakes.topic("t", 0, 0)
    consumer = open_consumer(group_id="g", auto_commit_interval_ms=60_000)
    consumer.assign([p])
    consumer.seek(p, 7)
    consumer.pause([p])
    consumer.commit_async({q: 5})
    consumer.assign([p, q])
    wait_until(lambda: consumer.poll(10) or fakes.committed.get(p) == 7, "the commit of what was assigned before")


@pytest.mark.spec("C1")
def test_a_look_up_of_offsets_that_breaks_is_reported_and_not_repeated_all_the_time(fakes, open_consumer):
    [p] = fakes.topic("t", 0)
    consumer = open_consumer(group_id="g")
    consumer.assign([p])
    times = []

    async def broken(partitions):
        times.append(time.monotonic())
        raise ValueError("broken")

    delegate_of(consumer).coordinator.commits.fetch_committed = broken
    with pytest.raises(ClientError, match="broken"):
        consumer.poll(5000)
    assert len(times) == 1


@pytest.mark.spec("C1")
def test_partitions_do_not_wait_for_offsets_of_others_that_are_gone(fakes, open_consumer):
    p, q = fakes.topic("t", 0, 0)
    fakes.fill(q, 10)
    original = fakes.on_offset_fetch

    def unstable(node, request, code):
        indexes = request.topics[0].partition_indexes
        return original(node, request, ErrorCode.UNSTABLE_OFFSET_COMMIT if p.partition in indexes else code)

    fakes.on_offset_fetch = unstable
    consumer = open_consumer(group_id="g")
    consumer.assign([p])
    assert not consumer.poll(50)
    consumer.assign([q])
    assert read(consumer, 10) == list(range(10))


@pytest.mark.spec("C1")
def test_a_leader_that_changes_while_records_are_iterated_doubles_none(fakes, open_consumer):
    p, q = fakes.topic("t", 0, -1)
    fakes.fill(p, 10)
    fakes.leader_epochs[p] = 0
    consumer = open_consumer(retry_backoff_max_ms=20)
    consumer.assign([p, q])
    iterator = iter(consumer)
    found = [next(iterator).offset for _ in range(3)]
    fakes.leaders[q] = 1
    fakes.leader_epochs[p] = 1
    fakes.on_offset_for_leader_epoch = lambda node, request, code: epoch_end(p, 10, 0)
    assert consumer.position(q) == 0
    found += [next(iterator).offset for _ in range(7)]
    fakes.fill(p, 10)
    found += [next(iterator).offset for _ in range(10)]
    assert found == list(range(20))


@pytest.mark.slow
@pytest.mark.spec("C1")
def test_a_new_leader_is_not_asked_with_the_epoch_of_the_old_one(fakes, open_consumer):
    [p] = fakes.topic("t", 0)
    fakes.fill(p, 10)
    fakes.leader_epochs[p] = 0
    refused = []
    on_fetch = fakes._fetched

    def fetched(node, topic, wanted, code, is_first):
        if wanted.current_leader_epoch < fakes.leader_epochs[p]:
            refused.append(wanted.current_leader_epoch)
            code = ErrorCode.FENCED_LEADER_EPOCH
        return on_fetch(node, topic, wanted, code, is_first)

    fakes._fetched = fetched
    fakes.on_offset_for_leader_epoch = lambda node, request, code: epoch_end(p, 10, 0)
    consumer = open_consumer(retry_backoff_max_ms=20)
    consumer.assign([p])
    assert read(consumer, 10) == list(range(10))
    assert not consumer.poll(1)
    before = len(fakes.requests_of(ApiKey.FETCH))
    fakes.leaders[p] = 1
    fakes.leader_epochs[p] = 1
    wait_until(lambda: len(fakes.requests_of(ApiKey.FETCH)) > before, "a fetch that the old leader refuses")
    time.sleep(0.3)  # sleep: the caller works; time for many fetches
    assert len(refused) <= 2, "that of the old leader, and one before its answer was there"
    fakes.fill(p, 10)
    assert read(consumer, 10) == list(range(10, 20))
    assert len(refused) <= 2


@pytest.mark.spec("C1")
def test_a_leader_that_somebody_else_learned_of_is_gone_to_at_once(fakes, open_consumer):
    [p] = fakes.topic("t", 0)
    fakes.fill(p, 10)
    fakes.on_offset_for_leader_epoch = lambda node, request, code: epoch_end(p, 10, 0)
    consumer = open_consumer()
    consumer.assign([p])
    assert read(consumer, 10) == list(range(10))
    fakes.leaders[p] = 1
    fakes.leader_epochs[p] = 1
    consumer.list_topics()
    fakes.fill(p, 10)
    assert read(consumer, 10) == list(range(10, 20))


@pytest.mark.spec("C1")
@pytest.mark.parametrize("how", ["seek", "seek_to_beginning", "assign"])
def test_a_missing_position_is_not_complained_of_once_it_is_given(fakes, open_consumer, how):
    p, q = fakes.topic("t", 0, 0)
    for each in (p, q):
        fakes.fill(each, 10)
        fakes.committed[q] = 0
    consumer = open_consumer(group_id="g", auto_offset_reset="none", enable_auto_commit=False)
    consumer.assign([p])
    assert not consumer.poll(0)
    wait_until(lambda: delegate_of(consumer).error, "the error that the next poll would raise")
    if how == "seek":
        consumer.seek(p, 0)
    elif how == "seek_to_beginning":
        consumer.seek_to_beginning([p])
    else:
        consumer.assign([q])
    assert read(consumer, 10) == list(range(10))


@pytest.mark.spec("C2")
@pytest.mark.parametrize("method", ["seek", "seek_to_beginning", "seek_to_end"])
def test_seeks_come_between_no_steps_of_the_loop(fakes, method):
    [p] = fakes.topic("t", 0)
    with ottla.client.sync.Consumer(bootstrap_servers=fakes.bootstrap) as consumer:
        consumer.assign([p])
        where = []
        subscriptions = delegate_of(consumer).subscriptions
        for name in ("seek", "request_reset"):
            setattr(subscriptions, name, lambda *_: where.append(threading.get_ident()))
        arguments = (p, 0) if method == "seek" else ([p],)
        getattr(consumer, method)(*arguments)
        assert where == [consumer._thread._thread.ident]


@pytest.mark.spec("C1")
@pytest.mark.parametrize("broken", ["metadata", "positions"])
def test_what_breaks_background_work_is_raised_by_poll(fakes, open_consumer, monkeypatch, broken):
    [p] = fakes.topic("t", 0)
    consumer = open_consumer()

    async def fail(*arguments, **options):
        raise ValueError("broken")

    if broken == "metadata":
        monkeypatch.setattr(delegate_of(consumer).cluster, "refresh", fail)
    else:
        monkeypatch.setattr("ottla.client.consumer.offset_fetcher.list_offsets", fail)
    consumer.assign([p])
    with pytest.raises(ClientError, match=f"{broken} cannot be .*broken"):
        consumer.poll(5000)


@pytest.mark.spec("C1")
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_lookup_that_is_cancelled_before_it_begins_leaves_no_coroutine_behind(fakes):
    [p] = fakes.topic("t", 0)

    async def scenario():
        async with ottla.client.Consumer(bootstrap_servers=fakes.bootstrap, auto_offset_reset="earliest") as consumer:
            await consumer.assign([p])
            await consumer.position(p)
            delegate = delegate_of(consumer)
            delegate.subscriptions.request_reset(p, OffsetReset.EARLIEST)
            delegate.positions.start()
            assert delegate.positions._tasks
            await delegate.positions.close()

    asyncio.run(scenario())
    gc.collect()


@pytest.mark.spec("C3", "C4")
def test_interceptors_hear_of_a_commit_although_a_callback_fails(fakes, open_consumer):
    [p] = fakes.topic("t", 0)
    names = []

    class Recorder(ConsumerInterceptor):
        def on_commit(self, offsets):
            names.append(offsets[p].offset)

    def fail(offsets, error):
        raise ValueError("broken")

    consumer = open_consumer(group_id="g", enable_auto_commit=False, interceptor_classes=[Recorder()])
    consumer.assign([p])
    consumer.commit_async({p: 1}, fail)
    with pytest.raises(ValueError, match="broken"):
        consumer.commit({p: 2})
    wait_until(lambda: consumer.poll(10) or len(names) == 2, "the interceptor")
    assert names == [1, 2]


@pytest.mark.spec("C1")
def test_the_leader_that_an_error_names_is_read_from_at_once(fakes, open_consumer, monkeypatch):
    """KIP-951: without the pause before another attempt, whatever the metadata say."""
    [p] = fakes.topic("t", 0)
    fakes.fill(p, 10)
    fakes.leader_epochs[p] = 0
    on_fetch = fakes._fetched

    def fetched(node, topic, wanted, code, is_first):
        if node == 0 and wanted.fetch_offset >= 10:
            data = on_fetch(node, topic, wanted, ErrorCode.NOT_LEADER_OR_FOLLOWER, is_first)
            data.current_leader = LeaderIdAndEpoch(leader_id=1, leader_epoch=1)
            fakes.leaders[p] = 1
            return data
        return on_fetch(node, topic, wanted, code, is_first)

    fakes.on_offset_for_leader_epoch = lambda node, request, code: epoch_end(p, 20, 0)
    held = []
    on_hold = Fetcher._hold
    monkeypatch.setattr(Fetcher, "_hold", lambda self, what, *pause: (held.append(what), on_hold(self, what, *pause)))
    consumer = open_consumer()
    consumer.assign([p])
    assert read(consumer, 10) == list(range(10))
    fakes._fetched = fetched
    fakes.fill(p, 10)
    assert read(consumer, 10) == list(range(10, 20))
    assert fakes.leaders[p] == 1
    assert p not in held
