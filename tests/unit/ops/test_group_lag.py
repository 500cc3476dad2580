"""Lag: what is committed first, the end after it, and how old what is not read is."""

from __future__ import annotations

import pytest

from ottla.client.model import TopicPartition
from ottla.env.clock import SystemClock
from ottla.ops.group_lag import measure_lag, readable_lag
from ottla.ops.record_times import PARTITION_MAX_BYTES
from ottla.peer.cluster import Cluster
from ottla.records.control import ControlRecordType, end_transaction_record
from ottla.records.record import Record, encode_batch
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode

NOW_MS = 5_000


class FixedNow(SystemClock):
    """Wall time stands still; the timestamps of the fakes' records are 1000 and up."""

    def now_ms(self) -> int:
        return NOW_MS


def lag_of(fake, with_cluster, assigned=()):
    async def work(cluster: Cluster):
        cluster.clock = FixedNow()
        return await measure_lag(cluster, "g", assigned)

    measured = with_cluster(fake, work)
    return measured, {each.partition: each for each in measured.partitions}


def test_in_records_and_in_time(fakes, with_cluster):
    a, b, c = fakes.topic("t", 0, 1, 2)
    for each, count in ((a, 100), (b, 50), (c, 10)):
        fakes.fill(each, count)
    fakes.committed |= {a: 25, b: 50}
    whole, each = lag_of(fakes, with_cluster, [b, c])
    assert [(each[p].lag, each[p].lag_ms) for p in (a, b, c)] == [(75, NOW_MS - 1025), (0, 0), (None, None)]
    assert (whole.lag, whole.lag_ms) == (75, NOW_MS - 1025)
    assert each[c].log_end_offset == 10


def test_the_committed_offset_is_asked_for_before_the_end(fakes, with_cluster):
    a, b = fakes.topic("t", 0, 1)  # one at the coordinator, one elsewhere
    fakes.committed |= {a: 0, b: 0}
    lag_of(fakes, with_cluster)
    keys = [key for _, key, _ in fakes.requests if key in (ApiKey.OFFSET_FETCH, ApiKey.LIST_OFFSETS)]
    fetched = [at for at, key in enumerate(keys) if key == ApiKey.OFFSET_FETCH][-1]
    assert keys[fetched + 1 :].count(ApiKey.LIST_OFFSETS) >= 2
    assert ApiKey.LIST_OFFSETS not in keys[:fetched]


def test_nothing_is_negative(fake, with_cluster):
    a, b = fake.topic("t", 0, 0)
    fake.fill(a, 10)
    fake.fill(b, 10)
    fake.committed |= {a: 999, b: 3}
    fake.logs[b].start = 5
    _, each = lag_of(fake, with_cluster)
    assert (each[a].lag, each[a].lag_ms, each[a].is_beyond_end) == (0, 0, True)
    assert (each[b].lag, each[b].missed, each[b].is_beyond_end) == (7, 2, False)


def test_records_of_the_future_are_not_behind(fake, with_cluster):
    (a,) = fake.topic("t", 0)
    fake.fill(a, 5000)  # timestamps up to 5999
    fake.committed[a] = 4999
    assert lag_of(fake, with_cluster)[1][a].lag_ms == 0


def test_a_topic_that_is_gone(fake, with_cluster):
    gone = TopicPartition("gone", 0)
    fake.committed[gone] = 7
    _, each = lag_of(fake, with_cluster)
    assert (each[gone].committed_offset, each[gone].log_end_offset, each[gone].lag) == (7, None, None)


def test_a_partition_without_a_leader_holds_nobody_up(fake, with_cluster):
    a, b = fake.topic("t", 0, -1)
    fake.fill(a, 10)
    fake.committed |= {a: 4, b: 4}
    _, each = lag_of(fake, with_cluster)
    assert (each[a].lag, each[b].lag) == (6, None)


def test_large_batches_come_one_by_one(fake, with_cluster):
    partitions = fake.topic("t", *[0] * 5)
    for each in partitions:
        fake.fill(each, 20, size=PARTITION_MAX_BYTES // 5)
        fake.committed[each] = 13
    _, lags = lag_of(fake, with_cluster)
    assert [lags[each].lag_ms for each in partitions] == [NOW_MS - 1013] * 5


def test_what_cannot_be_read_has_no_time(fake, with_cluster):
    (a,) = fake.topic("t", 0)
    fake.fill(a, 10)
    fake.committed[a] = 4
    fake.faults[ApiKey.FETCH].append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    _, each = lag_of(fake, with_cluster)
    assert (each[a].lag, each[a].lag_ms) == (6, None)


@pytest.mark.parametrize("fault", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, "DROP"])
def test_what_passes_is_waited_for(fake, with_cluster, faults, fault):
    (a,) = fake.topic("t", 0)
    fake.committed[a] = 0
    fake.fill(a, 10)
    fake.faults[ApiKey.OFFSET_FETCH].extend([faults.get(fault, fault)] * 3)
    assert lag_of(fake, with_cluster)[1][a].lag == 10


def test_a_group_that_is_not_there(fake, with_cluster):
    whole, each = lag_of(fake, with_cluster)
    assert (each, whole.lag, whole.lag_ms) == ({}, 0, None)


@pytest.mark.spec("U2")
def test_markers_of_transactions_are_not_to_be_read(fakes, with_cluster):
    key, value = end_transaction_record(ControlRecordType.COMMIT, 0)
    marker = encode_batch([Record(0, 1, key, value)], is_transactional=True, is_control=True)
    behind, marked, followed = partitions = fakes.topic("t", 0, 1, 0)
    for each in partitions:
        fakes.fill(each, 10)
        fakes.logs[each].append(marker)
        fakes.logs[each].append(marker)
    fakes.fill(followed, 10)
    fakes.committed |= {behind: 9, marked: 10, followed: 10}

    async def work(cluster: Cluster):
        measured = await measure_lag(cluster, "g")
        return measured, await readable_lag(cluster, measured)

    measured, readable = with_cluster(fakes, work)
    assert [each.lag for each in measured.partitions] == [3, 2, 12]
    assert [each.lag for each in readable.partitions] == [3, 0, 12]
