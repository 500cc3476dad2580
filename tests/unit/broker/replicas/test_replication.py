"""A broker that follows another one over TCP: equal segments, truncation, leaders that come and go.

The two brokers are clusters of their own; who leads and who follows is told to them directly, in a controller's place.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ottla.broker.replicas.partition import Partition
from ottla.broker.server import Broker
from ottla.cluster.image import NO_LEADER, ImageDelta, PartitionImage, TopicImage
from ottla.cluster.topics import TopicSpec
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.env.disk import RealDisk
from ottla.records.batch import split_batches
from ottla.records.control import ControlRecordType, end_transaction_record
from ottla.records.record import Record
from ottla.storage.checkpoints import CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_FILE
from ottla.storage.log import COORDINATOR, PartitionLog
from ottla.storage.results import AppendInfo
from ottla.storage.retention import drop_segments
from ottla.testing.disk_faulty import FaultyDisk
from ottla.wire.errors import ErrorCode
from support.storage_logs import NOW_MS, batch, of_records
from support.waiting import until

pytestmark = pytest.mark.spec("R2")

ONE, TWO = 1, 2
BOTH = (ONE, TWO)
SETTINGS = {"replica.fetch.backoff.ms": "50", "replica.fetch.wait.max.ms": "100", "log.segment.bytes": "5000"}


class Pair:
    """Brokers 1 and 2, each in a directory of its own, and topic `t` with one partition."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.disks = {broker_id: FaultyDisk(RealDisk()) for broker_id in BOTH}
        self.brokers: dict[int, Broker] = {}
        self.topic: TopicImage | None = None

    async def start(self, broker_id: int, **settings: str) -> Broker:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        config = parse_broker_config(
            {
                "broker.id": str(broker_id),
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": str(self._folder / str(broker_id)),
                **SETTINGS,
                **named,
            }
        )
        assert isinstance(config, BrokerConfig), config
        broker = self.brokers[broker_id] = Broker(config, disk=self.disks[broker_id])
        assert await broker.start() is None
        if self.topic is None:
            await broker.control.admin.create_topic(TopicSpec("t", 1, 1))
            self.topic = broker.image.topics["t"]
        known = {each_id: each.image.brokers[each_id] for each_id, each in self.brokers.items()}
        for each in self.brokers.values():
            each.image.apply(ImageDelta(brokers=known))
        return broker

    async def stop(self, broker_id: int) -> None:
        await self.brokers.pop(broker_id).stop()

    def give_roles(self, leader_id: int, epoch: int, *broker_ids: int) -> None:
        """Broker `leader_id` leads in this epoch, the other one follows; only these are told."""
        assert self.topic is not None
        state = PartitionImage(leader_id, epoch, BOTH, BOTH)
        for broker_id in broker_ids or BOTH:
            broker = self.brokers[broker_id]
            config = broker.control.topic_configs.log_config("t")
            if broker_id == leader_id:
                broker.partitions.make_leader(self.topic, 0, state, config)
            else:
                broker.partitions.make_follower(self.topic, 0, state, config)

    def partition(self, broker_id: int) -> Partition:
        found = self.brokers[broker_id].partitions.get("t", 0)
        assert found is not None
        return found

    def log(self, broker_id: int) -> PartitionLog:
        return self.partition(broker_id).log

    def append(self, broker_id: int, data: memoryview | None = None) -> int:
        """Append to the leader; the last offset."""
        broker = self.brokers[broker_id]
        done = broker.partitions.append(self.partition(broker_id), batch() if data is None else data, COORDINATOR)
        assert isinstance(done, AppendInfo), done
        return done.last_offset

    async def until_equal(self, *, epochs: bool = True) -> None:
        """Wait until the follower has everything, byte for byte; and the leader epochs, but for those of a broker that
        led at its start, as the controller that it is.
        """
        one, two = self.log(ONE), self.log(TWO)
        await until(lambda: one.log_end_offset == two.log_end_offset, "the follower to have everything")
        assert stored(one) == stored(two)
        assert not epochs or one.epochs.entries == two.epochs.entries


def stored(log: PartitionLog) -> dict[str, bytes]:
    """The contents of the log files."""
    return {path.name: path.read_bytes() for path in sorted(Path(log.directory).glob("*.log")) if path.stat().st_size}


def with_pair(folder: Path, scenario: Callable[[Pair], Awaitable[None]], **settings: str) -> None:
    async def run() -> None:
        pair = Pair(folder)
        try:
            await pair.start(ONE, **settings)
            await pair.start(TWO, **settings)
            await scenario(pair)
        finally:
            for broker_id in list(pair.brokers):
                await pair.stop(broker_id)

    asyncio.run(run())


def transactional(producer_id: int, sequence: int) -> memoryview:
    return batch(3, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True)


def marker(producer_id: int, kind: ControlRecordType) -> memoryview:
    key, value = end_transaction_record(kind, 0)
    content = [Record(0, NOW_MS, key, value, ())]
    return of_records(content, producer_id=producer_id, producer_epoch=0, is_transactional=True, is_control=True)


def test_a_partition_that_is_far_behind_has_a_fetcher_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that it does not hold up those that producers wait for; once it has caught up it is one of them."""

    monkeypatch.setattr("ottla.broker.server._is_in_sync", lambda _control, _partition: False)

    async def scenario(pair: Pair) -> None:
        follower = pair.brokers[TWO]
        for _ in range(200):
            pair.append(ONE)
        pair.give_roles(ONE, 5)
        await pair.until_equal(epochs=False)
        fetchers = follower.partitions.fetchers
        assert fetchers is not None
        behind = [each for place, each in fetchers._fetchers.items() if place.catches_up]
        assert [each.bytes_in > 0 for each in behind] == [True]
        await until(lambda: not any(len(each.machine) for each in behind), "the partition to be one of the others")
        for _ in range(3):
            pair.append(ONE)
        await pair.until_equal(epochs=False)
        assert pair.partition(TWO).log.high_watermark > 0

    with_pair(tmp_path, scenario, replica_fetch_max_bytes="2000")


def test_a_partition_in_sync_stays_where_it_is(tmp_path: Path) -> None:
    async def scenario(pair: Pair) -> None:
        for _ in range(200):
            pair.append(ONE)
        pair.give_roles(ONE, 5)
        await pair.until_equal(epochs=False)
        fetchers = pair.brokers[TWO].partitions.fetchers
        assert fetchers is not None
        assert [place.catches_up for place in fetchers._fetchers] == [False]

    with_pair(tmp_path, scenario, replica_fetch_max_bytes="2000")


def test_a_follower_has_the_same_bytes(tmp_path: Path) -> None:
    async def scenario(pair: Pair) -> None:
        pair.give_roles(ONE, 1, ONE)
        for number in range(40):
            pair.append(ONE, batch(1 + number % 5, size=200))
        pair.append(ONE, transactional(7, 0))
        pair.append(ONE, marker(7, ControlRecordType.ABORT))
        pair.give_roles(ONE, 1, TWO)
        await pair.until_equal()
        for _ in range(10):
            pair.append(ONE)
        await pair.until_equal()
        one, two = pair.log(ONE), pair.log(TWO)
        assert len(two.segments) > 3
        assert two.aborted_transactions(0, 1000) == one.aborted_transactions(0, 1000) != []
        await until(
            lambda: two.high_watermark == one.high_watermark == one.log_end_offset, "everything to be committed"
        )

    with_pair(tmp_path, scenario)


def test_a_leader_that_comes_back_elsewhere_is_found(tmp_path: Path) -> None:
    async def scenario(pair: Pair) -> None:
        pair.give_roles(ONE, 1)
        pair.append(ONE)
        await pair.until_equal()
        await pair.stop(ONE)
        await pair.start(ONE)  # on another port
        pair.give_roles(ONE, 2)
        pair.append(ONE)
        await pair.until_equal(epochs=False)

    with_pair(tmp_path, scenario)


def test_a_follower_goes_on_after_a_restart(tmp_path: Path) -> None:
    async def scenario(pair: Pair) -> None:
        pair.give_roles(ONE, 1)
        for _ in range(20):
            pair.append(ONE)
        await pair.until_equal()
        await pair.stop(TWO)
        for _ in range(20):
            pair.append(ONE)
        await pair.start(TWO)
        pair.give_roles(ONE, 1, TWO)
        await pair.until_equal(epochs=False)

    with_pair(tmp_path, scenario)


def lose_power(folder: Path) -> None:
    """Of a stopped broker: the end of an older segment was not forced, newer ones were."""
    for name in (CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_FILE):
        (folder / name).unlink()
    first, *_ = sorted(path for path in (folder / "t-0").glob("*.log") if path.stat().st_size)
    os.truncate(first, first.stat().st_size - 100)


@pytest.mark.spec("R2", "R3")
def test_a_follower_fills_the_gap_that_a_loss_of_power_left(tmp_path: Path) -> None:
    """It would be in sync without records that all replicas acknowledged."""

    async def scenario(pair: Pair) -> None:
        pair.give_roles(ONE, 1)
        for _ in range(20):
            pair.append(ONE, batch(3, size=200))
        await pair.until_equal()
        await pair.stop(TWO)
        lose_power(tmp_path / str(TWO))
        await pair.start(TWO)
        first, *_ = pair.log(TWO).segments
        # Each of these brokers is a controller, too, and has led its partition since its start.
        pair.log(TWO).gap_offset = first.base_offset + 3 * (first.size // len(batch(3, size=200)))
        pair.give_roles(ONE, 2, TWO, ONE)
        await pair.until_equal(epochs=False)

    with_pair(tmp_path, scenario)


@pytest.mark.spec("R2")
def test_who_has_led_with_a_gap_does_not_go_back_for_it(tmp_path: Path) -> None:
    """It may be in sync: what others acknowledged must stay."""

    async def scenario(pair: Pair) -> None:
        pair.give_roles(ONE, 1)
        for _ in range(20):
            pair.append(ONE, batch(3, size=200))
        await pair.until_equal()
        await pair.stop(TWO)
        lose_power(tmp_path / str(TWO))
        await pair.start(TWO)
        pair.give_roles(TWO, 2, TWO)
        end = pair.log(TWO).log_end_offset
        assert end == 60
        pair.give_roles(ONE, 3, TWO)
        assert pair.log(TWO).log_end_offset == end

    with_pair(tmp_path, scenario)


@pytest.mark.spec("R2", "R4")
def test_diverged_logs_come_together(tmp_path: Path) -> None:
    """Both led without the other, several epochs each; in the end the records of the last leader count."""

    async def scenario(pair: Pair) -> None:
        pair.give_roles(ONE, 1)
        for _ in range(5):
            pair.append(ONE)
        await pair.until_equal()
        for epoch, leader_id, count in ((2, ONE, 4), (3, TWO, 3), (4, ONE, 2), (5, TWO, 6), (6, ONE, 1)):
            assert pair.topic is not None
            pair.brokers[TWO if leader_id == ONE else ONE].partitions.stop("t", 0)
            pair.give_roles(leader_id, epoch, leader_id)
            for _ in range(count):
                pair.append(leader_id, batch(2, size=20 * epoch))
        pair.give_roles(ONE, 7)
        pair.append(ONE)
        await pair.until_equal()
        epochs = [
            header.partition_leader_epoch for data in stored(pair.log(TWO)).values() for header in split_batches(data)
        ]
        assert epochs == [1] * 5 + [2] * 4 + [4] * 2 + [6, 7]

    with_pair(tmp_path, scenario)


def test_a_former_leader_without_records_follows(tmp_path: Path) -> None:
    async def scenario(pair: Pair) -> None:
        pair.give_roles(ONE, 1)
        pair.append(ONE)
        await pair.until_equal()
        pair.brokers[TWO].partitions.stop("t", 0)
        pair.append(ONE)
        pair.give_roles(TWO, 2, TWO)
        pair.give_roles(ONE, 3)
        pair.append(ONE)
        await pair.until_equal()

    with_pair(tmp_path, scenario)


def test_a_follower_far_behind_begins_anew(tmp_path: Path) -> None:
    async def scenario(pair: Pair) -> None:
        pair.give_roles(ONE, 1)
        pair.append(ONE)
        await pair.until_equal()
        pair.brokers[TWO].partitions.stop("t", 0)
        for _ in range(60):
            pair.append(ONE, batch(3, size=100))
        leader = pair.log(ONE)
        leader.update_high_watermark(leader.log_end_offset)
        drop_segments(leader, 2)
        assert leader.log_start_offset > 3
        pair.give_roles(ONE, 1, TWO)
        await until(lambda: pair.log(TWO).log_end_offset == leader.log_end_offset, "the follower to have everything")
        assert pair.log(TWO).log_start_offset == leader.log_start_offset
        assert b"".join(stored(pair.log(TWO)).values()) == b"".join(
            data for name, data in stored(leader).items() if int(name[:20]) >= leader.log_start_offset
        )

    with_pair(tmp_path, scenario)


def test_deleted_records_are_deleted_here_too(tmp_path: Path) -> None:
    async def scenario(pair: Pair) -> None:
        pair.give_roles(ONE, 1)
        for _ in range(5):
            pair.append(ONE)
        await pair.until_equal()
        await until(lambda: pair.log(ONE).high_watermark == 15, "everything to be committed")
        pair.log(ONE).raise_log_start(7)
        pair.append(ONE)
        await until(lambda: pair.log(TWO).log_start_offset == 7, "the follower's log to start at 7")

    with_pair(tmp_path, scenario)


def test_a_fenced_follower_waits_for_its_next_role(tmp_path: Path) -> None:
    async def scenario(pair: Pair) -> None:
        pair.give_roles(ONE, 1)
        pair.append(ONE)
        await pair.until_equal()
        pair.give_roles(ONE, 2, ONE)
        fetchers = pair.brokers[TWO].partitions.fetchers
        assert fetchers is not None
        await until(lambda: fetchers.failed == {("t", 0): ErrorCode.FENCED_LEADER_EPOCH}, "the follower to be fenced")
        pair.append(ONE)
        pair.give_roles(ONE, 2, TWO)
        assert fetchers.failed == {}
        await pair.until_equal()

    with_pair(tmp_path, scenario)


def test_a_follower_is_told_before_its_leader(tmp_path: Path) -> None:
    async def scenario(pair: Pair) -> None:
        pair.give_roles(ONE, 1)
        pair.append(ONE)
        await pair.until_equal()
        pair.give_roles(ONE, 2, TWO)
        pair.append(ONE)
        await asyncio.sleep(0)
        pair.give_roles(ONE, 2, ONE)
        pair.append(ONE)
        await pair.until_equal()

    with_pair(tmp_path, scenario)


def test_what_is_acknowledged_is_on_the_followers_disk(tmp_path: Path) -> None:
    async def scenario(pair: Pair) -> None:
        pair.give_roles(ONE, 1)
        for _ in range(5):
            pair.append(ONE)
        leader = pair.log(ONE)
        await until(lambda: leader.high_watermark == leader.log_end_offset, "everything to be committed")
        assert pair.log(TWO).recovery_point >= leader.high_watermark

    with_pair(tmp_path, scenario, ottla_log_flush_on_ack="true")


@pytest.mark.parametrize("end", ["stop", "delete"])
def test_a_partition_that_is_stopped_or_deleted_is_not_copied_any_more(tmp_path: Path, end: str) -> None:
    async def scenario(pair: Pair) -> None:
        pair.give_roles(ONE, 1)
        pair.append(ONE)
        await pair.until_equal()
        assert getattr(pair.brokers[TWO].partitions, end)("t", 0)
        pair.append(ONE)
        fetchers = pair.brokers[TWO].partitions.fetchers
        assert fetchers is not None
        assert not any(len(fetcher.machine) for fetcher in fetchers._fetchers.values())

    with_pair(tmp_path, scenario)


def test_a_follower_goes_on_once_its_full_disk_has_room(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(pair: Pair) -> None:
        pair.give_roles(ONE, 1)
        pair.append(ONE)
        await pair.until_equal()
        pair.disks[TWO].fail("write", "*.log", errno.ENOSPC)
        pair.append(ONE)
        fetchers = pair.brokers[TWO].partitions.fetchers
        assert fetchers is not None
        await until(lambda: "t-0 cannot follow broker 1" in caplog.text, "the full disk to be reported")
        assert pair.log(TWO).log_end_offset == 3
        assert fetchers.failed == {}
        pair.disks[TWO].heal()
        await pair.until_equal()

    with_pair(tmp_path, scenario)


def test_a_follower_without_a_leader_asks_nobody(tmp_path: Path) -> None:
    async def scenario(pair: Pair) -> None:
        pair.give_roles(ONE, 1)
        pair.append(ONE)
        await pair.until_equal()
        pair.give_roles(NO_LEADER, 2, TWO)
        fetchers = pair.brokers[TWO].partitions.fetchers
        assert fetchers is not None
        assert not any(len(fetcher.machine) for fetcher in fetchers._fetchers.values())
        pair.give_roles(ONE, 3)
        pair.append(ONE)
        await pair.until_equal()

    with_pair(tmp_path, scenario)
